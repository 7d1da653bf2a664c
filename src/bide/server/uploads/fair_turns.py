"""Spreads the work of uploads over event loop iterations, so that other requests are served in between.

One commit completes many uploads, and a thousand clients may send at the same time. If all of them continued in the same
iteration, a poll would wait for all of them.
"""

from __future__ import annotations

import asyncio
from collections import deque


class FairTurns:
    """Serves one event loop."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def wait(self) -> None:
        """Waits for a turn. Callers continue in order of their calls, one per loop iteration."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        if not self._waiting:
            loop.call_soon(self._next)
        self._waiting.append(future)
        await future

    def _next(self) -> None:
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():  # not cancelled
                future.set_result(None)
                break
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._next)
