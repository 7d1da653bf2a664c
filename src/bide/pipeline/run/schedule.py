"""A pipeline on a schedule: one process, one run at a time. Each run is named after the scheduled time that it is for.

1. An interrupted run is resumed first. One run makes up for all scheduled times that passed meanwhile.
2. A run that fails does not end the schedule.
3. The pipeline file is read again before each run. An error in it is logged, and the schedule continues.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo

from bide.core.errors import BideError, SetupError
from bide.pipeline.run.checkpoint import Checkpoint
from bide.pipeline.run.pipeline_run import RunOptions

log = logging.getLogger("bide.pipeline")
MakeRun = Callable[[RunOptions], Awaitable[object]]
LONGEST_SLEEP = 30.0  # seconds; a machine that was suspended notices the time within this
NICKNAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
# The field that an error of cronsim names, what we call it, and its values.
_FIELDS = {
    "minute": ("minute", "0-59"),
    "hour": ("hour", "0-23"),
    "day-of-month": ("day of the month", "1-31, a day that the month has"),
    "month": ("month", "1-12 or jan-dec"),
    "day-of-week": ("day of the week", "0-7 or sun-sat; 0 and 7 are Sunday"),
}


@dataclass(frozen=True)
class CronExpression:
    """When to run. `read_cron` makes one."""

    text: str
    fields: str  # `text` in the form that gives cronsim's rules for fixed times to all expressions but hourly ones

    def next(self, after: float, zone: tzinfo = UTC) -> float:
        """The first scheduled time after `after`. Both are epoch seconds.

        When the clocks go forward, a skipped time runs at the end of the gap. When they go back, a repeated time runs the
        first time only. An expression for every hour runs by elapsed time instead.
        """
        from cronsim import CronSim

        for at in CronSim(self.fields, datetime.fromtimestamp(after, zone)):
            if (found := at.timestamp()) > after:
                return found
        raise ValueError(f"cron expression {self.text!r} never matches")


def read_cron(text: str) -> CronExpression:
    """ValueError says what is wrong with the expression. SetupError: the library is not installed."""
    try:
        from cronsim import CronSim, CronSimError
    except ModuleNotFoundError:
        raise SetupError.not_installed("A schedule needs cronsim", "pipeline") from None
    fields = NICKNAMES.get(text.strip().lower(), text).split()
    if len(fields) != len(_FIELDS):
        raise ValueError(
            f"{text!r} is not a cron expression. Write five fields (minute, hour, day of the month, month, day of the "
            f"week), such as '15 2 * * mon-fri', or one of {', '.join(NICKNAMES)}"
        )
    try:
        hours = CronSim(" ".join(fields), datetime.fromtimestamp(0, UTC)).hours
    except (CronSimError, ValueError) as error:
        raise ValueError(_explained(text, fields, str(error))) from None
    # cronsim runs an expression by elapsed time if its minute or hour begins with a star. It would skip `*/15 2 * * *` on
    # the night that skips 02:00, and run it twice on the night that repeats it.
    if len(hours) == 24:
        fields[1] = "*"
    else:
        fields[0] = re.sub(r"^\*", "0-59", fields[0])
        fields[1] = re.sub(r"^\*", "0-23", fields[1])
    cron = CronExpression(text, " ".join(fields))
    cron.next(0.0)
    return cron


def _explained(text: str, fields: list[str], message: str) -> str:
    wrong = message.removeprefix("Bad ")
    if wrong not in _FIELDS:
        return f"{text!r} is not a cron expression: {message}"
    name, values = _FIELDS[wrong]
    written = fields[list(_FIELDS).index(wrong)]
    return (
        f"{text!r} is not a cron expression: {written!r} is not a valid {name}. Use {values}; also *, a range (1-5), a list "
        "(1,3) or a step (*/15)"
    )


@dataclass
class RunSchedule:
    """`wall` returns epoch seconds, `sleep` waits."""

    cron: CronExpression
    zone: tzinfo
    checkpoint: Checkpoint
    wall: Callable[[], float]
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep

    async def follow(self, make_run: MakeRun) -> None:
        """Run until it is cancelled. `make_run` makes one run."""
        last = await self._catch_up(make_run)
        while True:
            at = self.cron.next(last, self.zone)
            log.info("the next run is at %s", self.name(at))
            while (now := self.wall()) < at:
                await self.sleep(min(at - now, LONGEST_SLEEP))
            last = self._latest(at, now)
            await _logged(make_run, RunOptions(period=self.name(last), scheduled=last))

    async def _catch_up(self, make_run: MakeRun) -> float:
        """Resume the run of an earlier process and make up for missed times. Return the time to continue from."""
        now = self.wall()
        run = self.checkpoint.run()
        if run is None:
            return now
        if run.finished is None:
            await _logged(make_run, RunOptions())
        last = run.scheduled if run.scheduled is not None else run.began
        missed = self.cron.next(last, self.zone)
        if missed <= now:
            last = self._latest(missed, now)
            await _logged(make_run, RunOptions(period=self.name(last), scheduled=last))
        return max(last, now)

    def _latest(self, at: float, now: float) -> float:
        """The last scheduled time until now: a run for each of them would export the same data."""
        missed = 0
        while (following := self.cron.next(at, self.zone)) <= now:
            at, missed = following, missed + 1
        if missed:
            log.warning("%d scheduled runs were missed; one run makes up for them", missed)
        return at

    def name(self, at: float) -> str:
        return datetime.fromtimestamp(at, self.zone).isoformat(timespec="minutes")


async def _logged(make_run: MakeRun, options: RunOptions) -> None:
    try:
        await make_run(options)
    except (BideError, OSError) as error:
        log.error("the run failed: %s", error)
