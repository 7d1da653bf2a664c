"""Request and response, as the handlers see them.

A request is a thin view of the ASGI scope. It parses headers and query on demand, because most requests are polls and
need one or two of them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from functools import cached_property
from typing import Any
from urllib.parse import parse_qsl, quote

import msgspec

from bide.core.errors import (
    InvalidInput,
    MalformedRequest,
    PayloadTooLarge,
    Problem,
    Unauthenticated,
    UnsupportedMedia,
    WrongLength,
)
from bide.core.wire.http import PROBLEM_TYPE, encode, render_problem
from bide.core.wire.traces import read_traceparent
from bide.server.http import Components
from bide.server.identities import ANYONE, Principal
from bide.server.intake import new_trace_id
from bide.server.limits import ReceivedBytes

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]
REPLAYED = (b"idempotency-replayed", b"true")  # in a response with the job of an earlier submission
Stream = Callable[[Scope, Receive, Send], Awaitable[None]]

MAX_PARAMETERS = 200
# An ASGI extension of bide's own server: a dict in scope["extensions"]. An application that reads the body of the request
# as it arrives sets "min_rate" in it, the minimal rate in bytes per second. Such a body has no time limit and does not
# count as memory.
STREAM = "bide.stream"
_JSON = (b"content-type", b"application/json")
_SAFE_IN_PATH = "/:@!$&'()*+,;=~-._"


class Disconnected(Exception):
    """The client has closed the connection."""


class Response(msgspec.Struct):
    """A status, headers and the whole body; or a `stream`, which sends the response itself."""

    status: int
    headers: Headers
    body: bytes = b""
    stream: Stream | None = None


def header_lines(headers: Mapping[str, str]) -> Headers:
    return [(name.lower().encode(), value.encode()) for name, value in headers.items()]


def json_response(status: int, body: bytes, *more: tuple[bytes, bytes]) -> Response:
    return Response(status, [_JSON, (b"content-length", b"%d" % len(body)), *more], body)


def object_response(value: Any, *more: tuple[bytes, bytes], status: int = 200) -> Response:
    return json_response(status, encode(value), *more)


def text_response(content_type: str, body: bytes, *more: tuple[bytes, bytes]) -> Response:
    length = (b"content-length", b"%d" % len(body))
    return Response(200, [(b"content-type", content_type.encode()), length, *more], body)


class HttpRequest:
    """A request. `args` are the path parameters, in order. `prefix` is a path that a proxy has removed."""

    details = True  # False: the response to a probe contains only a status
    principal: Principal = ANYONE  # the caller
    tenant = ANYONE.tenant  # whose jobs, uploads and events the caller sees
    refusal: Problem | None = None  # why the caller of a public operation is nobody
    csrf: str | None = None  # the CSRF token of the caller's session; None: the caller has none
    # From a trusted proxy.
    forwarded_scheme: str | None = None
    forwarded_host: str | None = None
    _mount = ""  # the path of an application in which the service is mounted

    def __init__(self, components: Components, scope: Scope, receive: Receive, prefix: str = "") -> None:
        self.components = components
        self.scope = scope
        self.receive = receive
        self.args: list[str] = []
        self._headers: dict[bytes, bytes] | None = None
        self._trace_id: str | None = None
        path: str = scope["path"]
        root: str = scope.get("root_path", "")
        if root:
            # Mounted in another application: its prefix is part of the links in responses, but not of the routed paths.
            root = root.rstrip("/")
            if path == root or path.startswith(root + "/"):
                path = path[len(root) :]
            root = self._mount = quote(root, safe=_SAFE_IN_PATH)
        self.path = path
        self._prefix = prefix
        self.base = prefix + root

    def set_prefix(self, prefix: str) -> None:
        self._prefix, self.base = prefix, prefix + self._mount

    @property
    def host(self) -> str | None:
        """The host and port that the caller used."""
        return self.forwarded_host or self.header(b"host")

    @property
    def url(self) -> str:
        """The URL of the service, as the caller sees it."""
        scheme = self.forwarded_scheme or self.scope.get("scheme", "http")
        return f"{scheme}://{self.host or '127.0.0.1:8642'}{self.base}"

    def header(self, name: bytes) -> str | None:
        """Return the value of a header, with repeated lines joined; None if it is missing."""
        headers = self._headers
        if headers is None:
            headers = self._headers = {}
            for key, value in self.scope["headers"]:
                headers[key] = headers[key] + b", " + value if key in headers else value
        found = headers.get(name)
        return None if found is None else found.decode("latin-1")

    @property
    def trace_id(self) -> str:
        if self._trace_id is None:
            parent = self.header(b"traceparent")
            self._trace_id = (parent and read_traceparent(parent)) or new_trace_id()
        return self._trace_id

    @property
    def content_length(self) -> int | None:
        """None if it is missing."""
        text = self.header(b"content-length")
        if text is None:
            return None
        if not (text.isascii() and text.isdigit() and len(text) <= 18):
            raise WrongLength(f"Content-Length {text[:50]!r} is not a number of bytes")
        return int(text)

    @cached_property
    def query(self) -> dict[str, list[str]]:
        text = self.scope["query_string"].decode("latin-1")
        found: dict[str, list[str]] = {}
        try:
            pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=MAX_PARAMETERS)
        except ValueError:
            raise MalformedRequest(f"the URL has more than {MAX_PARAMETERS} query parameters") from None
        for name, value in pairs:
            found.setdefault(name, []).append(value)
        return found

    def one(self, name: str) -> str | None:
        """Return a query parameter that may occur once."""
        values = self.query.get(name)
        if values is None:
            return None
        if len(values) > 1:
            raise wrong_parameter(name, "given more than once")
        return values[0]

    async def json(self, most: int | None = None) -> bytes:
        """Return the whole body. Raise a Problem if its Content-Type is not JSON, or if it is larger than `most` bytes or
        the limit of the service.
        """
        limit = self.components.config.http.max_body
        most = limit if most is None else min(most, limit)
        length = self.header(b"content-length")
        # Not every ASGI server validates it: "²" is a digit too, and int() rejects thousands of digits.
        if length and length.isascii() and length.isdigit() and (len(length) > 15 or int(length) > most):
            raise _too_large(most)
        body = await self._body(most)
        self._check_media(empty=not body)
        return body

    async def raw(self) -> bytes:
        """Return the whole body of any Content-Type. Raise a Problem if it is too large."""
        return await self._body(self.components.config.http.max_body)

    async def _body(self, most: int) -> bytes:
        chunks: list[bytes] = []
        size = 0
        while True:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise Disconnected
            chunk = message.get("body", b"")
            size += len(chunk)
            if size > most:
                raise _too_large(most)
            chunks.append(chunk)
            if not message.get("more_body", False):
                return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def _check_media(self, empty: bool) -> None:
        coding = self.header(b"content-encoding")
        if coding is not None and coding.strip().lower() != "identity":
            raise _encoded(coding)
        declared = self.header(b"content-type")
        if declared is None:
            if empty:
                raise MalformedRequest("the body is empty; send a JSON object")
            raise UnsupportedMedia("Content-Type is missing; send application/json")
        if declared == "application/json":
            return
        name, *parameters = (part.strip().lower() for part in declared.split(";"))
        if name != "application/json":
            raise UnsupportedMedia(f"Content-Type is {declared[:100]!r}; send application/json")
        for parameter in filter(None, parameters):
            key, _, value = parameter.partition("=")
            if key.strip() != "charset" or value.strip().strip('"') not in ("utf-8", "utf8", "us-ascii"):
                raise UnsupportedMedia(f"Content-Type is {declared[:100]!r}; send UTF-8")

    async def disconnected(self) -> None:
        """Return when the client has disconnected. Call it after the body was read, or if none is expected. If the
        credential of the caller is no longer valid, the task that runs this is cancelled.
        """
        authenticator = self.components.authenticator
        watching: contextlib.AbstractContextManager[object] = contextlib.nullcontext()
        if authenticator is not None:
            task = asyncio.current_task()
            assert task is not None
            watching = authenticator.watching(self.principal, task.cancel)
        with watching:
            while (await self.receive())["type"] != "http.disconnect":
                pass

    @property
    def is_valid(self) -> bool:
        """Whether the credential of the caller is still valid."""
        authenticator = self.components.authenticator
        return authenticator is None or authenticator.is_valid(self.principal)

    def check_valid(self) -> None:
        """Raise Unauthenticated if the credential of the caller is no longer valid."""
        if not self.is_valid:
            raise Unauthenticated("the credential was revoked or has expired during the request")

    @property
    def instance(self) -> str:
        """The path of the request, as problem documents report it."""
        return self._prefix + quote(self.scope["path"], safe=_SAFE_IN_PATH)

    def render_problem(self, problem: Problem) -> bytes:
        return render_problem(problem, self.instance, self.trace_id, self.base)

    def problem_response(self, problem: Problem) -> Response:
        return problem_response(problem, self.instance, self.trace_id, self.base)


def problem_response(problem: Problem, instance: str, trace_id: str, base: str) -> Response:
    """Return the response to a request at the path `instance`. `base` is the path of the service."""
    body = render_problem(problem, instance, trace_id, base)
    headers = [
        (b"content-type", PROBLEM_TYPE.encode()),
        (b"content-length", b"%d" % len(body)),
        *header_lines(problem.headers),
    ]
    if "Cache-Control" not in problem.headers:
        # Caches may keep a 404 or 410 that has no Cache-Control.
        headers.append((b"cache-control", b"no-store"))
    if problem.status in (429, 503) and "Retry-After" not in problem.headers:
        headers.append((b"retry-after", b"5"))
    return Response(problem.status, headers, body)


def wrong_parameter(name: str, detail: str) -> InvalidInput:
    """Return the problem of a query parameter. Its `pointer` begins with `?`, unlike pointers into a body."""
    return InvalidInput.at(f"?{name}", detail)


def _too_large(most: int) -> PayloadTooLarge:
    return PayloadTooLarge(f"the body is larger than {most} bytes")


def _encoded(coding: str) -> UnsupportedMedia:
    return UnsupportedMedia(
        f"Content-Encoding {coding[:100]!r} is not supported; send the body unencoded"
    )


class BodyStream:
    """The body of a request as an asynchronous iterator. It may have any size, but has a minimal rate. It ends with
    Unauthenticated if the credential of the caller is no longer valid. `received`: its size was not declared, so its bytes
    count for the limit of the tenant as they arrive.
    """

    def __init__(self, request: HttpRequest, received: ReceivedBytes | None = None) -> None:
        self._receive = request.receive
        self.received = received
        self._check_valid = None if request.principal.credential is None else request.check_valid
        self._ended = False
        coding = request.header(b"content-encoding")
        extension = (request.scope.get("extensions") or {}).get(STREAM)
        if extension is not None:
            extension["min_rate"] = request.components.config.uploads.min_rate
        if coding is not None and coding.strip().lower() != "identity":
            raise _encoded(coding)

    def __aiter__(self) -> BodyStream:
        return self

    async def __anext__(self) -> bytes:
        while not self._ended:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise Disconnected
            if self._check_valid is not None:
                self._check_valid()
            self._ended = not message.get("more_body", False)
            data: bytes = message.get("body", b"")
            if data:
                if self.received is not None:
                    await self.received.add(len(data))
                return data
        raise StopAsyncIteration
