"""One request on a connection and its answer: no task as long as it waits for nothing, and one write.

Most requests are polls: they are read from the store and answered without waiting for anything. uvicorn gives each a
task, an extra round of the loop and two writes; that costs more than what is done for it.

Answers of one round of the loop are written together at its end: a write wakes a reader on another core, and a reader
that is woken once takes many answers.

Code that runs here before its first wait is in no task: it may not use `asyncio.timeout`, nor a TaskGroup.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator, Iterable
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle


class Outbox:
    """Whole answers that are about to be written."""

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


class Cycle(RequestResponseCycle):
    """uvicorn's, with a shorter way for an answer that is all there."""

    outbox: Outbox
    hang_up: Callable[[], None]
    streamed = False  # its body is put away as it arrives

    async def run_asgi(self, app: Any) -> None:
        try:
            await super().run_asgi(app)
        finally:
            # It names us: what nothing else names is freed now, not when the collector comes by, and polls wait for that.
            self.scope.clear()  # type: ignore[attr-defined]

    async def send(self, message: Any) -> None:
        self.outbox.flush()  # what was answered before comes before
        await super().send(message)

    def reply(self, status: int, headers: Iterable[tuple[bytes, bytes]], body: bytes) -> bool:
        """Headers are taken as they are: lower case, with the right content-length, and nothing of the connection."""
        if self.flow.write_paused or self.disconnected or self.response_started:
            return False
        if self.streamed and self.more_body:
            self.keep_alive = False  # nobody wants the rest, however large it is
        lines = [STATUS_LINE.get(status) or b"HTTP/1.1 %d \r\n" % status]
        for name, value in headers:
            if b"\n" in value or b"\r" in value:
                raise ValueError(f"header {name!r} has a line break")
            lines += (name, b": ", value, b"\r\n")
        lines += (b"\r\n" if self.keep_alive else b"connection: close\r\n\r\n", body)
        self.response_started = self.response_complete = True
        self.outbox.put(self.transport, b"".join(lines))
        self.message_event.set()
        if not self.keep_alive:
            self.outbox.flush()
            self.hang_up()
        self.on_response()
        return True


def begin(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, None]) -> asyncio.Task[None] | None:
    """Runs until the first wait; None when there was none, else the task that does the rest."""
    try:
        waiting = work.send(None)
    except StopIteration:
        return None
    return loop.create_task(_rest(work, waiting))


async def _rest(work: Coroutine[Any, Any, None], waiting: Any) -> None:
    await _Rest(work, waiting)


class _Rest:
    """A coroutine that was begun elsewhere and waits for `waiting`."""

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
