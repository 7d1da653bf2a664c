"""Locks that allow one writer per upload. A newer writer cancels the older one.

A client whose connection died without notice reconnects. The old request must not hold the upload until it times out.
"""

from __future__ import annotations

import asyncio
from types import TracebackType

from bide.core.errors import TakenOver


class WriteLock:
    """One writer: `async with WriteLock(held, name)`. `held` has the locks of all writers. The name is an upload id, or an
    upload id and a chunk or part.

    It cancels the current writer and waits until that has flushed. Raises TakenOver in this writer when a newer one takes
    the lock; the caller then stores the bytes that it has received.
    """

    def __init__(self, held: dict[str, WriteLock], name: str) -> None:
        self._held = held
        self._name = name
        self._task: asyncio.Task[object] | None = None
        self._cancelled = False
        self._released = False
        self._release_event: asyncio.Event | None = None  # made when a newer writer waits

    async def __aenter__(self) -> None:
        if asyncio.current_task() is None:
            await asyncio.sleep(0)  # a request runs without a task until its first wait
        self._task = asyncio.current_task()
        older = self._held.get(self._name)
        self._held[self._name] = self
        if older is not None:
            older.cancel()
            try:
                await older.released()
            except BaseException as error:
                await self.__aexit__(type(error), error, error.__traceback__)
                raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._held.get(self._name) is self:
            del self._held[self._name]
        self._released = True
        if self._release_event is not None:
            self._release_event.set()
        if self._cancelled and isinstance(error, asyncio.CancelledError):
            assert self._task is not None
            self._task.uncancel()
            raise TakenOver("a newer request continues this upload") from None

    def cancel(self) -> None:
        assert self._task is not None
        if not self._cancelled:
            self._cancelled = True
            self._task.cancel()

    async def released(self) -> None:
        """Wait for the release even if the waiting task is cancelled: two writers must never overlap."""
        cancelled: asyncio.CancelledError | None = None
        while not self._released:
            self._release_event = self._release_event or asyncio.Event()
            try:
                await self._release_event.wait()
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            raise cancelled
