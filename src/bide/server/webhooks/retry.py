"""When a failed delivery is tried again, and when a host is not tried at all.

The decisions are pure functions of outcome, time and randomness.
"""

from __future__ import annotations

import random

# Seconds from one attempt to the next: 11 attempts in about 24 hours.
DELAYS = (5.0, 30.0, 120.0, 600.0, 1800.0, 3600.0, 7200.0, 14400.0, 28800.0, 28800.0)
JITTER = 0.2  # a delay is up to this part shorter or longer
MAX_RETRY_AFTER = 86400.0
BREAKER_FAILURES = 5  # consecutive failures of a host that open its breaker
BREAKER_PAUSE = (1.0, 60.0)  # seconds until the next probe: the first, and the longest


def next_attempt(
    attempts: int, now: float, retry_after: float | None, rng: random.Random
) -> float | None:
    """When to try again after this many attempts; None: not again."""
    if attempts > len(DELAYS):
        return None
    delay = DELAYS[attempts - 1] * rng.uniform(1 - JITTER, 1 + JITTER)
    if retry_after is not None:
        delay = max(delay, min(retry_after, MAX_RETRY_AFTER))
    return now + delay


class HostBreaker:
    """Whether a host may be tried. After BREAKER_FAILURES consecutive failures it admits one attempt at a time, after a
    pause that doubles.
    """

    def __init__(self) -> None:
        self.failures = 0
        self.until = 0.0  # admits one attempt after that
        self.failed_at = 0.0  # the last time
        self._pauses = 0

    @property
    def open(self) -> bool:
        return self.failures >= BREAKER_FAILURES

    def admits(self, now: float, active: int) -> bool:
        return not self.open or (now >= self.until and active == 0)

    def succeeded(self) -> None:
        self.failures, self.until, self._pauses = 0, 0.0, 0

    def failed(self, now: float, retry_after: float | None = None) -> None:
        self.failures += 1
        self.failed_at = now
        if self.open and now >= self.until:  # otherwise the attempt began before the breaker opened
            first, longest = BREAKER_PAUSE
            pause = min(longest, first * 2.0 ** min(self._pauses, 16))
            self._pauses += 1
            self.until = now + max(pause, min(retry_after or 0.0, longest))
