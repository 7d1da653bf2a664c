from __future__ import annotations

import pytest

from bide.core.clock import read_instant
from bide.core.jobs.record import Job, Progress, Status
from bide.core.pacing.hazard import Sketch, SurvivalCurve
from bide.core.wire.http import Event
from bide.server.estimates import ENOUGH, Estimates


def learned(seconds: float, times: int) -> Estimates:
    estimates = Estimates()
    known = {"kind": "k", "status": "DONE", "seconds": seconds}
    estimates.on_events([Event(n, "j", "status", 0.0, known) for n in range(times)])
    return estimates


def running(started_at: float = 1000.0) -> Job:
    return Job(
        id="j",
        kind="k",
        queue="q",
        created_at=900.0,
        updated_at=started_at,
        status=Status.PROCESSING,
        started_at=started_at,
    )


def test_nothing_is_invented() -> None:
    assert Estimates().eta(running(), None, 1000.0, 1001.0) is None
    assert learned(4.0, ENOUGH - 1).eta(running(), None, 1000.0, 1001.0) is None
    assert Estimates().eta(running(), Progress(percent=0.0), 1010.0, 1010.0) is None


def test_what_jobs_of_the_kind_took() -> None:
    eta = learned(4.0, ENOUGH).eta(running(), None, 1000.0, 1001.0)
    assert eta is not None
    low, middle, high = (read_instant(t) - 1000.0 for t in (eta.low, eta.finish_at, eta.high))
    assert low <= middle <= high
    assert 3.0 < middle < 5.0


def test_the_wait_in_a_queue_follows_from_backlog_durations_and_slots() -> None:
    estimates = learned(4.0, 10)

    def wait(waiting: int, running: int, slots: int | None, *kinds: str) -> float | None:
        return estimates.predicted_wait(kinds or ("k",), waiting, running, slots)

    assert wait(0, 1, 2) == 0.0  # a worker is free
    assert wait(9, 2, 2) == pytest.approx(20.0, rel=0.1)
    assert wait(0, 2, 2) == pytest.approx(2.0, rel=0.1)
    assert wait(9, 1, 2) == pytest.approx(40.0, rel=0.1)  # other queues use the other worker
    assert wait(9, 0, 2) == pytest.approx(20.0, rel=0.1)
    assert wait(9, 2, 2, "k", "unknown") == wait(9, 2, 2)
    assert wait(9, 2, 2, "unknown") is None and wait(9, 2, None) is None and wait(9, 0, 0) is None


def test_past_all_experience_nothing_is_known() -> None:
    assert learned(4.0, 50).eta(running(), None, 1000.0, 1100.0) is None


def test_its_own_progress_counts_more_and_does_not_move_with_the_clock() -> None:
    estimates = learned(4.0, 50)
    progress = Progress(percent=25.0)
    eta = estimates.eta(running(), progress, 1010.0, 1010.0)
    assert eta is not None and read_instant(eta.finish_at) == 1040.0
    assert estimates.eta(running(), progress, 1010.0, 1025.0) == eta


def test_the_hint_is_at_least_a_second_and_follows_experience() -> None:
    assert 1 <= Estimates().retry_after(running(), None, 1000.1) <= 2
    long = learned(600.0, 50)
    assert long.retry_after(running(), None, 1001.0) > 30
    assert long.retry_after(running(), Progress(percent=50.0), 1010.0) == 9
    waiting = Job(id="j", kind="k", queue="q", created_at=1000.0, updated_at=1000.0, due=1050.0)
    assert Estimates().retry_after(waiting, None, 1000.0) >= 50


def test_what_was_learned_is_saved_once_and_loaded_again() -> None:
    estimates = learned(4.0, 5)
    saved = estimates.unsaved()
    assert estimates.unsaved() == {}
    fresh = Estimates()
    fresh.load(saved)
    assert fresh.describe("k") == estimates.describe("k")


class Stopped:
    """A clock that only the test advances."""

    def __init__(self) -> None:
        self.at = 0.0

    def now(self) -> float:
        return self.at


def test_while_jobs_end_by_the_thousand_a_curve_is_made_once_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[float] = []
    table = Sketch.table

    def counted(sketch: Sketch) -> SurvivalCurve:
        made.append(clock.at)
        return table(sketch)

    clock = Stopped()
    estimates = Estimates(clock)
    monkeypatch.setattr(Sketch, "table", counted)
    for n in range(3000):
        clock.at = n / 1000
        known = {"kind": "k", "status": "DONE", "seconds": 1.0 + n / 1000}
        estimates.on_events([Event(n, "j", "status", 0.0, known)])
        estimates.retry_after(running(), None, 1000.5)
        estimates.eta(running(), None, 1000.0, 1000.5)
        estimates.describe("k")
    assert len(made) <= ENOUGH + 3
    clock.at = 10.0
    described = estimates.describe("k")
    assert described is not None
    assert described["p50"] > 3.0, "what is asked for later is what was learned last"


def test_nothing_is_worked_out_that_nobody_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(sketch: Sketch) -> SurvivalCurve:
        raise AssertionError("learning makes no curve")

    monkeypatch.setattr(Sketch, "table", never)
    assert learned(4.0, 1000).unsaved()["k"]["count"] == 1000


def test_what_is_loaded_takes_the_place_of_what_was_heard_before() -> None:
    estimates = learned(4.0, 10)
    estimates.load({"other": learned(2.0, 10).unsaved()["k"]})
    assert estimates.unsaved() == {}
    assert estimates.describe("k") is None
    assert estimates.describe("other") is not None
