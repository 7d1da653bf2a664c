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
        self._scope = scope
        self._loop = asyncio.get_running_loop()

    async def chunks(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self.content.chunks():
                self._scope.reschedule(self._loop.time() + STALL)
                yield chunk
                # Asked for the next one, the connection has taken this one.
        except Exception as error:
            self.error = error
            raise
        finally:
            if not self._scope.expired():
                self._scope.reschedule(None)  # the wait for the answer has a limit of its own
