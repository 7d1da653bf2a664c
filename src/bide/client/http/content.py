"""A body that is made as it is sent: what a request needs to know of it, and the watch over its flow."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Protocol

STALL = 60.0  # seconds that a connection may take no byte


class Content(Protocol):
    """`chunks` begins anew each time that it is asked for."""

    @property
    def size(self) -> int: ...

    def chunks(self) -> AsyncIterator[bytes]: ...


class Flow:
    """One sending of a Content. `error` is what kept it from being made: that is nobody's fault at the other end."""

    def __init__(self, content: Content, scope: asyncio.Timeout) -> None:
        self.content = content
        self.error: Exception | None = None
        self._scope: asyncio.Timeout | None = scope
        self._loop = asyncio.get_running_loop()

    def close(self) -> None:
        """Whoever has sent it has gone; its chunks may be let go of later than that."""
        self._scope = None

    def _limit(self, seconds: float | None) -> None:
        if self._scope is not None and not self._scope.expired():
            self._scope.reschedule(None if seconds is None else self._loop.time() + seconds)

    async def chunks(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self.content.chunks():
                self._limit(STALL)
                yield chunk
                # Asked for the next one, the connection has taken this one.
        except Exception as error:
            self.error = error
            raise
        finally:
            self._limit(None)  # the wait for the answer has a limit of its own
