"""The service as an ASGI application: at the root of a server, or mounted in another application."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any

from bide.service.build import Service

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class AsgiService:
    """Starts with the server's lifespan. Mounted applications get none: pass `lifespan` to the outer application,
    otherwise the service starts with the first request.
    """

    def __init__(self, build: Callable[[], Service]) -> None:
        self._build = build
        self._starting = asyncio.Lock()
        self.service: Service | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
            return
        service = self.service or await self._start()
        await service.http(scope, receive, send)

    @contextlib.asynccontextmanager
    async def lifespan(self, app: object = None) -> AsyncIterator[None]:
        """For the outer application: `FastAPI(lifespan=jobs.lifespan)`."""
        await self._start()
        try:
            yield
        finally:
            await self._stop()

    async def _start(self) -> Service:
        async with self._starting:
            if self.service is None:
                service = self._build()
                await service.start()
                self.service = service
        return self.service

    async def _stop(self) -> None:
        if self.service is not None:
            service, self.service = self.service, None
            await service.stop()

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            await self._start()
        except Exception as error:
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self._stop()
        await send({"type": "lifespan.shutdown.complete"})
