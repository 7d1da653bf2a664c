"""What the bars show, and where."""

from __future__ import annotations

import io
from typing import Any

import msgspec
from rich.console import Console

from bide.client.bars import SHOWN, bars
from bide.core.wire import WireJob
from tests.unit.fake_service import failed, job, job_id


def terminal() -> tuple[Console, io.StringIO]:
    screen = io.StringIO()
    return Console(file=screen, force_terminal=True, width=120, height=40), screen


def seen(document: dict[str, Any]) -> WireJob:
    return msgspec.convert(document, WireJob)


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
