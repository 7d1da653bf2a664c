"""The intervals that a caller sets: in the schedule, in a client at an API over a socket, and as flags of `bide wait`."""

from __future__ import annotations

import asyncio
import math
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from aiohttp import web
from click.testing import CliRunner, Result

from bide.cli import root
from bide.cli.wait import wait as wait_command
from bide.client import account
from bide.client.client import AsyncClient
from bide.client.ledger import WaitSettings
from bide.client.options import ClientOptions, check_polling
from bide.client.polling.kinds import KindStats, by_expectation
from bide.client.polling.schedule import PollSchedule, PollSettings
from bide.client.polling_options import POLLING_OPTIONS
from bide.client.timing import Timing
from bide.core.pacing.budget import Budget, Limit
from bide.pipeline.plan.form import PollingTable
from tests.unit.fake_service import FakeService
from tests.waiting import eventually

API = """
name = "tasks"
[submit]
path = "/tasks"
id = "id"
[ask]
path = "/tasks/{id}"
[read]
status = "state"
live = ["busy"]
done = ["ready"]
"""
FREE = Limit(1e6, 1.0, 1000)


def polls(
    settings: PollSettings,
    *,
    until: float,
    limit: Limit = FREE,
    jobs: int = 1,
    batch: int = 1,
    seed: int = 7,
    **options: Any,
) -> dict[int, list[float]]:
    """The times at which each of the jobs is polled; none of them ends."""
    rng = random.Random(seed)
    plan = PollSchedule(Budget(limit, rng=rng), rng=rng, settings=settings)
    for number in range(jobs):
        plan.add(number, 0.0, kind=plan.kind("k", batch), **options)
    found: dict[int, list[float]] = {number: [] for number in range(jobs)}
    now = 0.0
    while now < until:
        due, again = plan.next(now)
        if not due:
            assert again > now
            now = again
            continue
        plan.budget.record_response(now, 200, {}, now)
        for job in due:
            found[job.key].append(now)
            plan.still_live(job, now)
    return found


def gaps(moments: list[float]) -> list[float]:
    return [later - earlier for earlier, later in zip([0.0, *moments], moments, strict=False)]


# --- the schedule


@pytest.mark.parametrize("first", ["planned", "now", "held"])
@pytest.mark.parametrize("batch", [1, 10])
def test_the_first_poll_is_at_the_first_interval_and_at_most_its_jitter_later(
    first: str, batch: int
) -> None:
    found = polls(PollSettings(first=30.0), until=40.0, jobs=20, batch=batch, first=first)
    firsts = [moments[0] for moments in found.values()]
    assert all(30.0 <= moment <= 33.1 for moment in firsts)
    assert len(set(firsts)) > 1


def test_a_job_that_was_polled_later_than_that_is_planned_as_usual() -> None:
    found = polls(PollSettings(first=30.0), until=50.0, age=40.0, asked=40.0)
    assert found[0][0] < 30.0


@pytest.mark.parametrize("price", [1.0, 1e6])
@pytest.mark.parametrize("batch", [1, 10])
@pytest.mark.parametrize("options", [{}, {"expected": 3000.0}, {"size": "large"}])
def test_no_interval_is_longer_than_the_longest(
    price: float, batch: int, options: dict[str, Any]
) -> None:
    found = polls(PollSettings(price, longest=4.0), until=300.0, jobs=3, batch=batch, **options)
    for moments in found.values():
        assert moments and max(gaps(moments)) <= 4.0 + 1e-6


def test_a_backoff_grows_by_its_factor_up_to_the_longest_interval() -> None:
    settings = PollSettings(first=2.0, longest=10.0, jitter=0.0, backoff=1.5)
    found = polls(settings, until=60.0)
    assert gaps(found[0])[:7] == pytest.approx([2.0, 3.0, 4.5, 6.75, 10.0, 10.0, 10.0])


def test_a_backoff_of_1_is_a_fixed_interval_and_begins_with_a_second() -> None:
    found = polls(PollSettings(jitter=0.0, backoff=1.0), until=20.0, expected=500.0)
    assert gaps(found[0]) == pytest.approx([1.0] * len(found[0])) and len(found[0]) >= 19


def test_jitter_is_a_part_of_the_interval() -> None:
    settings = PollSettings(first=10.0, longest=10.0, jitter=0.5, backoff=1.0)
    found = gaps(polls(settings, until=5000.0)[0])[1:]
    assert all(5.0 <= gap <= 10.0 + 1e-6 for gap in found)
    free = gaps(polls(PollSettings(first=10.0, jitter=0.5, backoff=1.0), until=5000.0)[0])[1:]
    assert min(free) < 6.0 and max(free) > 14.0
    assert all(5.0 <= gap <= 15.0 + 1e-6 for gap in free)


def test_without_jitter_there_is_no_chance_in_a_plan() -> None:
    for settings, plans in ((PollSettings(jitter=0.0), 1), (PollSettings(), 5)):
        found = [polls(settings, until=100.0, seed=seed)[0] for seed in range(5)]
        assert len(set(map(tuple, found))) == plans


def test_a_poll_in_time_for_the_deadline_comes_before_the_interval() -> None:
    assert polls(PollSettings(first=60.0), until=21.0, deadline=20.0)[0] == [20.0]
    found = polls(PollSettings(first=1.0, jitter=0.0, backoff=15.0), until=13.0, deadline=12.0)
    assert found[0] == pytest.approx([1.0, 12.0])


@pytest.mark.parametrize(
    "settings",
    [
        PollSettings(longest=0.1),
        PollSettings(first=0.1, jitter=0.0, backoff=1.0),
        PollSettings(first=5.0, jitter=1.0, longest=1.0),
    ],
)
@pytest.mark.parametrize("batch", [1, 5])
def test_no_setting_breaks_the_budget(settings: PollSettings, batch: int) -> None:
    found = polls(settings, until=60.0, limit=Limit(20, 10.0, 5), jobs=30, batch=batch)
    moments = sorted({moment for one in found.values() for moment in one})
    for i, start in enumerate(moments):
        for j in range(i, len(moments)):
            assert j - i + 1 <= 5 + 2.0 * (moments[j] - start) + 1e-6
    if batch == 1:  # and all of it is used fairly
        counts = [len(one) for one in found.values()]
        assert min(counts) > 0 and max(counts) <= min(counts) + 2


def test_a_window_is_polled_when_jobs_end_in_it() -> None:
    plan = PollSchedule(Budget(FREE, rng=random.Random(1)), rng=random.Random(1))
    for expected, low, high in (((100.0, 110.0), 90.0, 112.0), ((60.0, 3600.0), 50.0, 200.0)):
        kind = KindStats()
        plan.add("j", 0.0, kind=kind, expected=expected)
        assert low < plan.next(0.0)[1] < high
        assert kind.hint == pytest.approx(math.sqrt(expected[0] * expected[1]))
        plan.remove(plan.jobs()[0])
    narrow, wide = by_expectation((100.0, 110.0)), by_expectation((10.0, 1100.0))
    assert narrow.left == pytest.approx(wide.left)
    assert narrow.source != wide.source  # each is learned separately


# --- the options


def test_flags_pipelines_and_ledgers_have_the_options_and_defaults_of_a_client() -> None:
    assert set(PollingTable.__struct_fields__) == set(POLLING_OPTIONS)
    assert set(POLLING_OPTIONS) < set(WaitSettings.__struct_fields__)
    assert set(POLLING_OPTIONS) < set(ClientOptions.__annotations__)
    flags = {option.name: option for option in wait_command.params if isinstance(option, click.Option)}
    docs = Path(__file__).parents[2] / "docs" / "reference"
    for name, (_, option) in POLLING_OPTIONS.items():
        assert (flags[name].help or "").startswith(option.help)
        for page in ("pipelines.md", "python.md"):
            lines = re.findall(rf"^\| `{name}` \|.*$", (docs / page).read_text("utf-8"), re.MULTILINE)
            assert lines, (name, page)
            for line in lines:
                if option.default is not None and re.search("default:? ", line):
                    assert re.search(rf"default:? (about )?{option.default:g}\b", line), line
        if option.default is not None:
            assert f"[default: {option.default:g}]" in (flags[name].help or "")


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("price", 0, "`price` must be a number above 0, not 0"),
        (
            "expected",
            -1,
            "`expected` must be a number of seconds above 0, or the least and the greatest number",
        ),
        ("expected", (60, 15), "`expected` must be"),
        ("first_interval", -1, "`first_interval` must be a number above 0, not -1"),
        ("longest_interval", math.inf, "`longest_interval` must be a number above 0"),
        ("jitter", 1.5, "`jitter` must be from 0 to 1, not 1.5"),
        ("backoff", 0.5, "`backoff` must be 1 or more, not 0.5"),
    ],
)
def test_a_value_that_cannot_be_used_is_refused(name: str, value: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        check_polling({name: value})  # type: ignore[misc]


# --- over a socket


class Tasks(FakeService):
    """Every task is busy until it is in `ready`."""

    def __init__(self) -> None:
        super().__init__()
        self.ready: set[str] = set()
        self.polled: list[str] = []

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if request.method == "POST":
            return web.json_response({"id": "t0"})
        name = request.path.rpartition("/")[2]
        self.polled.append(name)
        return web.json_response({"state": "ready" if name in self.ready else "busy"})


@pytest.fixture
def tasks() -> Iterator[Tasks]:
    with Tasks() as running:
        yield running


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tasks.toml").write_text(API)
    return str(tmp_path / "tasks.toml")


@pytest.mark.parametrize("processes", [1, 2])
async def test_a_client_polls_as_often_as_its_longest_interval_says(
    tasks: Tasks, api: str, processes: int
) -> None:
    """At this price it would poll again only after hours."""
    options: Any = {"price": 1e5, "longest_interval": 0.05, "processes": processes}
    async with AsyncClient(tasks.url, api=api, limit="1000/1s", **options) as client:
        waiting = asyncio.create_task(client.wait_all([client.job("a")], timeout=60))
        await eventually(lambda: len(tasks.polled) >= 10)
        tasks.ready.add("a")
        await waiting


async def test_a_submitted_job_is_first_polled_after_the_first_interval(tasks: Tasks, api: str) -> None:
    timing = Timing(100.0)
    tasks.ready.add("t0")
    async with AsyncClient(tasks.url, api=api, timing=timing, first_interval=60) as client:
        job = await client.submit("any", {})
        began = timing.now()
        await job.result(timeout=60)
        assert timing.now() - began >= 59.0
    assert len(tasks.polled) == 1


# --- bide wait


def wait(tasks: Tasks, *args: str) -> Result:
    flags = ["--api", "tasks.toml", "--trust", "--url", tasks.url, "--limit", "1000/1s"]
    return CliRunner().invoke(root, ["wait", *args, *flags], prog_name="bide")


def test_flags_set_the_intervals(tasks: Tasks, api: str) -> None:
    flags = ["--first-interval", "0.5", "--jitter", "0", "--backoff", "1", "--timeout", "1.7"]
    assert wait(tasks, "a", *flags).exit_code == 3
    assert 1 <= len(tasks.polled) <= 4  # at 0.5, 1 and 1.5 s, and in time for the timeout
    tasks.polled.clear()
    flags = [
        "--first-interval",
        "0.2",
        "--backoff",
        "100",
        "--longest-interval",
        "0.6",
        "--timeout",
        "1",
    ]
    assert wait(tasks, "a", *flags).exit_code == 3
    assert 1 <= len(tasks.polled) <= 4
    tasks.polled.clear()
    assert wait(tasks, "a", "--expect", "300-600", "--timeout", "0.5").exit_code == 3
    # At once, because its age is unknown, and in time for the timeout.
    assert 1 <= len(tasks.polled) <= 2


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["--timeout", "soon"], "'soon' is not a number of seconds, 0 or more, or `none`"),
        (
            ["--expect", "60-15"],
            "'60-15' is not a number of seconds such as 120, or a window such as 15-60",
        ),
        (["--expect", "x"], "'x' is not a number of seconds"),
        (["--jitter", "2"], "2.0 is not in the range 0<=x<=1"),
        (["--backoff", "0"], "0.0 is not in the range x>=1"),
    ],
)
def test_a_flag_that_cannot_be_used_is_refused(
    tasks: Tasks, api: str, flags: list[str], text: str
) -> None:
    result = wait(tasks, "a", *flags)
    assert result.exit_code == 2
    assert text in result.stderr
    assert tasks.polled == []


def test_the_ledger_keeps_the_intervals_and_a_timeout_of_none(tasks: Tasks, api: str) -> None:
    tasks.ready.add("a")
    flags = [
        "--first-interval",
        "0.1",
        "--longest-interval",
        "30",
        "--jitter",
        "0.2",
        "--backoff",
        "1.5",
    ]
    flags += ["--expect", "15-60", "--timeout", "none"]
    wait(tasks, "a", "--ledger", "l", "--exec", "false", *flags)  # not acknowledged
    result = CliRunner().invoke(root, ["wait", "--ledger", "l"], prog_name="bide")
    assert result.exit_code == 0, result.output
    kept = "--expect 15-60 --first-interval 0.1 --longest-interval 30 --jitter 0.2 --backoff 1.5 --timeout none"
    assert kept in result.stderr


def test_a_command_ends_after_the_default_maximum_and_says_so(
    tasks: Tasks, api: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(account, "LONGEST_WAIT", 0.2)
    result = wait(tasks, "a")
    assert result.exit_code == 3
    assert "a did not end within 0.2 s, the default maximum; it still runs." in result.stderr
    monkeypatch.setattr(account, "LONGEST_WAIT", 1e-6)  # too short for any answer
    tasks.ready.add("a")
    assert wait(tasks, "a").exit_code == 3
    assert wait(tasks, "a", "--timeout", "none", "--json").exit_code == 0


def test_submit_ends_its_wait_after_the_default_maximum_too(
    tasks: Tasks, api: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(account, "LONGEST_WAIT", 0.2)
    to = ["--api", "tasks.toml", "--trust", "--url", tasks.url, "--wait"]
    result = CliRunner().invoke(root, ["submit", "any", *to], prog_name="bide")
    assert result.exit_code == 3
    assert "t0 did not end within 0.2 s, the default maximum; it still runs." in result.stderr
    tasks.ready.add("t0")
    result = CliRunner().invoke(root, ["submit", "any", *to, "--timeout", "none"], prog_name="bide")
    assert result.exit_code == 0, result.output
