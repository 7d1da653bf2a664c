"""Request bodies of any size, which are generated while they are sent, and their time limit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Protocol

STALL = 60.0  # seconds without a byte that the connection accepts


class Content(Protocol):
    """Each call of `chunks` starts at the beginning."""

    @property
    def size(self) -> int: ...

    def chunks(self) -> AsyncIterator[bytes]: ...


class Flow:
    """One request with a Content. `error` is an error of the Content itself, not of the connection."""

    def __init__(self, content: Content, scope: asyncio.Timeout) -> None:
        self.content = content
        self.error: Exception | None = None
        self._scope: asyncio.Timeout | None = scope
        self._loop = asyncio.get_running_loop()

    def close(self) -> None:
        """The request has ended; its generator of chunks may be closed later."""
        self._scope = None

    def _limit(self, seconds: float | None) -> None:
        if self._scope is not None and not self._scope.expired():
            self._scope.reschedule(None if seconds is None else self._loop.time() + seconds)

    async def chunks(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self.content.chunks():
                self._limit(STALL)
                yield chunk
                # The connection asks for the next chunk after it has accepted this one.
        except Exception as error:
            self.error = error
            raise
        finally:
            self._limit(None)  # the answer has a time limit of its own
