"""An HTTP connection with limits on time, bytes and pipelined requests.

uvicorn waits forever for the rest of a request, and accepts heads of any size and any number of pipelined requests. Here

1. a connection has a deadline whenever the client has something to finish: its first request, a head, a body, or reading
   the response. The deadline of a streamed body moves with the bytes received, at the minimal rate;
2. the head of a request is bounded, and so are the bytes of all requests without a response together;
3. a connection ends at the first bytes that are not a request: with a problem document, after the earlier responses;
4. only HTTP/1.1 is supported: `Upgrade` to another protocol is ignored.
"""

from __future__ import annotations

import asyncio
import logging
import os
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol
from urllib.parse import quote, unquote

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from bide.core.errors import HeadTooLarge, MalformedRequest, Problem, RequestTimeout, Unavailable
from bide.core.wire.http import PROBLEM_TYPE, render_problem
from bide.server.config import HttpConfig
from bide.server.http.request import REPLY, STREAM
from bide.service.request_cycle import RequestCycle, WriteBuffer, begin

log = logging.getLogger("bide.http")

MAX_HEADERS = 100
MAX_PIPELINED = 16  # requests that wait for an earlier response
SMALL = 16 * 1024  # a complete request up to this size does not count against the limits
LINGER = 2.0  # seconds that a client has to read the response before its connection is aborted
SPARE = 100  # connections above the limit that still get a response


class _Trailers(list[tuple[bytes, bytes]]):
    """Discards trailers: they must not become headers."""

    def append(self, field: tuple[bytes, bytes]) -> None:
        pass


_TRAILERS = _Trailers()
_CONNECTION = (b"connection", b"proxy-connection")  # the parser treats both the same


@dataclass
class ConnectionLimits:
    """Limits and counters of all connections."""

    connections: int
    timeout: float
    head: int
    bytes: int
    write_buffer: WriteBuffer | None = None
    held: int = 0  # bytes of requests without a response
    refused: int = 0  # connections rejected since the last sweep

    @classmethod
    def of(cls, config: HttpConfig, connections: int) -> ConnectionLimits:
        unanswered = max(config.max_unanswered, config.max_body + config.max_head)
        return cls(connections, config.request_timeout, config.max_head, unanswered)


class HttpConnection(HttpToolsProtocol):
    """uvicorn's connection with limits. Call `sweep` about once per second."""

    limits: ConnectionLimits

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._write_buffer = self.limits.write_buffer = self.limits.write_buffer or WriteBuffer(
            self.loop
        )
        self._in_head = self._in_body = False
        self._ended = False  # nothing more is read
        # Run when the request is complete, or when all received bytes were parsed.
        self._next: RequestCycle | None = None
        self._short = False  # the body is small: wait for it before running the request
        self._rate = 0.0  # minimal rate of a streamed body in bytes per second; 0: not streamed
        self._until: float | None = None  # deadline of the client
        self._fed = 0  # bytes since the last complete request
        self._held = 0  # this connection's share of limits.held
        self._front: RequestResponseCycle | None = None  # the current request while others are pipelined
        self._unsent = 0  # bytes in the write buffer at the last sweep
        self._stuck_since = 0.0

    # --- from the transport

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        limits = self.limits
        self._until = self.loop.time() + limits.timeout
        if len(self.connections) > limits.connections:
            limits.refused += 1
            if len(self.connections) > limits.connections + SPARE:
                transport.abort()
            else:
                self._reject(
                    Unavailable(
                        f"{limits.connections} connections are open, which is the limit; retry later"
                    )
                )

    def data_received(self, data: bytes) -> None:
        if self._ended:
            return None
        limits = self.limits
        size = len(data)
        if limits.held > limits.bytes and not self._rate and (self._held or size > SMALL):
            return self._reject(
                Unavailable("all clients together send more bytes than the service buffers; retry later")
            )
        self._fed += size
        try:
            self._feed(data)
        except httptools.HttpParserError as error:
            cause = error.__context__
            self._reject(
                cause
                if isinstance(cause, Problem)
                else MalformedRequest("the bytes are not an HTTP/1.1 request")
            )
        else:
            if (
                self._in_head
                or self._in_body
                or size > SMALL
                or self.pipeline
                or self.cycle is None
                or self.cycle.response_complete
            ):
                self._count(size)
        if self._next is not None and not (self._in_body and self._short and not self._ended):
            cycle, self._next = self._next, None
            self._run(cycle)
        return None

    def shutdown(self) -> None:
        """Called when the service stops: finishes the requests that have begun."""
        self._write_buffer.flush()
        if self._in_head and (self.cycle is None or self.cycle.response_complete):
            self._reject(Unavailable("the service is stopping"))
        else:
            super().shutdown()

    def _feed(self, data: bytes) -> None:
        """The parser treats the bytes after a head with `Upgrade` as another protocol. So a new parser reads such a head
        again, without the upgrade, and then reads the body.
        """
        head = b""
        while True:
            try:
                return self.parser.feed_data(head + data)
            except httptools.HttpParserUpgrade as upgrade:
                read = upgrade.args[0] - len(head)
                if head and read <= 0:  # the second head still upgrades: do not loop
                    return self._reject(MalformedRequest("the Upgrade of the request cannot be ignored"))
                self.parser = self._new_parser()
                head, data = self._head_without_upgrade(), data[read:]

    def _new_parser(self) -> httptools.HttpRequestParser:
        parser = httptools.HttpRequestParser(self)
        parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does
        return parser

    def _head_without_upgrade(self) -> bytes:
        """Returns the head that was just read, without `upgrade` in `Connection`. The application still sees `Upgrade`."""
        method, version = self.scope["method"].encode(), self._version.encode()
        lines = [b"%b %b HTTP/%b" % (method, self.url, version)]
        for name, value in self.headers:
            words = [word.strip() for word in value.split(b",")] if name in _CONNECTION else []
            kept = b", ".join(word for word in words if word.lower() != b"upgrade") if words else value
            lines.append(name + b": " + kept)
        return b"\r\n".join(lines) + b"\r\n\r\n"

    def connection_lost(self, exc: Exception | None) -> None:
        self._release()
        if self._front is not None:
            # uvicorn marks only the last request as disconnected.
            self._front.disconnected = True
            self._front.message_event.set()
            self._front = None
        super().connection_lost(exc)

    # --- from the parser

    def on_message_begin(self) -> None:
        if len(self.pipeline) >= MAX_PIPELINED:
            raise MalformedRequest(f"more than {MAX_PIPELINED} pipelined requests")
        self._in_head = True
        self._until = None
        self._rate = 0.0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        if len(self.headers) > MAX_HEADERS:
            raise HeadTooLarge(
                f"the request has {len(self.headers)} header fields; at most {MAX_HEADERS} are allowed"
            )
        # The received bytes may include the body, so measure the head itself.
        if self._fed > self.limits.head and self._head_size() > self.limits.head:
            raise self._head_too_large()
        if self.parser.should_upgrade():
            self._prepare_second_head()
            return
        before = self.cycle
        cycle = self._begin_cycle()
        if before is None or before.response_complete:
            self._next = cycle
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((cycle, self.app))
            if self._front is None:
                self._front = before
        self.headers = _TRAILERS
        self._in_head = False
        self._in_body = True

    def _prepare_second_head(self) -> None:
        """Stores what `_head_without_upgrade` needs."""
        method = self.parser.get_method().decode("ascii")
        if method == "CONNECT":
            raise MalformedRequest("CONNECT is not supported: this service is not a proxy")
        self.scope["method"] = method
        self._version = self.parser.get_http_version()

    def _begin_cycle(self) -> RequestCycle:
        parser, scope = self.parser, self.scope
        version = parser.get_http_version()
        scope["method"] = parser.get_method().decode("ascii")
        scope["http_version"] = version
        target = httptools.parse_url(self.url)
        path = target.path.decode("ascii")
        scope["path"] = unquote(path) if "%" in path else path
        scope["raw_path"] = target.path
        scope["query_string"] = target.query or b""
        if target.host is not None:  # an absolute URL overrides Host
            self._set_host(target)
        cycle = self.cycle = RequestCycle(
            scope,
            self.transport,
            self.flow,
            self.logger,
            self.access_logger,
            False,
            self.server_state.default_headers,
            asyncio.Event(),
            self.expect_100_continue,
            version != "1.0" and parser.should_keep_alive(),
            self.on_response_complete,
        )
        cycle.write_buffer = self._write_buffer
        cycle.hang_up = self._hang_up
        self._short = not self.expect_100_continue and _body_size(self.headers) <= SMALL
        scope[REPLY] = cycle.reply  # type: ignore[literal-required]
        scope[STREAM] = partial(self._start_stream, cycle)  # type: ignore[literal-required]
        return cycle

    def _set_host(self, target: httptools.parser.url_parser.URL) -> None:
        host = b"[%b]" % target.host if b":" in target.host else target.host
        if target.port is not None:
            host += b":%d" % target.port
        self.headers[:] = [(n, host if n == b"host" else v) for n, v in self.headers]

    def _start_stream(self, cycle: RequestCycle, rate: float) -> None:
        """Called when the handler streams the body: it no longer counts as held, and has a minimal rate, not a timeout."""
        cycle.streamed = True
        if cycle is self.cycle and self._in_body:
            self._rate = rate
            self._release()
            self._until = self.loop.time() + self.limits.timeout

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():  # only the head is complete
            return
        self._in_body = False
        self._until = None
        self._fed = 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        if self._front is not None:
            self._front = self.pipeline[-1][0] if len(self.pipeline) > 1 else None
        if self._held and not self.pipeline:
            self._release()
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._run(self.pipeline.pop()[0])
        elif self._until is None:
            self._until = self.loop.time() + self.timeout_keep_alive

    def _run(self, cycle: RequestResponseCycle) -> None:
        if (
            cycle.waiting_for_100_continue
        ):  # uvicorn writes it directly, so flush earlier responses first
            self._write_buffer.flush()
        task = begin(self.loop, cycle.run_asgi(self.app))
        if task is not None:
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)

    # --- limits

    def check(self, now: float) -> None:
        """Closes the connection if its deadline has passed."""
        if self._until is not None:
            if self.flow.read_paused:
                self._until = now + self.limits.timeout  # the service has paused reading
            elif now >= self._until and not self.transport.is_closing():
                self._overdue()
        unsent = self.transport.get_write_buffer_size()
        if not unsent or unsent < self._unsent or not self._unsent:
            self._stuck_since = now
        elif now - self._stuck_since >= self.limits.timeout:
            self.transport.abort()
        self._unsent = unsent

    def _overdue(self) -> None:
        if self._ended:
            self.transport.abort()
        elif self._in_head or self._in_body:
            self._reject(RequestTimeout(f"the request was incomplete after {self.limits.timeout:g} s"))
        else:
            self.transport.close()

    def _count(self, size: int) -> None:
        """Counts received bytes that are more than one small, complete request."""
        if self._rate and self._in_body:
            now = self.loop.time()
            until = max(self._until or now, now) + size / self._rate
            self._until = min(until, now + self.limits.timeout)
            return
        answered = self.cycle is None or self.cycle.response_complete
        if self._until is None and (self._in_head or self._in_body or answered):
            self._until = self.loop.time() + self.limits.timeout
        if self._in_head or not answered:  # the rest of a body after its response is discarded
            self._held += size
            self.limits.held += size
        if self._in_head:
            if self._fed > self.limits.head:
                self._reject(self._head_too_large())
        elif self.pipeline and not self._in_body:
            self.flow.resume_reading()  # to notice that the client disconnects

    def _release(self) -> None:
        self.limits.held -= self._held
        self._held = 0

    def _head_size(self) -> int:
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)

    def _head_too_large(self) -> Problem:
        return HeadTooLarge(f"the URL and the headers have more than {self.limits.head} bytes")

    # --- closing

    def _end(self) -> None:
        """Closes the connection after the response to the last complete request."""
        self._ended = True
        self.cycle.keep_alive = False

    def _reject(self, problem: Problem) -> None:
        """Sends `problem` after the earlier responses, and reads no more."""
        cycle = self.cycle
        waiting = cycle is not None and not cycle.response_complete
        if waiting and not self._in_body:
            return self._end()
        if self._in_body and (self.pipeline or cycle.response_started):
            # Earlier responses are pending or this one has started, so the problem cannot be sent.
            self._ended = True
            return self.transport.close()
        if waiting:
            cycle.disconnected = True
            cycle.message_event.set()
        self._ended = True
        self._release()
        self._write_buffer.flush()
        self.transport.write(self._render(problem))
        return self._hang_up()

    def _hang_up(self) -> None:
        """Closes the connection after the last response."""
        if self._in_body:  # the response was sent before the end of the body
            self._ended = True
        if not self._ended:
            return self.transport.close()
        # Closing immediately would reset the connection while the client sends, and the response would be lost.
        self.transport.write_eof()
        self.flow.resume_reading()
        self._until = self.loop.time() + LINGER
        return None

    def _render(self, problem: Problem) -> bytes:
        path = getattr(self, "url", b"").partition(b"?")[0][:200].decode("latin-1")
        body = render_problem(problem, quote(path, safe="/%:"), os.urandom(16).hex())
        lines = [
            f"HTTP/1.1 {problem.status} {problem.title}",
            f"content-type: {PROBLEM_TYPE}",
            f"content-length: {len(body)}",
            "connection: close",
            *(["retry-after: 5"] if problem.status == 503 else []),
        ]
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def _body_size(headers: list[tuple[bytes, bytes]]) -> int:
    """Returns the size of the body from the headers; a large number if it is unknown."""
    for name, value in headers:
        if name == b"content-length":
            return int(value) if len(value) < 10 and value.isdigit() else SMALL + 1
        if name == b"transfer-encoding":
            return SMALL + 1
    return 0


def connection_class(limits: ConnectionLimits) -> type[HttpConnection]:
    """Returns the connection class for uvicorn, with these limits."""
    return type("HttpConnection", (HttpConnection,), {"limits": limits})


class _Checkable(Protocol):
    def check(self, now: float) -> None: ...


def sweep(connections: set[Any], limits: ConnectionLimits, now: float) -> None:
    """Closes every connection whose deadline has passed."""
    found: list[_Checkable] = list(connections)
    for connection in found:
        connection.check(now)
    if limits.refused:
        log.warning(
            "rejected %d connections: the limit of %d is reached (max_connections)",
            limits.refused,
            limits.connections,
        )
        limits.refused = 0
