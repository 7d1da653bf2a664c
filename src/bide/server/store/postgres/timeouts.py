"""Answers those who have waited for too long, so that nobody hangs on a database that is there and does not answer.

What they asked for may still be done: they are told that it is not known.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from bide.server.store import StoreUnavailable

LOOK_EVERY = 0.5


class Timeouts:
    """One look every moment for all that wait, instead of a timer each."""

    def __init__(self, seconds: float, reason: str) -> None:
        self._seconds = seconds
        self._reason = reason
        self._waiting: deque[tuple[float, asyncio.Future[Any]]] = deque()

    def watch(self, future: asyncio.Future[Any]) -> None:
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_later(min(LOOK_EVERY, self._seconds), self._look)
        self._waiting.append((loop.time() + self._seconds, future))

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        waiting = self._waiting
        while waiting and (waiting[0][1].done() or waiting[0][0] <= now):
            _, future = waiting.popleft()
            if not future.done():
                future.set_exception(StoreUnavailable(self._reason))
        if waiting:
            loop.call_later(min(LOOK_EVERY, self._seconds), self._look)
