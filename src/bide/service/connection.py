"""One connection of a caller, and what it may take: time, bytes, requests at once.

uvicorn reads HTTP, but waits for ever for the rest of a request, keeps heads of any size, and takes any number of
requests ahead. Here every connection

1. has a deadline whenever the caller has something to finish: its first request, a head, a body, or taking the answer;
   a body that is put away as it arrives has one that moves on with it, at the least rate that is allowed;
2. may hold a bounded head, and all of them together bounded bytes of requests that are not answered;
3. ends as soon as something arrives that is not a request: with a problem document, after the requests before it;
4. speaks HTTP/1.1 only: a request that offers another protocol with `Upgrade` is answered as if it did not.
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
from bide.core.wire import PROBLEM_TYPE, render_problem
from bide.server.config import HttpConfig
from bide.server.http.bodies import STREAM
from bide.server.http.exchange import REPLY
from bide.service.cycle import Cycle, Outbox, begin

log = logging.getLogger("bide.http")

MOST_HEADERS = 100
MOST_PIPELINED = 16  # requests that wait for the answer to one before them
SMALL = 16 * 1024  # what comes whole and is not larger is not counted
LINGER = 2.0  # how long a refused caller may take to read why
SPARE = 100  # connections beyond the most, so that it can be told to them


class _Trailers(list[tuple[bytes, bytes]]):
    """Header fields after a body, which nobody asks for: a trailer is no header."""

    def append(self, field: tuple[bytes, bytes]) -> None:
        pass


_TRAILERS = _Trailers()
_CONNECTION = (b"connection", b"proxy-connection")  # the parser takes the second for the first


@dataclass
class Limits:
    """What all connections share."""

    connections: int
    timeout: float
    head: int
    bytes: int
    outbox: Outbox | None = None
    held: int = 0  # bytes of requests that are not answered
    refused: int = 0  # connections since the last sweep

    @classmethod
    def of(cls, config: HttpConfig, connections: int) -> Limits:
        together = max(config.max_unanswered, config.max_body + config.max_head)
        return cls(connections, config.request_timeout, config.max_head, together)


class Connection(HttpToolsProtocol):
    """uvicorn's connection within limits. `sweep` has to be called about once a second."""

    limits: Limits

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._outbox = self.limits.outbox = self.limits.outbox or Outbox(self.loop)
        self._in_head = self._in_body = False
        self._ended = False  # nothing more is read from it
        self._next: Cycle | None = None  # to be run when it is whole, or all that arrived was read
        self._short = False  # its body is worth waiting for
        self._rate = (
            0.0  # bytes a second that a body which is put away as it arrives must have; 0: it is not
        )
        self._until: float | None = None  # when the caller must have finished what it is at
        self._fed = 0  # bytes since the last whole request
        self._held = 0  # our part of limits.held
        self._front: RequestResponseCycle | None = None  # being answered while others wait behind it
        self._unsent = 0  # at the last sweep
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
                self._refuse(Unavailable("too many connections are open"))

    def data_received(self, data: bytes) -> None:
        if self._ended:
            return None
        limits = self.limits
        size = len(data)
        if limits.held > limits.bytes and not self._rate and (self._held or size > SMALL):
            return self._refuse(Unavailable("too much is being sent to the service at once"))
        self._fed += size
        try:
            self._feed(data)
        except httptools.HttpParserError as error:
            cause = error.__context__
            self._refuse(
                cause if isinstance(cause, Problem) else MalformedRequest("this is not HTTP/1.1")
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
                self._unfinished(size)
        if self._next is not None and not (self._in_body and self._short and not self._ended):
            cycle, self._next = self._next, None
            self._run(cycle)
        return None

    def shutdown(self) -> None:
        """The service stops: the last request that has begun is the last that is answered."""
        self._outbox.flush()  # an answer may still wait there
        if self._in_head and (self.cycle is None or self.cycle.response_complete):
            self._refuse(Unavailable("the service is stopping"))
        else:
            super().shutdown()

    def _feed(self, data: bytes) -> None:
        """The parser takes what follows the head of a request with `Upgrade` for another protocol. A new parser reads such
        a request again, without the offer, so that its body is a body.
        """
        head = b""
        while True:
            try:
                return self.parser.feed_data(head + data)
            except httptools.HttpParserUpgrade as upgrade:
                read = upgrade.args[0] - len(head)
                if (
                    head and read <= 0
                ):  # what was read again is an offer still: never read it a third time
                    return self._refuse(
                        MalformedRequest("the request offers a protocol that cannot be ignored")
                    )
                self.parser = self._new_parser()
                head, data = self._head_without_upgrade(), data[read:]

    def _new_parser(self) -> httptools.HttpRequestParser:
        parser = httptools.HttpRequestParser(self)
        parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn's
        return parser

    def _head_without_upgrade(self) -> bytes:
        """The head that was just read. `Upgrade` stays, for the application to see; without the word in `Connection` it
        is no offer.
        """
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
            # uvicorn tells only the last request that nobody is there any more.
            self._front.disconnected = True
            self._front.message_event.set()
            self._front = None
        super().connection_lost(exc)

    # --- from the parser

    def on_message_begin(self) -> None:
        if len(self.pipeline) >= MOST_PIPELINED:
            raise MalformedRequest("too many requests at once")
        self._in_head = True
        self._until = None
        self._rate = 0.0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        if len(self.headers) > MOST_HEADERS:
            raise HeadTooLarge(f"more than {MOST_HEADERS} header fields")
        # What was fed may have been body too: it is only a reason to look.
        if self._fed > self.limits.head and self._head_size() > self.limits.head:
            raise self._head_too_large()
        if self.parser.should_upgrade():
            self._offered()
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

    def _offered(self) -> None:
        """Notes what `_head_without_upgrade` needs. The request is read again, and begins then."""
        method = self.parser.get_method().decode("ascii")
        if method == "CONNECT":
            raise MalformedRequest("CONNECT is not supported: this is no proxy")
        self.scope["method"] = method
        self._version = self.parser.get_http_version()

    def _begin_cycle(self) -> Cycle:
        parser, scope = self.parser, self.scope
        version = parser.get_http_version()
        scope["method"] = parser.get_method().decode("ascii")
        scope["http_version"] = version
        target = httptools.parse_url(self.url)
        path = target.path.decode("ascii")
        scope["path"] = unquote(path) if "%" in path else path
        scope["raw_path"] = target.path
        scope["query_string"] = target.query or b""
        if target.host is not None:  # http://host/path counts, whatever Host says
            self._put_host(target)
        cycle = self.cycle = Cycle(
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
        cycle.outbox = self._outbox
        cycle.hang_up = self._hang_up
        self._short = not self.expect_100_continue and _announced(self.headers) <= SMALL
        scope[REPLY] = cycle.reply  # type: ignore[literal-required]
        scope[STREAM] = partial(self._streams, cycle)  # type: ignore[literal-required]
        return cycle

    def _put_host(self, target: httptools.parser.url_parser.URL) -> None:
        host = b"[%b]" % target.host if b":" in target.host else target.host
        if target.port is not None:
            host += b":%d" % target.port
        self.headers[:] = [(n, host if n == b"host" else v) for n, v in self.headers]

    def _streams(self, cycle: Cycle, rate: float) -> None:
        """Its body is put away as it arrives: it is not held here, and may take as long as it comes fast enough."""
        cycle.streamed = True
        if cycle is self.cycle and self._in_body:
            self._rate = rate
            self._release()
            self._until = self.loop.time() + self.limits.timeout

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():  # what is complete is only its head
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
        if cycle.waiting_for_100_continue:  # which is written at once; answers before it go first
            self._outbox.flush()
        task = begin(self.loop, cycle.run_asgi(self.app))
        if task is not None:
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)

    # --- limits

    def check(self, now: float) -> None:
        """Ends it when its time is over."""
        if self._until is not None:
            if self.flow.read_paused:
                self._until = now + self.limits.timeout  # it is we who do not read
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
            self._refuse(RequestTimeout(f"the request was not complete after {self.limits.timeout:g} s"))
        else:
            self.transport.close()

    def _unfinished(self, size: int) -> None:
        """More is to come, or was sent than one small request."""
        if self._rate and self._in_body:
            now = self.loop.time()
            until = max(self._until or now, now) + size / self._rate
            self._until = min(until, now + self.limits.timeout)
            return
        answered = self.cycle is None or self.cycle.response_complete
        if self._until is None and (self._in_head or self._in_body or answered):
            self._until = self.loop.time() + self.limits.timeout
        if self._in_head or not answered:  # the rest of a body that was answered already is thrown away
            self._held += size
            self.limits.held += size
        if self._in_head:
            if self._fed > self.limits.head:
                self._refuse(self._head_too_large())
        elif self.pipeline and not self._in_body:
            self.flow.resume_reading()  # or nobody would notice that the caller has left

    def _release(self) -> None:
        self.limits.held -= self._held
        self._held = 0

    def _head_size(self) -> int:
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)

    def _head_too_large(self) -> Problem:
        return HeadTooLarge(f"the address and the headers are larger than {self.limits.head} bytes")

    # --- endings

    def _end(self) -> None:
        """The last request that came whole is the last that is answered."""
        self._ended = True
        self.cycle.keep_alive = False

    def _refuse(self, problem: Problem) -> None:
        """Answers `problem` in its turn, and reads no more."""
        cycle = self.cycle
        waiting = cycle is not None and not cycle.response_complete
        if waiting and not self._in_body:
            return self._end()
        if self._in_body and (self.pipeline or cycle.response_started):
            # Its turn will not come, or has gone by.
            self._ended = True
            return self.transport.close()
        if waiting:
            cycle.disconnected = True
            cycle.message_event.set()
        self._ended = True
        self._release()
        self._outbox.flush()
        self.transport.write(self._render(problem))
        return self._hang_up()

    def _hang_up(self) -> None:
        """After the last answer."""
        if self._in_body:  # which was answered before its end
            self._ended = True
        if not self._ended:
            return self.transport.close()
        # Closing at once would reset the connection under what is still being sent, and take the answer with it.
        self.transport.write_eof()
        self.flow.resume_reading()
        self._until = self.loop.time() + LINGER
        return None

    def _render(self, problem: Problem) -> bytes:
        place = getattr(self, "url", b"").partition(b"?")[0][:200].decode("latin-1")
        body = render_problem(problem, quote(place, safe="/%:"), os.urandom(16).hex())
        lines = [
            f"HTTP/1.1 {problem.status} {problem.title}",
            f"content-type: {PROBLEM_TYPE}",
            f"content-length: {len(body)}",
            "connection: close",
            *(["retry-after: 5"] if problem.status == 503 else []),
        ]
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def _announced(headers: list[tuple[bytes, bytes]]) -> int:
    """How many bytes of body are to come, as far as it is told."""
    for name, value in headers:
        if name == b"content-length":
            return int(value) if len(value) < 10 and value.isdigit() else SMALL + 1
        if name == b"transfer-encoding":
            return SMALL + 1
    return 0


def within(limits: Limits) -> type[Connection]:
    """The kind of connection that uvicorn is to make."""
    return type("Connection", (Connection,), {"limits": limits})


class _Checked(Protocol):
    def check(self, now: float) -> None: ...


def sweep(connections: set[Any], limits: Limits, now: float) -> None:
    """Ends every connection whose time is over."""
    found: list[_Checked] = list(connections)
    for connection in found:
        connection.check(now)
    if limits.refused:
        log.warning(
            "%d connections refused: %d are open, and no more are allowed (max_connections)",
            limits.refused,
            limits.connections,
        )
        limits.refused = 0
