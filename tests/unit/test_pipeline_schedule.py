"""A pipeline on a schedule, by a clock of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest

from bide.core.errors import BideError
from bide.pipeline.run.checkpoint import Checkpoint
from bide.pipeline.run.exports import RunRecord
from bide.pipeline.run.pipeline_run import RunOptions
from bide.pipeline.run.schedule import RunSchedule, read_cron

MIDNIGHT = datetime(2026, 11, 16, tzinfo=UTC).timestamp()
HOUR, DAY = 3600.0, 86400.0


class Day:
    """A clock that only `sleep` advances, and the runs of the schedule."""

    def __init__(self, checkpoint: Checkpoint, now: float = MIDNIGHT) -> None:
        self.now = now
        self.checkpoint = checkpoint
        self.runs: list[tuple[float, RunOptions]] = []
        self.takes = 60.0
        self.breaks = 0
        self.sleeps: dict[int, float] = {}  # by the number of runs before: how long the machine sleeps

    async def sleep(self, seconds: float) -> None:
        self.now += self.sleeps.pop(len(self.runs), seconds)

    async def run(self, options: RunOptions) -> None:
        if len(self.runs) == 3:
            raise asyncio.CancelledError
        self.runs.append((self.now, options))
        self.now += self.takes
        if self.breaks:
            self.breaks -= 1
            raise BideError("the vendor is down")

    async def follow(self, text: str = "15 2 * * *") -> None:
        schedule = RunSchedule(read_cron(text), UTC, self.checkpoint, lambda: self.now, self.sleep)
        with pytest.raises(asyncio.CancelledError):
            await schedule.follow(self.run)

    @property
    def periods(self) -> list[str | None]:
        return [options.period for _, options in self.runs]


@pytest.fixture
def checkpoint(tmp_path: Path) -> Iterator[Checkpoint]:
    with Checkpoint(tmp_path / "state") as checkpoint:
        yield checkpoint


async def test_a_run_at_each_moment_under_its_name(checkpoint: Checkpoint) -> None:
    day = Day(checkpoint)
    await day.follow()
    assert day.periods == ["2026-11-16T02:15+00:00", "2026-11-17T02:15+00:00", "2026-11-18T02:15+00:00"]
    assert [round(at - MIDNIGHT) for at, _ in day.runs] == [8100, 8100 + 86400, 8100 + 2 * 86400]


async def test_a_run_that_fails_does_not_end_it(checkpoint: Checkpoint) -> None:
    day = Day(checkpoint)
    day.breaks = 2
    await day.follow()
    assert len(day.runs) == 3


async def test_moments_that_were_slept_through_are_made_up_for_by_one_run(
    checkpoint: Checkpoint,
) -> None:
    day = Day(checkpoint)
    day.sleeps = {0: 3 * DAY}
    await day.follow()
    assert day.periods[:2] == ["2026-11-18T02:15+00:00", "2026-11-19T02:15+00:00"]
    assert day.runs[0][0] == MIDNIGHT + 3 * DAY


async def test_a_run_that_takes_longer_than_the_gap_is_not_overtaken(checkpoint: Checkpoint) -> None:
    day = Day(checkpoint)
    day.takes = 3.5 * HOUR
    await day.follow("@hourly")
    began = [at - MIDNIGHT for at, _ in day.runs]
    assert all(b - a >= day.takes for a, b in pairwise(began))


async def test_a_run_that_was_cut_off_goes_on_first(checkpoint: Checkpoint) -> None:
    checkpoint.begin(
        RunRecord(id="a", period="2026-11-15T02:15+00:00", began=MIDNIGHT, scheduled=MIDNIGHT - DAY)
    )
    day = Day(checkpoint)
    await day.follow()
    assert day.periods[0] is None and day.runs[0][0] == MIDNIGHT


async def test_what_was_missed_while_no_process_was_there_is_run_once(checkpoint: Checkpoint) -> None:
    before = MIDNIGHT - 5 * DAY
    checkpoint.begin(RunRecord(id="a", period="p", began=before, scheduled=before, finished=before))
    day = Day(checkpoint)
    await day.follow()
    assert day.periods[:2] == ["2026-11-15T02:15+00:00", "2026-11-16T02:15+00:00"]
    assert day.runs[0][0] == MIDNIGHT


async def test_a_run_by_hand_counts_as_the_last_one(checkpoint: Checkpoint) -> None:
    checkpoint.begin(RunRecord(id="a", period="p", began=MIDNIGHT - HOUR, finished=MIDNIGHT - HOUR))
    day = Day(checkpoint)
    await day.follow()
    assert day.runs[0][0] == MIDNIGHT + 8100
