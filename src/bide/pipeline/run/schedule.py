"""A pipeline on a schedule, in one process: one run at a time, each under the name of the moment that it is for.

1. A run that was cut off goes on first. Moments that were missed meanwhile, or while the machine slept, are made up for by
   one run.
2. A run that fails ends nothing: the next moment comes.
3. The pipeline file is read anew before each run; one that has become wrong is told, and the next moment comes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, tzinfo

from bide.core.errors import BideError
from bide.pipeline.run.checkpoint import Checkpoint
from bide.pipeline.run.cron import CronExpression
from bide.pipeline.run.pipeline_run import RunOptions

log = logging.getLogger("bide.pipeline")
Once = Callable[[RunOptions], Awaitable[object]]
LONGEST_SLEEP = 30.0  # seconds: a machine that was asleep is noticed so soon


@dataclass
class RunSchedule:
    """`wall` tells epoch seconds, `sleep` waits."""

    cron: CronExpression
    zone: tzinfo
    state: Checkpoint
    wall: Callable[[], float]
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep

    async def keep(self, once: Once) -> None:
        """Until it is cancelled; `once` makes one run."""
        last = await self._catch_up(once)
        while True:
            at = self.cron.next(last, self.zone)
            if at is None:
                return
            log.info("the next run is at %s", self.name(at))
            while (now := self.wall()) < at:
                await self.sleep(min(at - now, LONGEST_SLEEP))
            last = self._latest(at, now)
            await _run(once, RunOptions(period=self.name(last), scheduled=last))

    async def _catch_up(self, once: Once) -> float:
        """What an earlier process left behind; the moment after which the next one is looked for."""
        now = self.wall()
        run = self.state.run()
        if run is None:
            return now
        if run.finished is None:
            await _run(once, RunOptions())
        last = run.scheduled if run.scheduled is not None else run.began
        missed = self.cron.next(last, self.zone)
        if missed is not None and missed <= now:
            last = self._latest(missed, now)
            await _run(once, RunOptions(period=self.name(last), scheduled=last))
        return max(last, now)

    def _latest(self, at: float, now: float) -> float:
        """Of all moments up to now the last one: a run for each of them would find the same."""
        missed = 0
        while (following := self.cron.next(at, self.zone)) is not None and following <= now:
            at, missed = following, missed + 1
        if missed:
            log.warning("%d moments of the schedule were missed: one run makes up for them", missed)
        return at

    def name(self, at: float) -> str:
        return datetime.fromtimestamp(at, self.zone).isoformat(timespec="minutes")


async def _run(once: Once, start: RunOptions) -> None:
    try:
        await once(start)
    except (BideError, OSError) as error:
        log.error("the run failed: %s", error)
