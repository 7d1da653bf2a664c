"""Limits how long callers wait for a database."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from bide.server.store import StoreUnavailable

CHECK_EVERY = 0.5  # seconds between two checks of the waiting futures


class Timeouts:
    """Fails futures that have waited too long, so that no caller hangs on a database that accepts connections but does not
    answer. The operation itself is not cancelled and may still succeed. One periodic check serves all futures, instead of
    one timer per future.
    """

    def __init__(self, seconds: float, reason: str) -> None:
        self._seconds = seconds
        self._reason = reason
        self._waiting: deque[tuple[float, asyncio.Future[Any]]] = deque()

    def watch(self, future: asyncio.Future[Any]) -> None:
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_later(min(CHECK_EVERY, self._seconds), self._check)
        self._waiting.append((loop.time() + self._seconds, future))

    def _check(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        waiting = self._waiting
        while waiting and (waiting[0][1].done() or waiting[0][0] <= now):
            _, future = waiting.popleft()
            if not future.done():
                future.set_exception(StoreUnavailable(self._reason))
        if waiting:
            loop.call_later(min(CHECK_EVERY, self._seconds), self._check)
