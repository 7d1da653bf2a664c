"""Clocks and instants. A clock is always injected, so that tests control the time."""

from __future__ import annotations

import re
import sys
import time
from datetime import UTC, datetime
from functools import partial
from typing import Protocol

# Earlier than any time of any clock: a monotonic clock may be near zero, and tests use negative ones.
# Finite, because JSON has no infinity.
LONG_AGO = -1e18
SLOW = 0.5  # the speed of a clock that is ahead of the time that it follows
# If a clock is further behind the newest event than this, one of the two is wrong. Following the event would hide it.
MOST_BEHIND = 86400.0


class Clock(Protocol):
    def now(self) -> float:
        """Return the seconds since the epoch, UTC. Never goes back."""
        ...


class SystemClock:
    """The wall clock at the start plus the monotonic time since then.

    So setting the system's clock moves no lease and no deadline of a running service. On Linux, time that the machine
    was suspended counts.
    """

    def __init__(self) -> None:
        self._offset = time.time() - _elapsed()

    def now(self) -> float:
        return _elapsed() + self._offset


class CatchUpClock:
    """Follows a time that may be set back, and never goes back itself.

    It follows a step forward at once. While it is ahead of the time that it follows, it runs at half speed, until that time
    has caught up.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        """`clock` is by default that of the system."""
        # Not a SystemClock, whose method would be one more call in each transaction.
        self._read = _elapsed if clock is None else clock.now
        self._offset = time.time() - _elapsed() if clock is None else 0.0
        self._latest = 0.0
        # How far the time that it follows is ahead of `clock`; when that was set, and what `now` was then at least.
        self._state: tuple[float, float, float] | None = None

    @property
    def here(self) -> float:
        """The time of `clock`."""
        return self._read() + self._offset

    def now(self) -> float:
        here = self._read() + self._offset
        if self._state is None:
            return here
        ahead, since, floor = self._state
        self._latest = max(self._latest, here + ahead, floor + (here - since) * SLOW)
        return self._latest

    def follow(self, ahead: float, floor: float) -> None:
        """Follow a time that is `ahead` seconds ahead of the clock, and start no earlier than `floor`."""
        self._state = (ahead, self.here, floor if self._state is None else max(floor, self.now()))


_elapsed = (
    partial(time.clock_gettime, time.CLOCK_BOOTTIME) if sys.platform == "linux" else time.monotonic
)


def render_instant(at: float) -> str:
    """Return the instant as RFC 3339 in UTC, to the millisecond."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")[:-6] + "Z"


_RFC3339 = re.compile(
    r"\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}:\d{2}(?:\.\d+)?(?P<offset>[Zz]|[+-]\d{2}:\d{2})?", re.ASCII
)
# The years 1 to 9999 in UTC: an instant that was read can be rendered again.
_EARLIEST, _LATEST = -62135596800.0, 253402300799.0


def read_instant(text: str) -> float:
    """Return the seconds since the epoch; ValueError if `text` is not RFC 3339 with an offset."""
    match = _RFC3339.fullmatch(text)
    if match is None:
        raise ValueError("not an instant: use the form 2030-01-31T12:00:00Z")
    if match["offset"] is None:
        raise ValueError("the offset is missing: use the form 2030-01-31T12:00:00Z")
    at = datetime.fromisoformat(text.upper()).timestamp()
    if not _EARLIEST <= at <= _LATEST:
        raise ValueError("an instant must be within the years 1 to 9999 in UTC")
    return at
