"""One request and its answer, as the handlers see them.

A request is a thin view of the ASGI scope: headers and query are only read when asked for, because most requests
are polls and need one or two of them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from functools import cached_property
from random import getrandbits
from typing import Any
from urllib.parse import parse_qsl, quote

from bide.core.errors import InvalidInput, MalformedRequest, PayloadTooLarge, Problem, UnsupportedMedia
from bide.core.wire import PROBLEM_TYPE, encode, read_traceparent, render_problem
from bide.server.http import Parts

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]
Stream = Callable[[Scope, Receive, Send], Awaitable[None]]

MOST_PARAMETERS = 200
# In a scope of our own server: takes status, headers and body in one go; False when it cannot.
REPLY = "bide.reply"
_JSON = (b"content-type", b"application/json")
_SAFE_IN_PATH = "/:@!$&'()*+,;=~-._"


class Disconnected(Exception):
    """The caller has left: nobody is there to be answered."""


class Answer:
    """What is sent back: a status, headers and all of the body at once, or a `stream` that sends for itself."""

    __slots__ = ("body", "headers", "status", "stream")

    def __init__(
        self, status: int, headers: Headers, body: bytes = b"", stream: Stream | None = None
    ) -> None:
        self.status = status
        self.headers = headers
        self.body = body
        self.stream = stream


def json_answer(status: int, body: bytes, *more: tuple[bytes, bytes]) -> Answer:
    return Answer(status, [_JSON, (b"content-length", b"%d" % len(body)), *more], body)


def object_answer(value: Any, *more: tuple[bytes, bytes], status: int = 200) -> Answer:
    return json_answer(status, encode(value), *more)


def text_answer(content_type: str, body: bytes, *more: tuple[bytes, bytes]) -> Answer:
    length = (b"content-length", b"%d" % len(body))
    return Answer(200, [(b"content-type", content_type.encode()), length, *more], body)


class Request:
    """A request on its way through the edge. `args` are the path's parameters, in order."""

    details = True  # False: who asks is not told more than a status

    def __init__(
        self, parts: Parts, scope: Scope, receive: Receive, rendered: dict[tuple[str, str, str], bytes]
    ) -> None:
        self.parts = parts
        self.rendered = rendered
        self.scope = scope
        self.receive = receive
        self.args: list[str] = []
        self._headers: dict[bytes, bytes] | None = None
        self._trace_id: str | None = None
        path: str = scope["path"]
        root: str = scope.get("root_path", "")
        if root:
            # Mounted in another application: what comes before us is not ours to match, but belongs in links.
            root = root.rstrip("/")
            if path == root or path.startswith(root + "/"):
                path = path[len(root) :]
            root = quote(root, safe=_SAFE_IN_PATH)
        self.path = path
        self.base = root

    def header(self, name: bytes) -> str | None:
        """A header's value, with repeated lines joined; None when there is none."""
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
            self._trace_id = (parent and read_traceparent(parent)) or f"{getrandbits(128):032x}"
        return self._trace_id

    @cached_property
    def query(self) -> dict[str, list[str]]:
        text = self.scope["query_string"].decode("latin-1")
        found: dict[str, list[str]] = {}
        try:
            pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=MOST_PARAMETERS)
        except ValueError:
            raise MalformedRequest(f"more than {MOST_PARAMETERS} query parameters") from None
        for name, value in pairs:
            found.setdefault(name, []).append(value)
        return found

    def one(self, name: str) -> str | None:
        """A query parameter that may be given once."""
        values = self.query.get(name)
        if values is None:
            return None
        if len(values) > 1:
            raise wrong_parameter(name, "given more than once")
        return values[0]

    async def json(self) -> bytes:
        """The whole body, when it says that it is JSON and is not too large."""
        most = self.parts.config.http.max_body
        length = self.header(b"content-length")
        # Not every server has looked at it: "²" is a digit too, and int() refuses thousands of them.
        if length and length.isascii() and length.isdigit() and (len(length) > 15 or int(length) > most):
            raise _too_large(most)
        body = await self._body(most)
        self._check_media(empty=not body)
        return body

    async def raw(self) -> bytes:
        """The whole body, whatever it says that it is, when it is not too large."""
        return await self._body(self.parts.config.http.max_body)

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
            raise UnsupportedMedia(f"Content-Encoding {coding[:100]!r} is not read; send it as it is")
        declared = self.header(b"content-type")
        if declared is None:
            if empty:
                raise MalformedRequest("the body is empty; a JSON object is needed")
            raise UnsupportedMedia("Content-Type is missing; application/json is needed")
        if declared == "application/json":
            return
        name, *parameters = (part.strip().lower() for part in declared.split(";"))
        if name != "application/json":
            raise UnsupportedMedia(f"Content-Type is {declared[:100]!r}; application/json is needed")
        for parameter in filter(None, parameters):
            key, _, value = parameter.partition("=")
            if key.strip() != "charset" or value.strip().strip('"') not in ("utf-8", "utf8", "us-ascii"):
                raise UnsupportedMedia(f"Content-Type is {declared[:100]!r}; only UTF-8 is read")

    async def left(self) -> None:
        """Returns when the caller has gone. To be used after the body was read, or when none is expected."""
        while (await self.receive())["type"] != "http.disconnect":
            pass

    @property
    def instance(self) -> str:
        """Where the request went, as problems tell it."""
        return quote(self.scope["path"], safe=_SAFE_IN_PATH)

    def render_problem(self, problem: Problem) -> bytes:
        return render_problem(problem, self.instance, self.trace_id, self.base)

    def problem_answer(self, problem: Problem) -> Answer:
        body = self.render_problem(problem)
        headers = [
            (b"content-type", PROBLEM_TYPE.encode()),
            (b"content-length", b"%d" % len(body)),
            *((name.lower().encode(), value.encode()) for name, value in problem.headers.items()),
        ]
        if problem.status in (429, 503) and "Retry-After" not in problem.headers:
            headers.append((b"retry-after", b"5"))
        return Answer(problem.status, headers, body)


def wrong_parameter(name: str, detail: str) -> InvalidInput:
    """A query parameter that cannot be obeyed. Its `pointer` begins with `?`, which no pointer into a body does."""
    return InvalidInput(f"{name}: {detail}", errors=[{"pointer": f"?{name}", "detail": detail}])


def _too_large(most: int) -> PayloadTooLarge:
    return PayloadTooLarge(f"the body is larger than {most} bytes")
