"""An HTTP/1.1 connection with limits on time, bytes and pipelined requests.

1. A connection has a deadline whenever the client has something to finish: its first request, a head, a body, or reading
   the response. The deadline of a streamed body moves with the bytes received, at the minimal rate.
2. The head of a request is bounded, and so are a trailer, chunk extensions and empty lines, and the bytes of all requests
   without a response together.
3. Responses are sent in the order of the requests. One request runs at a time; the others wait.
4. A connection ends at the first bytes that are not a request: with a problem document, after the earlier responses.
5. Reading pauses while the application has not received HIGH_WATER bytes of a body.
6. A valid WebSocket handshake can switch the connection to a WebSocket, unless an earlier request has no response yet.
   Any other `Upgrade` is ignored: the request and its body are read as HTTP/1.1.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote, unquote

import httptools

from bide.core.errors import (
    HeadTooLarge,
    Internal,
    MalformedRequest,
    Problem,
    RequestTimeout,
    Unavailable,
)
from bide.server.config import HttpConfig
from bide.server.http.request import STREAM, Headers, problem_response
from bide.server.intake import new_trace_id
from bide.service.httpd.deadlines import LINGER, SendDeadline
from bide.service.httpd.request_cycle import HIGH_WATER, RequestCycle, WriteBuffer, begin

if TYPE_CHECKING:  # imported with the first handshake, so that a service starts without them
    from bide.service.httpd.handshake import Handshake
    from bide.service.httpd.websocket import WebSocketConnection

log = logging.getLogger("bide.http")

KEEP_ALIVE = 5.0  # seconds that a connection may be idle between requests
MAX_HEADERS = 100
MAX_PIPELINED = 16  # requests that wait for an earlier response
SMALL = 16 * 1024  # a complete request up to this size does not count against the limits
SPARE = 100  # connections above the limit that still get a response

_CONNECTION = (b"connection", b"proxy-connection")  # the parser treats both the same
_ASGI = {"version": "3.0", "spec_version": "2.3"}


@dataclass(frozen=True)
class ConnectionLimits:
    """Limits of each connection, and of all connections together."""

    connections: int
    timeout: float  # seconds to receive a request, and to send a response
    head: int  # bytes of request line and headers
    body: int  # bytes of a body that the application keeps in memory
    bytes: int  # of all requests that have no response yet
    message: int = 64 * 1024  # bytes of a message that a WebSocket receives
    ping: float = 20.0  # seconds between two pings of a WebSocket

    @classmethod
    def of(cls, config: HttpConfig, connections: int) -> ConnectionLimits:
        unanswered = max(config.max_unanswered, config.max_body + config.max_head)
        return cls(connections, config.request_timeout, config.max_head, config.max_body, unanswered)


@dataclass
class Connections:
    """The open connections of a server, and what they share."""

    app: Any
    limits: ConnectionLimits
    root_path: str  # the links in error responses begin with it
    loop: asyncio.AbstractEventLoop
    write_buffer: WriteBuffer
    date: bytes = b""  # the Date header line
    open: set[HttpConnection | WebSocketConnection] = field(default_factory=set)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)  # of requests that wait
    held: int = 0  # bytes of requests without a response
    refused: int = 0  # connections rejected since the last sweep
    stopping: bool = False

    def sweep(self) -> None:
        """Close every connection whose deadline has passed. Call it about once per second."""
        now = self.loop.time()
        for connection in list(self.open):
            try:
                connection.check(now)
            except Exception:  # check the other connections nevertheless
                log.exception("a connection failed")
                connection.abort()
        if self.refused:
            log.warning(
                "rejected %d connections: the limit of %d is reached (max_connections)",
                self.refused,
                self.limits.connections,
            )
            self.refused = 0


class HttpConnection(asyncio.Protocol):
    """A connection to a client. Its parser calls the `on_…` methods."""

    def __init__(self, shared: Connections) -> None:
        self._shared = shared
        self._limits = shared.limits
        self._loop = shared.loop
        self._transport: asyncio.Transport
        self._parser = self._new_parser()
        self._addresses: dict[str, Any] = {}
        # The request that is received. After its head, `_receiving` is its cycle.
        self._in_head = False
        self._url = b""
        self._headers: Headers = []
        self._version = self._method = ""
        self._receiving: RequestCycle | None = None
        self._fed = 0  # bytes since the last complete request, head or bytes of a body
        self._size = 0  # bytes of the last read
        self._behind = 0  # bytes of the read with the end of the last request: the next may begin in it
        self._held = 0  # this connection's share of held bytes
        self._rate = 0.0  # minimal rate of a streamed body in bytes per second; 0: not streamed
        # The request that gets a response, and those that wait for their turn.
        self._responding: RequestCycle | None = None
        self._unstarted = False  # _responding runs when all received bytes were parsed
        self._short = False  # the body of _responding is small: wait for it before running the request
        self._pipeline: deque[RequestCycle] = deque()
        self._handshake: Handshake | None = None  # nothing but its WebSocket can follow
        # The transport.
        self._ended = False  # nothing more is read
        self.client_ended = False  # the client sends nothing more
        self._read_paused = False
        self.write_paused = False
        self._writable: asyncio.Event | None = None
        self._until: float | None = None  # deadline of the client
        self._send_deadline = SendDeadline(shared.limits.timeout)

    def _new_parser(self) -> httptools.HttpRequestParser:
        parser = httptools.HttpRequestParser(self)
        # A client may send a request after one with `Connection: close`; it gets no response.
        parser.set_dangerous_leniencies(lenient_data_after_close=True)
        return parser

    # --- from the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._addresses = {
            "client": _address(transport, "peername"),
            "server": _address(transport, "sockname"),
        }
        shared, limits = self._shared, self._limits
        shared.open.add(self)
        self._until = self._loop.time() + limits.timeout
        if len(shared.open) > limits.connections:
            shared.refused += 1
            if len(shared.open) > limits.connections + SPARE:
                self._transport.abort()
            else:
                self._reject(
                    Unavailable(
                        f"{limits.connections} connections are open, which is the limit; retry later"
                    )
                )

    def data_received(self, data: bytes) -> None:
        if self._ended:
            return
        if self._handshake is not None:
            self._add_early(self._handshake, data)
            return
        size = self._size = len(data)
        if self._shared.held > self._limits.bytes and not self._rate and (self._held or size > SMALL):
            self._reject(
                Unavailable("all clients together send more bytes than the service buffers; retry later")
            )
            return
        self._fed += size
        try:
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                self._upgrade(data[upgrade.args[0] :])
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
                or self._receiving is not None
                or size > SMALL
                or self._pipeline
                or self._responding is None
            ):
                self._count(size)
        waiting = self._short and self._receiving is self._responding and not self._ended
        if self._unstarted and not waiting:
            self._run()

    def eof_received(self) -> bool:
        """Keep the connection open if the client waits for responses. An application that waits for the client to
        disconnect cannot tell whether it has, so its connection is closed.
        """
        responding = self._responding
        if self._in_head or self._receiving is not None or responding is None or responding.waits:
            return False
        if self._handshake is not None:  # a WebSocket needs both directions
            return False
        self.client_ended = True
        self._until = None
        (self._pipeline[-1] if self._pipeline else responding).keep_alive = False
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._shared.open.discard(self)
        self._release()
        for cycle in (self._responding, self._receiving, *self._pipeline):
            if cycle is not None:
                cycle.disconnect()
        self.resume_writing()
        # Break the reference cycles with the parser and the requests.
        self._responding = self._receiving = self._handshake = None
        self._unstarted = False
        self._pipeline.clear()
        del self._parser

    def pause_writing(self) -> None:
        self.write_paused = True

    def resume_writing(self) -> None:
        self.write_paused = False
        if self._writable is not None:
            self._writable.set()
            self._writable = None

    async def drain(self) -> None:
        """Wait until the client has read enough."""
        while self.write_paused:
            if self._writable is None:
                self._writable = asyncio.Event()
            await self._writable.wait()

    def _pause_reading(self) -> None:
        if not self._read_paused:
            self._read_paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if not self._read_paused or self._transport.is_closing():
            return
        if self._receiving is None or self._receiving.buffered <= HIGH_WATER:
            self._read_paused = False
            self._transport.resume_reading()

    def _upgrade(self, data: bytes) -> None:
        """Handle `data`, the bytes after a head with `Upgrade`: the parser treats them as another protocol. If the head is
        not a WebSocket handshake, a new parser reads it again, without the upgrade, and then `data`.
        """
        while self._handshake is None:
            head = self._head_without_upgrade()
            self._parser = self._new_parser()
            try:
                self._parser.feed_data(head + data)
                return
            except httptools.HttpParserUpgrade as upgrade:
                read = upgrade.args[0] - len(head)
                if read <= 0:  # the second head still upgrades: do not loop
                    self._reject(MalformedRequest("the Upgrade of the request cannot be ignored"))
                    return
                data = data[read:]
        self._add_early(self._handshake, data)

    def _add_early(self, handshake: Handshake, data: bytes) -> None:
        handshake.early += data
        if len(handshake.early) > HIGH_WATER:
            self._pause_reading()

    def _head_without_upgrade(self) -> bytes:
        """Return the head that was just read, without `upgrade` in `Connection`. The application still sees `Upgrade`."""
        lines = [b"%b %b HTTP/%b" % (self._method.encode(), self._url, self._version.encode())]
        for name, value in self._headers:
            words = [word.strip() for word in value.split(b",")] if name in _CONNECTION else []
            kept = b", ".join(word for word in words if word.lower() != b"upgrade") if words else value
            lines.append(name + b": " + kept)
        return b"\r\n".join(lines) + b"\r\n\r\n"

    # --- from the parser

    def on_message_begin(self) -> None:
        if len(self._pipeline) >= MAX_PIPELINED:
            raise MalformedRequest(f"more than {MAX_PIPELINED} pipelined requests")
        self._in_head = True
        self._url = b""
        self._headers = []
        self._until = None
        self._rate = 0.0

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # trailers are discarded
            self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        headers, parser = self._headers, self._parser
        if len(headers) > MAX_HEADERS:
            raise HeadTooLarge(
                f"the request has {len(headers)} header fields; at most {MAX_HEADERS} are allowed"
            )
        # The received bytes may include the body, so measure the head itself.
        if self._fed + self._behind > self._limits.head and self._head_size() > self._limits.head:
            raise self._head_too_large()
        self._method = parser.get_method().decode("ascii")
        self._version = parser.get_http_version()
        if parser.should_upgrade():
            if self._method == "CONNECT":
                raise MalformedRequest("CONNECT is not supported: this service is not a proxy")
            from bide.service.httpd.handshake import Handshake, accept_key

            key = accept_key(self._method, self._version, headers) if self._responding is None else None
            if key is not None:
                self._responding = self._handshake = Handshake(self, self._scope(), key)
                self._unstarted = True
                self._short = self._in_head = False
                self._until = None
                self._fed = 0
            return
        body_size, expects_continue = _body_of(headers)
        old = self._version == "1.0"
        if not old and self._version != "1.1":
            raise MalformedRequest(f"HTTP/{self._version} is not supported; send HTTP/1.1")
        keep_alive = not old and parser.should_keep_alive()
        cycle = RequestCycle(self, self._scope(), keep_alive, expects_continue and not old)
        if self._responding is None:
            self._responding = cycle
            self._unstarted = True
            self._short = body_size <= SMALL and not expects_continue
        else:
            self._pipeline.append(cycle)
        self._in_head = False
        self._receiving = cycle
        self._fed = 0

    def on_body(self, body: bytes) -> None:
        cycle = self._receiving
        self._fed = 0
        if cycle is not None:
            cycle.add_body(body)
            cycle.wake()
            if cycle.buffered > HIGH_WATER:
                self._pause_reading()

    def on_message_complete(self) -> None:
        cycle = self._receiving
        if cycle is None:  # only the head with `Upgrade` is complete
            return
        self._receiving = None
        self._until = self._loop.time() + KEEP_ALIVE if cycle.response_complete else None
        self._fed = 0
        self._behind = self._size
        cycle.body_complete = True
        cycle.wake()

    def _scope(self) -> dict[str, Any]:
        url = self._url
        if url.startswith(b"/") and b"#" not in url:
            raw_path, _, query = url.partition(b"?")
        else:
            target = httptools.parse_url(url)
            if target.path is None:
                raise MalformedRequest(f"the request target {url[:200]!r} has no path")
            raw_path, query = target.path, target.query or b""
            if target.host is not None:  # an absolute URL overrides Host
                self._set_host(target)
        path = raw_path.decode("ascii")
        return {
            "type": "http",
            "asgi": _ASGI,
            "http_version": self._version,
            "method": self._method,
            "scheme": "http",
            "path": unquote(path) if "%" in path else path,
            "raw_path": raw_path,
            "query_string": query,
            "root_path": "",
            "headers": self._headers,
            "extensions": {STREAM: {}},
            **self._addresses,
        }

    def _set_host(self, target: httptools.parser.url_parser.URL) -> None:
        host = b"[%b]" % target.host if b":" in target.host else target.host
        if target.port is not None:
            host += b":%d" % target.port
        self._headers[:] = [(n, host if n == b"host" else v) for n, v in self._headers]

    # --- from the request

    @property
    def date(self) -> bytes:
        return self._shared.date

    def write(self, data: bytes) -> None:
        """Write after the complete responses of this loop iteration."""
        self._shared.write_buffer.flush()
        if not self._transport.is_closing():
            self._transport.write(data)

    def write_later(self, data: bytes) -> None:
        """Write a complete response at the end of this loop iteration."""
        self._shared.write_buffer.put(self._transport, data)

    def start_stream(self, cycle: RequestCycle) -> None:
        """Called when the application streams the body: it has a minimal rate instead of a timeout, and is not held."""
        if cycle is self._receiving and not self._rate:
            self._rate = cycle.min_rate
            self._release()
            self._until = self._loop.time() + self._limits.timeout

    def on_response_complete(self, cycle: RequestCycle) -> None:
        self._responding = None
        if self._held and not self._pipeline:
            self._release()
        if not cycle.keep_alive:
            self._shared.write_buffer.flush()
            self._hang_up()
            return
        if self._transport.is_closing():
            return
        self.resume_reading()
        if self._pipeline:
            self._responding = self._pipeline.popleft()
            self._run()
        elif self._until is None:
            self._until = self._loop.time() + KEEP_ALIVE

    def switch(self, early: bytes) -> WebSocketConnection:
        """Make the connection a WebSocket, after the response was written. `early`: its first bytes."""
        from bide.service.httpd.websocket import WebSocketConnection

        shared, transport = self._shared, self._transport
        self.resume_reading()
        websocket = WebSocketConnection(shared, transport, self.write_paused)
        transport.set_protocol(websocket)
        shared.open.add(websocket)
        self._responding = None
        self.connection_lost(None)
        if early:
            websocket.data_received(early)
        if shared.stopping:
            websocket.shutdown()
        return websocket

    def fail(self, cycle: RequestCycle) -> None:
        """End the connection of a request whose application failed."""
        self._ended = True
        self._release()
        if cycle.response_started:
            self._transport.close()
        else:
            problem = Internal("the service failed unexpectedly; its log has the error")
            self._send_problem(problem, cycle)

    def _run(self) -> None:
        cycle = self._responding
        assert cycle is not None
        self._unstarted = False
        task = begin(self._loop, cycle.run(self._shared.app))
        if task is not None:
            self._shared.tasks.add(task)
            task.add_done_callback(self._shared.tasks.discard)

    # --- limits

    def check(self, now: float) -> None:
        """Close the connection if its deadline has passed."""
        if self._until is not None:
            if self._read_paused:
                self._until = now + self._limits.timeout  # the service has paused reading
            elif now >= self._until and not self._transport.is_closing():
                self._overdue()
        if self._send_deadline.passed(now, self._transport.get_write_buffer_size()):
            self._transport.abort()

    def _overdue(self) -> None:
        if self._ended:
            if self._transport.get_write_buffer_size():  # the response is still being sent
                self._until = self._loop.time() + LINGER
            else:
                self._transport.abort()
        elif self._in_head or self._receiving is not None:
            self._reject(RequestTimeout(f"the request was incomplete after {self._limits.timeout:g} s"))
        else:
            self._transport.close()

    def _count(self, size: int) -> None:
        """Count received bytes that are more than one small, complete request."""
        in_body = self._receiving is not None
        if self._fed > self._limits.head:
            self._reject(self._head_too_large())
            return
        if self._rate and in_body:
            now = self._loop.time()
            until = max(self._until or now, now) + size / self._rate
            self._until = min(until, now + self._limits.timeout)
            return
        answered = self._responding is None
        if self._until is None and (self._in_head or in_body or answered):
            self._until = self._loop.time() + self._limits.timeout
        if not self._in_head and (answered or not self._keeps(in_body)):
            return
        self._held += size
        self._shared.held += size

    def _keeps(self, in_body: bool) -> bool:
        """Whether the bytes just received, after a head, are in memory until the response."""
        if not in_body:
            return not self._fed  # otherwise they were empty lines
        if self._receiving is not self._responding:
            return True
        # The application reads no body of a GET, and no more than the limit of others.
        return self._method != "GET" and self._held <= self._limits.body + self._limits.head

    def _release(self) -> None:
        self._shared.held -= self._held
        self._held = 0

    def _head_size(self) -> int:
        return len(self._url) + sum(len(name) + len(value) + 4 for name, value in self._headers)

    def _head_too_large(self) -> Problem:
        if self._receiving is not None:  # the parser keeps an incomplete trailer in memory
            part = "the trailer or the extension of a chunk has"
        elif self._in_head:
            part = "the URL and the headers have"
        else:
            part = "the empty lines before the request have"
        return HeadTooLarge(f"{part} more than {self._limits.head} bytes")

    # --- closing

    def shutdown(self) -> None:
        """Called when the service stops: finishes the requests that have begun."""
        self._shared.write_buffer.flush()
        last = self._pipeline[-1] if self._pipeline else self._responding
        if last is not None:
            last.keep_alive = False
        elif self._in_head and not self._ended:
            self._reject(Unavailable("the service is stopping"))
        else:
            self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    def _reject(self, problem: Problem) -> None:
        """Send `problem` after the earlier responses, and read no more."""
        receiving, responding = self._receiving, self._responding
        self._ended = True
        self._until = None  # the client has nothing more to finish
        self._release()
        if receiving is not None and self._pipeline:  # the last of the pipeline is incomplete: drop it
            self._pipeline.pop()
            receiving = self._receiving = None
        if receiving is None:
            last = self._pipeline[-1] if self._pipeline else responding
            if last is not None:  # close the connection after the response to the last complete request
                last.keep_alive = False
                return
        elif receiving.response_started:  # the problem cannot be sent
            self._transport.close()
            return
        else:
            receiving.disconnect()
            self._unstarted = False
        self._send_problem(problem, receiving)

    def _send_problem(self, problem: Problem, cycle: RequestCycle | None) -> None:
        """Send the problem of a request; None: of its incomplete head, or of the connection."""
        if cycle is not None:
            path, method = cycle.scope["raw_path"], cycle.scope["method"]
        elif self._in_head and self._url:
            path, method = self._url.partition(b"?")[0], self._parser.get_method().decode("ascii")
        else:
            path, method = b"", ""
        head, body = self._render(problem, path)
        self.write(head if method == "HEAD" else head + body)
        self._hang_up()

    def _hang_up(self) -> None:
        """Close the connection after the last response."""
        if self._receiving is not None or (self._handshake is not None and self._handshake.early):
            self._ended = True  # the client may still send
        self._pipeline.clear()
        if not self._ended or self._transport.is_closing():
            self._transport.close()
            return
        # Closing immediately would reset the connection while the client sends, and the response would be lost.
        self._transport.write_eof()
        self.resume_reading()
        self._until = self._loop.time() + LINGER

    def _render(self, problem: Problem, path: bytes) -> tuple[bytes, bytes]:
        instance = quote(path[:200].decode("latin-1"), safe="/%:")
        base = self._shared.root_path
        response = problem_response(problem, base + instance, new_trace_id(), base)
        lines = [b"HTTP/1.1 %d %s" % (problem.status, problem.title.encode()), b"connection: close"]
        lines += [b"%s: %s" % header for header in response.headers]
        return b"\r\n".join(lines) + b"\r\n" + self.date + b"\r\n", response.body


def _address(transport: asyncio.BaseTransport, name: str) -> tuple[str, int] | None:
    found = transport.get_extra_info(name)
    return (found[0], found[1]) if isinstance(found, tuple) else None


def _body_of(headers: Headers) -> tuple[int, bool]:
    """Return the size of the body, a large number if it is unknown, and whether the client expects `100 Continue`."""
    size, expects_continue = 0, False
    for name, value in headers:
        if name == b"content-length":
            size = int(value) if len(value) < 10 and value.isdigit() else SMALL + 1
        elif name == b"transfer-encoding":
            size = SMALL + 1
            if value.lower() != b"chunked":
                raise MalformedRequest(
                    f"Transfer-Encoding {value[:100].decode('latin-1')!r} is not supported; send chunked"
                )
        elif name == b"expect":
            expects_continue = value.lower() == b"100-continue"
    return size, expects_continue
