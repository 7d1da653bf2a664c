"""Lets what is done for uploads through one piece at a time, with a look at what else has arrived in between.

One commit brings the answers to many uploads, and a thousand senders may come at once. Were all of it done in the same
round of the loop, whoever asks for a status would wait for all of it.
"""

from __future__ import annotations

import asyncio
from collections import deque


class Lane:
    """Of one loop."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def turn(self) -> None:
        """In the order of asking, one a round."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        if not self._waiting:
            loop.call_soon(self._next)
        self._waiting.append(future)
        await future

    def _next(self) -> None:
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():  # whoever waited has left
                future.set_result(None)
                break
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._next)
