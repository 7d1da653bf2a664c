"""What an operation of the HTTP interface is: the one table that both the dispatch and openapi.json are made from.

A path's segments are matched by walking a tree, literal names before parameters; a job is found in two steps.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from bide.core.errors import InvalidInput, MethodNotAllowed, NotFound, Problem
from bide.server.http.exchange import Answer, Request

Handler = Callable[[Request], Awaitable[Answer]]
Schema = dict[str, Any]


@dataclass(frozen=True)
class Parameter:
    """A query, header or path parameter."""

    name: str
    place: str  # "query", "header" or "path"
    description: str
    schema: Schema = field(default_factory=lambda: {"type": "string"})
    required: bool = False


@dataclass(frozen=True)
class Reply:
    """A successful answer. `shape` is a type that its body is an instance of; a schema where no type says it."""

    status: int
    description: str
    shape: Any = None
    content_types: tuple[str, ...] = ("application/json",)
    headers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Operation:
    method: str
    path: str
    handler: Handler
    name: str  # the operationId
    summary: str
    tag: str
    replies: tuple[Reply, ...]
    problems: tuple[type[Problem], ...] = ()
    parameters: tuple[Parameter, ...] = ()
    body: str | None = None  # the name of the body's schema among the components
    reads: Any = None  # the struct that it is, when it is one
    content: tuple[tuple[str, Schema], ...] = ()  # bodies other than JSON: their type and schema
    needs_body: bool = True
    description: str = ""
    listed: bool = True  # False: it speaks a protocol that has a document of its own
    example: str = ""  # what follows `curl`, with $BASE for where the service is

    @property
    def query_names(self) -> frozenset[str]:
        return frozenset(p.name for p in self.parameters if p.place == "query")


@dataclass
class _Node:
    """A place in the tree of paths."""

    literals: dict[str, _Node] = field(default_factory=dict)
    parameter: _Node | None = None
    # By method: the handler and the query parameters that it knows.
    methods: dict[str, tuple[Handler, frozenset[str]]] = field(default_factory=dict)

    def step(self, segment: str) -> _Node:
        if segment.startswith("{"):
            self.parameter = self.parameter or _Node()
            return self.parameter
        return self.literals.setdefault(segment, _Node())


class Dispatch:
    """From a request to its handler."""

    def __init__(self, operations: Iterable[Operation]) -> None:
        self._root = _Node()
        for operation in operations:
            node = self._root
            for segment in operation.path.split("/")[1:]:
                node = node.step(segment)
            entry = (operation.handler, operation.query_names)
            node.methods[operation.method] = entry
            if operation.method == "GET":
                node.methods["HEAD"] = entry

    def find(self, request: Request) -> Handler:
        node = self._root
        for segment in request.path.split("/")[1:]:
            following = node.literals.get(segment)
            if following is None:
                following = node.parameter
                if following is None or not segment:
                    raise _no_such_page(request)
                request.args.append(segment)
            node = following
        entry = node.methods.get(request.scope["method"])
        if entry is None:
            if not node.methods:
                raise _no_such_page(request)
            allowed = ", ".join(sorted(node.methods))
            raise MethodNotAllowed(f"this address takes {allowed}", headers={"Allow": allowed})
        handler, known = entry
        if request.scope["query_string"]:
            _check_names(request, known)
        return handler


def _no_such_page(request: Request) -> NotFound:
    return NotFound(f"there is nothing at {request.path[:200]!r}")


def _check_names(request: Request, known: frozenset[str]) -> None:
    unknown = [name for name in request.query if name not in known]
    if unknown:
        there_are = f"there are {', '.join(sorted(known))}" if known else "there are none here"
        raise InvalidInput(
            f"unknown query parameter {', '.join(unknown)[:200]}; {there_are}",
            errors=[{"pointer": f"?{name}", "detail": "unknown query parameter"} for name in unknown],
        )
