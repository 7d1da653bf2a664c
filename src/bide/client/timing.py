"""The client's clock and timers. With a higher `speed`, a simulation of hours takes seconds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable


class Timing:
    def __init__(self, speed: float = 1.0) -> None:
        self.speed = speed
        self.start = time.time()

    def now(self) -> float:
        """Monotonic seconds."""
        return time.monotonic() * self.speed

    def wall(self) -> float:
        """Seconds since the epoch."""
        if self.speed == 1.0:
            return time.time()
        return self.start + (time.time() - self.start) * self.speed

    def later(self, at: float, what: Callable[[], object]) -> asyncio.TimerHandle:
        """Call `what` at a time of `now`."""
        wait = max(0.0, at / self.speed - time.monotonic())
        return asyncio.get_running_loop().call_later(min(wait, 86400.0), what)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds) / self.speed)
