"""The service as an ASGI application, alone or mounted in another application."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import quote

from bide.core.errors import Unavailable
from bide.core.wire.http import PROBLEM_TYPE, render_problem
from bide.service.assembly import Service

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
SHUTDOWN_TIMEOUT = 5.0  # seconds that a stop waits for responses


class AsgiService:
    """Starts with the lifespan of the server. A mounted application gets no lifespan events: pass `lifespan` to the outer
    application, otherwise the service starts with the first request.
    """

    def __init__(self, build: Callable[[], Service]) -> None:
        self._build = build
        self._starting = asyncio.Lock()
        self.service: Service | None = None
        self._requests = 0  # without a response yet
        self._stopping = False  # or stopped
        self._answered = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
            return
        if self._stopping:
            await _reject(scope, receive, send)
            return
        service = self.service or await self._start()
        self._requests += 1
        try:
            await service.http(scope, receive, send)
        finally:
            self._requests -= 1
            if not self._requests:
                self._answered.set()

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
                self.service, self._stopping = service, False
        return self.service

    async def _stop(self) -> None:
        """Drains, rejects new requests, waits for the current ones, and closes."""
        service = self.service
        if service is None:
            return
        await service.drain()
        self._stopping = True
        self._answered.clear()
        if self._requests:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._answered.wait(), SHUTDOWN_TIMEOUT)
        self.service = None
        await service.close()

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


async def _reject(scope: Scope, receive: Receive, send: Send) -> None:
    """Rejects requests after the stop: the outer application may continue to run."""
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 1012})
        return
    problem = Unavailable("the service is stopping")
    body = render_problem(
        problem, quote(scope["path"]), os.urandom(16).hex(), quote(scope.get("root_path", ""))
    )
    headers = [
        (b"content-type", PROBLEM_TYPE.encode()),
        (b"content-length", b"%d" % len(body)),
        (b"retry-after", b"5"),
    ]
    await send({"type": "http.response.start", "status": problem.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
