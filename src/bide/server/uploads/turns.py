"""One writer at a time for one upload, and the newer one wins: whoever writes is cut off when another comes.

A sender whose connection has silently died comes again on a new one; the old request must not hold the upload until its
time is over.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bide.core.errors import TakenOver


class _Turn:
    def __init__(self, task: asyncio.Task[object]) -> None:
        self._task = task
        self.cut = False
        self.over = asyncio.Event()

    def cut_off(self) -> None:
        if not self.cut:
            self.cut = True
            self._task.cancel()


class Turns:
    """By name: an upload, or one of its chunks."""

    def __init__(self) -> None:
        self._turns: dict[str, _Turn] = {}

    @asynccontextmanager
    async def take(self, name: str) -> AsyncIterator[None]:
        """Waits until whoever writes has been cut off and has put away what it had. TakenOver when it is our own turn
        to be cut off; what was received until then is the caller's to keep.
        """
        if asyncio.current_task() is None:
            await asyncio.sleep(0)  # a request that has not waited yet is in no task
        task = asyncio.current_task()
        assert task is not None
        turn, older = _Turn(task), self._turns.get(name)
        self._turns[name] = turn
        try:
            try:
                if older is not None:
                    older.cut_off()
                    await _ended(older)
                yield
            except asyncio.CancelledError:
                if not turn.cut:
                    raise
                task.uncancel()
                raise TakenOver("another request goes on with this upload") from None
        finally:
            if self._turns.get(name) is turn:
                del self._turns[name]
            turn.over.set()


async def _ended(older: _Turn) -> None:
    """To the end, even when this one is cut off itself: two must never write at once."""
    cancelled: asyncio.CancelledError | None = None
    while not older.over.is_set():
        try:
            await older.over.wait()
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
