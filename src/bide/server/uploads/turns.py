"""One writer at a time for one upload, and the newer one wins: whoever writes is cut off when another comes.

A sender whose connection has silently died comes again on a new one; the old request must not hold the upload until its
time is over.
"""

from __future__ import annotations

import asyncio
from types import TracebackType

from bide.core.errors import TakenOver
from bide.server.uploads.lane import Lane


class Turns:
    """By name: an upload, or one of its chunks."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self._turns: dict[str, _Turn] = {}

    def take(self, name: str) -> _Turn:
        """Waits until whoever writes has been cut off and has put away what it had. TakenOver when it is our own turn
        to be cut off; what was received until then is the caller's to keep.
        """
        return _Turn(self._turns, self._lane, name)


class _Turn:
    def __init__(self, turns: dict[str, _Turn], lane: Lane, name: str) -> None:
        self._turns = turns
        self._lane = lane
        self._name = name
        self._task: asyncio.Task[object] | None = None
        self._cut = False
        self._over = False
        self._next: asyncio.Event | None = None  # somebody waits for the end

    async def __aenter__(self) -> None:
        await self._lane.turn()  # and a request that has not waited yet is in no task
        self._task = asyncio.current_task()
        older = self._turns.get(self._name)
        self._turns[self._name] = self
        if older is not None:
            older.cut_off()
            try:
                await older.ended()
            except BaseException as error:
                self._end(error)
                raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(error)

    def cut_off(self) -> None:
        assert self._task is not None
        if not self._cut:
            self._cut = True
            self._task.cancel()

    async def ended(self) -> None:
        """To the end, even when who waits is cut off itself: two must never write at once."""
        cancelled: asyncio.CancelledError | None = None
        while not self._over:
            self._next = self._next or asyncio.Event()
            try:
                await self._next.wait()
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            raise cancelled

    def _end(self, error: BaseException | None) -> None:
        if self._turns.get(self._name) is self:
            del self._turns[self._name]
        self._over = True
        if self._next is not None:
            self._next.set()
        if self._cut and isinstance(error, asyncio.CancelledError):
            assert self._task is not None
            self._task.uncancel()
            raise TakenOver("another request goes on with this upload") from None
