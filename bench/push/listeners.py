"""Many event streams in one process, without a client library: only the time of each event matters."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import cast

from bench.service.servers import HOST

OPENING = 200  # connections that are opened at once
TIMEOUT = 60.0

OnEvent = Callable[[int, bytes], None]  # called with the number of the stream and the type of the event


class EventListener(asyncio.Protocol):
    """A stream of Server-Sent Events. Calls `on_event` for each `event` field."""

    def __init__(self, number: int, request: bytes, on_event: OnEvent) -> None:
        self._number = number
        self._request = request
        self._on_event = on_event
        self._line = b""
        self._answered = False
        self.opened = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        if not self._answered:
            self._answered = True
            if not data.startswith(b"HTTP/1.1 200 "):
                self.opened.set_exception(RuntimeError(f"the stream was refused: {data[:500]!r}"))
                self.transport.close()
                return
        *lines, self._line = (self._line + data).split(b"\n")
        for line in lines:
            if line.startswith(b"event: "):
                if not self.opened.done():
                    self.opened.set_result(None)
                self._on_event(self._number, line[7:])

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.opened.done():
            self.opened.set_exception(RuntimeError(f"the stream was closed: {exc}"))


def allow_files(count: int) -> None:
    """Raise the limit of open files of this process, and of the servers that it starts."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < count:
        limit = count if hard == resource.RLIM_INFINITY else min(count, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


@asynccontextmanager
async def listening(
    port: int, paths: Sequence[str], on_event: OnEvent
) -> AsyncIterator[Sequence[EventListener]]:
    """Open one stream per path. They have received their first event, a snapshot, when the block begins."""
    loop = asyncio.get_running_loop()
    listeners: list[EventListener] = []
    try:
        for start in range(0, len(paths), OPENING):
            opening = []
            for number, path in enumerate(paths[start : start + OPENING], start):
                head = f"GET {path} HTTP/1.1\r\nHost: {HOST}:{port}\r\nAccept: text/event-stream\r\n\r\n"
                listener = EventListener(number, head.encode(), on_event)
                opening.append(listener)
                await loop.create_connection(lambda made=listener: made, HOST, port)  # type: ignore[misc]
            listeners += opening
            await asyncio.wait_for(asyncio.gather(*(one.opened for one in opening)), TIMEOUT)
        yield listeners
    finally:
        for listener in listeners:
            listener.transport.abort()
        await asyncio.sleep(0)
