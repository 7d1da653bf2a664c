"""The service as an ASGI application, alone or mounted in another application.

Only one process can run the service of a data folder. If a server starts several workers, the first one runs it, and the
others answer 503 until it ends; then one of them takes over. If a worker failed instead, most servers would stop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Callable
from urllib.parse import quote

from bide.core.errors import Unavailable
from bide.server.http.request import Receive, Scope, Send, problem_response
from bide.server.http.websocket import deny
from bide.server.intake import new_trace_id
from bide.service.assembly import Service
from bide.service.data_folder import FolderInUse

log = logging.getLogger("bide")
SHUTDOWN_TIMEOUT = 5.0  # seconds that a stop waits for responses
RETRY_INTERVAL = 1.0  # seconds after which a waiting worker tries to lock the data folder again


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
        self._taking_over: asyncio.Task[None] | None = None
        self.waiting: str | None = None  # why this worker waits for another one that runs the service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
            return
        service = None if self._stopping else self.service or await self._start()
        if service is None:
            await _reject(self.waiting or "the service is stopping", scope, receive, send)
            return
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

    async def _start(self) -> Service | None:
        """Return the service; None if another worker runs it."""
        async with self._starting:
            if self.service is None and self._taking_over is None:
                service = self._build()
                try:
                    await service.start()
                except FolderInUse as error:
                    if not error.sibling:
                        raise
                    self._wait(service, error)
                else:
                    self.service = service
                self._stopping = False
        return self.service

    def _wait(self, service: Service, error: FolderInUse) -> None:
        self.waiting = (
            f"Process {error.holder}, another worker of this server, runs the service of the data folder {error.path}, "
            f"and only one process can. Worker {os.getpid()} answers 503 until that process ends. Start the server with "
            "one worker, or run `bide serve` as its own process and use bide.Client in the application."
        )
        log.error("%s", self.waiting)
        self._taking_over = asyncio.create_task(self._take_over(service))

    async def _take_over(self, service: Service) -> None:
        while True:
            await asyncio.sleep(RETRY_INTERVAL)
            try:
                await service.start()
            except FolderInUse:
                continue
            except Exception:
                log.exception("worker %d cannot take over the service; it tries again", os.getpid())
                service = self._build()
                continue
            break
        self.service, self.waiting, self._taking_over = service, None, None
        log.warning("worker %d now runs the service of the data folder", os.getpid())

    async def _stop(self) -> None:
        """Drains, rejects new requests, waits for the current ones, and closes."""
        taking_over = self._taking_over
        if taking_over is not None:
            taking_over.cancel()
            await asyncio.wait([taking_over])
            self._taking_over = self.waiting = None
            self._stopping = True
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


async def _reject(reason: str, scope: Scope, receive: Receive, send: Send) -> None:
    """Reject a request without a service: the outer application may run before its start and after its stop."""
    base = quote(scope.get("root_path", ""))
    response = problem_response(Unavailable(reason), quote(scope["path"]), new_trace_id(), base)
    if scope["type"] == "websocket":
        await receive()
        await deny(response, scope, send)
        return
    start = {"type": "http.response.start", "status": response.status, "headers": response.headers}
    await send(start)
    await send({"type": "http.response.body", "body": response.body})
