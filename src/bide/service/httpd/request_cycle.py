"""One request and its response: the `receive` and `send` of ASGI.

1. A request runs without a task until it waits: most requests are polls, which are answered from memory.
2. `http.response.start` is written together with the first part of the body. The complete responses of one loop
   iteration are written together at its end: each write wakes a client on another core, and a client that is woken once
   reads many responses.
3. A request that has ended is in no reference cycle, so it is freed immediately: the garbage collector would delay polls.

Code that runs before the first wait is in no task, so it must not use `asyncio.timeout` or a TaskGroup.
"""

from __future__ import annotations

import asyncio
import http
import logging
import re
from collections.abc import Coroutine, MutableMapping
from typing import TYPE_CHECKING, Any

from bide.server.http.continuation import finish
from bide.server.http.request import STREAM

if TYPE_CHECKING:
    from bide.service.httpd.connection import HttpConnection

log = logging.getLogger("bide.http")

HIGH_WATER = 64 * 1024  # bytes of a body in memory above which the connection is not read
OVERHEAD = 64  # bytes that a part of a body counts in addition: tiny chunks cost more than their bytes
SMALL_CHUNK = 1024  # bytes of a part of a body below which it is joined with the one before
_STATUS_LINES = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in http.HTTPStatus
}
_NO_CONTENT = (204, 304)
_WRONG_LENGTH = "the body of the response does not have the length in Content-Length"
_HEADER_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_checked_names: set[bytes] = set()  # header names that are valid; the first MAX_CHECKED of them
MAX_CHECKED = 1000

Message = MutableMapping[str, Any]


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
            if transport.is_closing():
                continue  # uvloop raises an exception if a closed transport is written
            try:
                transport.write(data)
            except Exception:  # the other clients still get their responses
                log.exception("a response was not sent")
                transport.abort()


class RequestCycle:
    """A request that the connection receives, and the response that the application sends."""

    __slots__ = (
        "_bodiless",
        "_chunked",
        "_chunks",
        "_connection",
        "_event",
        "_expects_continue",
        "_read",
        "_remaining",
        "_start",
        "_stream",
        "body_complete",
        "buffered",
        "disconnected",
        "keep_alive",
        "response_complete",
        "response_started",
        "scope",
    )

    def __init__(
        self,
        connection: HttpConnection,
        scope: dict[str, Any],
        keep_alive: bool,
        expects_continue: bool,
    ) -> None:
        self.scope = scope
        self.keep_alive = keep_alive
        self.disconnected = False
        self._connection = connection
        self._event: asyncio.Event | None = None  # set when there is something to receive
        # The request.
        self.body_complete = False
        self.buffered = 0  # bytes of the body that the application has not received, with OVERHEAD
        self._chunks: list[bytes | bytearray] = []  # the first is bytes; then small ones are joined
        self._read = False  # the application has received the whole body
        self._expects_continue = expects_continue
        self._stream: dict[str, float] = scope["extensions"][STREAM]
        # The response.
        self.response_started = self.response_complete = False
        self._start: Message | None = None  # until the first part of the body
        self._chunked = self._bodiless = False
        self._remaining: int | None = None  # bytes until Content-Length; None: not declared

    @property
    def min_rate(self) -> float:
        """The minimal rate of a body that the application reads as it arrives; 0 if it waits for the whole body."""
        return self._stream.get("min_rate", 0.0)

    @property
    def waits(self) -> bool:
        """Whether the application waits for the client."""
        return self._event is not None and not self._event.is_set()

    async def run(self, app: Any) -> None:
        try:
            await app(self.scope, self.receive, self.send)
        except Exception:
            log.exception("%s %s failed", self.scope["method"], self.scope["path"])
            self._abandon()
        except BaseException:
            self._abandon()
            raise
        else:
            if not self.response_complete and not self.disconnected:
                log.error(
                    "%s %s ended without a complete response", self.scope["method"], self.scope["path"]
                )
                self._abandon()

    def _abandon(self) -> None:
        """End a response that the application has not completed."""
        if self.disconnected or self.response_complete:
            return
        self._connection.fail(self)

    # --- from the connection

    def add_body(self, data: bytes) -> None:
        if not self.response_complete:  # otherwise the rest of the body is discarded
            chunks = self._chunks
            self.buffered += len(data) + OVERHEAD
            if len(data) >= SMALL_CHUNK or not chunks:
                chunks.append(data)
            elif isinstance(chunks[-1], bytearray):
                chunks[-1] += data
            else:
                chunks.append(bytearray(data))

    def disconnect(self) -> None:
        self.disconnected = True
        self.wake()

    def wake(self) -> None:
        """Continue an application that waits for the client."""
        if self._event is not None:
            self._event.set()

    # --- from the application

    async def receive(self) -> Message:
        connection = self._connection
        if self._expects_continue:
            self._expects_continue = False
            if not self._chunks and not self.disconnected and not self.response_started:
                connection.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if self.min_rate:
            connection.start_stream(self)
        while not (self.disconnected or self.response_complete):
            if self._chunks or (self.body_complete and not self._read):
                chunks, self._chunks = self._chunks, []
                self.buffered = 0
                self._read = self.body_complete
                connection.resume_reading()
                body = chunks[0] if len(chunks) == 1 else b"".join(chunks)
                return {"type": "http.request", "body": body, "more_body": not self.body_complete}
            if self._event is None:
                self._event = asyncio.Event()
            self._event.clear()
            if connection.client_ended:
                connection.abort()
            connection.resume_reading()
            await self._event.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        kind = message["type"]
        if kind == "http.response.start":
            if self._start is not None or self.response_started:
                raise RuntimeError("the response has already started")
            self._start = message
            return
        if kind != "http.response.body":
            raise RuntimeError(f"ASGI message {kind!r} is not supported")
        if self.response_complete or (self._start is None and not self.response_started):
            raise RuntimeError(
                "a part of the body was sent before the start or after the end of the response"
            )
        if self._connection.write_paused and not self.disconnected:
            await self._connection.drain()
        if self.disconnected:
            return
        body, more = message.get("body", b""), message.get("more_body", False)
        start = self._start
        if start is not None and not more:
            self._send_complete(start["status"], start.get("headers", ()), body)
        else:
            if start is not None:
                self._connection.write(self._head(start["status"], start.get("headers", ())))
                self.response_started, self._start = True, None
            self._send_part(body, more)
        if not more:
            self.response_complete = True
            self._chunks.clear()
            self.buffered = 0
            self.wake()
            self._connection.on_response_complete(self)

    def _send_complete(self, status: int, headers: Any, body: bytes) -> None:
        if not self.body_complete and self.min_rate:
            self.keep_alive = False  # do not read the rest of the body
        connection = self._connection
        lines = [_STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status, connection.date]
        has_length = bodiless = status in _NO_CONTENT or self.scope["method"] == "HEAD"
        if bodiless:
            body = b""
        for name, value in headers:
            check_header(name, value)
            if name == b"content-length":
                has_length = True
                if not bodiless and int(value) != len(body):
                    raise RuntimeError(_WRONG_LENGTH)
            lines += (name, b": ", value, b"\r\n")
        if not has_length:
            lines.append(b"content-length: %d\r\n" % len(body))
        lines += (b"\r\n" if self.keep_alive else b"connection: close\r\n\r\n", body)
        connection.write_later(b"".join(lines))
        self.response_started, self._start = True, None

    def _head(self, status: int, headers: Any) -> bytes:
        """Return the head of a response whose body is sent in parts."""
        if not self.body_complete and self.min_rate:
            self.keep_alive = False
        lines = [_STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status, self._connection.date]
        for name, value in headers:
            check_header(name, value)
            if name == b"content-length":
                self._remaining = int(value)
            lines += (name, b": ", value, b"\r\n")
        if self.scope["method"] == "HEAD" or status in _NO_CONTENT:
            self._remaining = None
            self._bodiless = True
        elif self._remaining is None:
            if self.scope["http_version"] == "1.0":
                self.keep_alive = False  # the end of the connection is the end of the body
            else:
                self._chunked = True
                lines.append(b"transfer-encoding: chunked\r\n")
        lines.append(b"\r\n" if self.keep_alive else b"connection: close\r\n\r\n")
        return b"".join(lines)

    def _send_part(self, body: bytes, more: bool) -> None:
        connection = self._connection
        if self._remaining is not None:
            self._remaining -= len(body)
            if self._remaining < 0 or (self._remaining and not more):
                raise RuntimeError(_WRONG_LENGTH)
            if body:
                connection.write(body)
        elif self._chunked:
            parts = [b"%x\r\n" % len(body), body, b"\r\n"] if body else []
            if not more:
                parts.append(b"0\r\n\r\n")
            if parts:
                connection.write(b"".join(parts))
        elif body and not self._bodiless:
            connection.write(body)


def check_header(name: bytes, value: bytes) -> None:
    if name not in _checked_names:
        if not _HEADER_NAME.fullmatch(name):
            raise RuntimeError(f"{name!r} is not the name of a header")
        if len(_checked_names) < MAX_CHECKED:
            _checked_names.add(name)
    if b"\n" in value or b"\r" in value or b"\0" in value:
        raise RuntimeError(f"header {name!r} contains a line break or NUL")


def begin(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, None]) -> asyncio.Task[None] | None:
    """Run the coroutine until its first wait; return the task that continues it, or None if it has ended."""
    try:
        waiting = work.send(None)
    except StopIteration:
        return None
    return loop.create_task(finish(work, waiting))
