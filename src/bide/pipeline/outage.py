"""Somebody who does not answer, and everybody who waits for that: one knocks, the others stand behind.

Throttling is no outage: the budget waits for that, however long it takes.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from bide.client.apis import Throttled
from bide.client.http.transport import transient
from bide.client.timing import Timing
from bide.core.errors import ServiceError, ServiceUnreachable
from bide.core.retry import backoff

log = logging.getLogger("bide.pipeline")
T = TypeVar("T")
BASE, CAP = 1.0, 60.0  # seconds between two knocks
FIRST = 3  # failures in a row after which all wait for one


class Outage:
    """One host's. `patience` is how many seconds without any answer are borne."""

    def __init__(self, host: str, patience: float, timing: Timing, rng: random.Random) -> None:
        self._host = host
        self._patience = patience
        self._timing = timing
        self._rng = rng
        self._failures = 0  # in a row, of whomever
        self._since = 0.0  # when the first of them was
        self._knocking = asyncio.Lock()

    async def persist(self, operation: Callable[[], Awaitable[T]]) -> T:
        """What it returns, once it is answered; its last error when patience is over, or no waiting would mend it."""
        while True:
            try:
                if self._failures < FIRST:
                    return self._answered(await operation())
                async with self._knocking:
                    if self._failures < FIRST:  # whoever was here before has found that they are back
                        continue
                    await self._timing.sleep(self._pause())
                    return self._answered(await operation())
            except Throttled:
                self._failures = 0
            except (ServiceError, ServiceUnreachable) as error:
                if not transient(error):
                    self._failures = 0
                    raise
                self._failed(error)
                if self._timing.now() - self._since >= self._patience:
                    raise
                if self._failures < FIRST:
                    await self._timing.sleep(self._pause())

    def _answered(self, what: T) -> T:
        if self._failures >= FIRST:
            log.warning("%s answers again", self._host)
        self._failures = 0
        return what

    def _failed(self, error: Exception) -> None:
        if not self._failures:
            self._since = self._timing.now()
        self._failures += 1
        if self._failures == FIRST:
            log.warning("%s; trying again until %s answers", error, self._host)

    def _pause(self) -> float:
        return max(BASE / 2, backoff(min(self._failures, 10), BASE, CAP, self._rng))
