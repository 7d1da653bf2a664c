"""Runs one request: without a task until it waits, and with one write for the response.

Most requests are polls, which are answered from the store without waiting. uvicorn uses a task, an extra loop iteration
and two writes per request, which cost more than the handler.

The responses of one loop iteration are written together at its end: a write wakes the client on another core, and a
client that is woken once reads many responses.

Code that runs before the first wait is in no task, so it must not use `asyncio.timeout` or a TaskGroup.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator, Iterable
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle


class WriteBuffer:
    """Complete responses that are written at the end of the loop iteration."""

    __slots__ = ("_loop", "_waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: list[tuple[asyncio.WriteTransport, bytes]] = []

    def put(self, transport: asyncio.WriteTransport, data: bytes) -> None:
        if not self._waiting:
            self._loop.call_soon(self.flush)
        self._waiting.append((transport, data))

    def flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        for transport, data in waiting:
            transport.write(data)


class RequestCycle(RequestResponseCycle):
    """uvicorn's cycle, with a shortcut for complete responses."""

    write_buffer: WriteBuffer
    hang_up: Callable[[], None]
    streamed = False  # the handler reads the body as it arrives

    async def run_asgi(self, app: Any) -> None:
        try:
            await super().run_asgi(app)
        finally:
            # Break the reference cycle so that the request is freed immediately: the garbage collector would delay polls.
            self.scope.clear()  # type: ignore[attr-defined]

    async def send(self, message: Any) -> None:
        self.write_buffer.flush()  # keep the order of responses
        await super().send(message)

    def reply(self, status: int, headers: Iterable[tuple[bytes, bytes]], body: bytes) -> bool:
        """Sends a complete response; returns False if it cannot. `headers` are lower case, with the right content-length and
        without connection headers.
        """
        if self.flow.write_paused or self.disconnected or self.response_started:
            return False
        if self.streamed and self.more_body:
            self.keep_alive = False  # do not read the rest of the body
        lines = [STATUS_LINE.get(status) or b"HTTP/1.1 %d \r\n" % status]
        for name, value in headers:
            if b"\n" in value or b"\r" in value:
                raise ValueError(f"header {name!r} contains a line break")
            lines += (name, b": ", value, b"\r\n")
        lines += (b"\r\n" if self.keep_alive else b"connection: close\r\n\r\n", body)
        self.response_started = self.response_complete = True
        self.write_buffer.put(self.transport, b"".join(lines))
        self.message_event.set()
        if not self.keep_alive:
            self.write_buffer.flush()
            self.hang_up()
        self.on_response()
        return True


def begin(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, None]) -> asyncio.Task[None] | None:
    """Runs the coroutine until its first wait; returns the task that continues it, or None if it has ended."""
    try:
        waiting = work.send(None)
    except StopIteration:
        return None
    return loop.create_task(_continue(work, waiting))


async def _continue(work: Coroutine[Any, Any, None], waiting: Any) -> None:
    await _Continuation(work, waiting)


class _Continuation:
    """Continues a coroutine that has started and waits for `waiting`."""

    def __init__(self, work: Coroutine[Any, Any, None], waiting: Any) -> None:
        self._work = work
        self._waiting = waiting

    def __await__(self) -> Generator[Any, Any, None]:
        work, waiting = self._work, self._waiting
        try:
            while True:
                try:
                    value = yield waiting
                except BaseException as error:
                    waiting = work.throw(error)
                else:
                    waiting = work.send(value)
        except StopIteration:
            return
