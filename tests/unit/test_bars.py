"""What the bars show, and where."""

from __future__ import annotations

import io
import threading
from typing import Any

import msgspec
import pyte
import tqdm
from rich.console import Console

from bide.client.client import AsyncClient
from bide.client.progress import SHOWN, BarConsole, CallersBar, bars, upload_bar
from bide.core.wire.http import JobStatus
from tests.unit.fake_service import FakeService, failed, job, job_id, says


def terminal() -> tuple[Console, io.StringIO]:
    screen = io.StringIO()
    return Console(file=screen, force_terminal=True, width=120, height=40), screen


def seen(document: dict[str, Any]) -> JobStatus:
    return msgspec.convert(document, JobStatus)


def test_where_nobody_looks_there_are_no_bars() -> None:
    silent = io.StringIO()
    with bars([job_id(1)], Console(file=silent, force_terminal=False)) as show:
        assert show is None
    assert silent.getvalue() == ""


def test_one_job_shows_its_percentage_and_message() -> None:
    console, screen = terminal()
    with bars([job_id(1)], console) as show:
        assert show is not None
        show(seen(job(1, "PROCESSING", progress={"percent": 41.5, "message": "pass [1/2]"})))
    assert "42%" in screen.getvalue()
    assert "pass [1/2]" in screen.getvalue()
    assert "all jobs" not in screen.getvalue()


def test_an_unknown_percentage_is_not_invented() -> None:
    console, screen = terminal()
    with bars([job_id(1)], console) as show:
        assert show is not None
        show(seen(job(1, "PROCESSING")))
        show(seen(failed(1)))
    assert "%" not in screen.getvalue()
    assert "ERROR OCR_TIMEOUT: page 7" in screen.getvalue()


def test_no_line_is_lost_while_a_thread_redraws_other_bars() -> None:
    written = io.StringIO()
    console = BarConsole(file=written, force_terminal=True, width=100, height=40)
    ended = threading.Event()
    with bars([job_id(number) for number in range(100)], console) as show:
        assert show is not None

        def redraw() -> None:
            """The number of bars grows and shrinks."""
            while not ended.is_set():
                for status in ("PROCESSING", "DONE"):
                    for number in range(5):
                        show(seen(job(number, status)))

        thread = threading.Thread(target=redraw)
        thread.start()
        try:
            for number in range(100):
                console.out(f"line {number}")
        finally:
            ended.set()
            thread.join()
    screen = pyte.Screen(100, 400)
    pyte.Stream(screen).feed(written.getvalue().replace("\n", "\r\n"))
    shown = [line.strip() for line in screen.display if line.strip()]
    assert shown == [f"line {number}" for number in range(100)]


def test_many_jobs_are_counted_and_only_what_runs_is_shown() -> None:
    console, screen = terminal()
    count = 5 * SHOWN
    with bars([job_id(number) for number in range(count)], console) as show:
        assert show is not None
        for number in range(count):
            show(seen(job(number, "PROCESSING", progress={"message": f"<{number}>"})))
        for number in range(count - 1):
            show(seen(job(number)))
    last = screen.getvalue().rpartition("all jobs")[2]
    assert f"{count - 1} of {count} ended" in last
    assert last.count("transcode") <= SHOWN


# --- a bar of the caller's own


def their_bar() -> Any:
    return tqdm.tqdm(file=io.StringIO())


def test_their_bar_follows_the_percentage_of_one_job_and_never_goes_back() -> None:
    bar = their_bar()
    show = CallersBar(bar, 1).show
    assert bar.total == 100
    for percent, shown in ((None, 0.0), (41.5, 41.5), (30.0, 41.5), (None, 41.5), (80.0, 80.0)):
        progress = None if percent is None else {"percent": percent}
        show(seen(job(1, "PROCESSING", progress=progress)))
        assert bar.n == shown
    show(seen(job(1)))
    assert bar.n == 100


def test_their_bar_does_not_fill_for_a_job_that_failed() -> None:
    bar = their_bar()
    show = CallersBar(bar, 1).show
    show(seen(job(1, "PROCESSING", progress={"percent": 20.0})))
    show(seen(failed(1)))
    assert bar.n == 20.0


def test_their_bar_counts_many_jobs_each_once() -> None:
    bar = their_bar()
    show = CallersBar(bar, 3).show
    assert bar.total == 3
    for number in (1, 2, 2, 1):
        show(seen(job(number)))
    show(seen(job(3, "PROCESSING", progress={"percent": 99.0})))
    assert bar.n == 2
    show(seen(failed(3)))
    assert bar.n == 3


async def test_a_wait_moves_the_bar_that_it_is_given(service: FakeService) -> None:
    for number in range(3):
        service.script(number, says(job(number, result=number)))
    one, many = their_bar(), their_bar()
    async with AsyncClient(service.url) as client:
        await client.job(job_id(0)).result(timeout=10, progress=one)
        await client.wait_all([client.job(job_id(n)) for n in range(3)], timeout=10, progress=many)
    assert (one.total, one.n) == (100, 100)
    assert (many.total, many.n) == (3, 3)


async def test_jobs_of_two_services_with_the_same_id_are_counted_apart(service: FakeService) -> None:
    service.script(1, says(job(1, result=1)))
    both = their_bar()
    with FakeService() as other:
        other.script(1, says(job(1, result=2)))
        async with AsyncClient(service.url) as one, AsyncClient(other.url) as two:
            jobs = [one.job(job_id(1)), two.job(job_id(1))]
            await one.wait_all(jobs, timeout=10, progress=both)
    assert (both.total, both.n) == (2, 2)


def test_bars_of_the_same_id_under_two_keys_are_two() -> None:
    console, screen = terminal()
    with bars([("a", "1"), ("b", "1")], console) as show:
        assert show is not None
        show(seen(job(1, result=1)), ("a", "1"))
        show(seen(job(1, result=2)), ("b", "1"))
    assert "2 of 2 ended" in screen.getvalue()


def test_an_upload_shows_its_bytes() -> None:
    console, screen = terminal()
    with upload_bar("film [1].mp4", 3_000_000, console) as show:
        show(1_500_000)
    assert "film [1].mp4" in screen.getvalue()
    assert "1.5/3.0 MB" in screen.getvalue()


def test_an_upload_that_nobody_watches_shows_nothing() -> None:
    silent = io.StringIO()
    with upload_bar("film.mp4", 3, Console(file=silent, force_terminal=False)) as show:
        show(2)
    assert silent.getvalue() == ""


def test_an_upload_moves_the_callers_bar_back_too() -> None:
    with tqdm.tqdm(file=io.StringIO()) as bar, upload_bar("film.mp4", 10, bar) as show:
        show(7)
        show(4)  # what the service has after a cut
        assert (bar.n, bar.total) == (4, 10)
