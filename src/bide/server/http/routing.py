"""Operations of the HTTP interface, and the router. The router and openapi.json use the same table of operations.

The router matches the segments of a path in a tree, literal names before parameters; `/jobs/{id}` takes two steps. It
ignores a slash at the end.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from bide.core.errors import InvalidInput, MethodNotAllowed, NotFound, Problem
from bide.server.http.request import HttpRequest, Response
from bide.server.identities import Scope

Handler = Callable[[HttpRequest], Awaitable[Response]]
Schema = dict[str, Any]


@dataclass(frozen=True)
class Parameter:
    """A query, header or path parameter."""

    name: str
    place: str  # "query", "header" or "path"
    description: str
    schema: Schema = field(default_factory=lambda: {"type": "string"})
    required: bool = False


# Of operations that a page calls where it cannot set a header, such as a download.
TOKEN = Parameter("token", "query", "A token of POST /tokens, in place of `Authorization`.")


@dataclass(frozen=True)
class ResponseSpec:
    """A successful response. `shape` is the type of its body, or a schema if there is no type."""

    status: int
    description: str
    shape: Any = None
    content_types: tuple[str, ...] = ("application/json",)
    headers: tuple[str, ...] = ()


@dataclass(frozen=True)
class HttpOperation:
    method: str
    path: str
    handler: Handler
    name: str  # the operationId
    summary: str
    tag: str
    responses: tuple[ResponseSpec, ...]
    scope: Scope | None  # what a caller needs; None: the operation is public
    problems: tuple[type[Problem], ...] = ()
    parameters: tuple[Parameter, ...] = ()
    body: str | None = None  # the name of the schema of a JSON body, among the components
    reads: Any = None  # the struct of the body, if it has one
    content: tuple[tuple[str, Schema], ...] = ()  # content type and schema of other bodies
    parts: tuple[tuple[str, str], ...] = ()  # content types of the parts of a form, by name
    needs_body: bool = True
    description: str = ""
    listed: bool = True  # False: OpenAPI cannot describe it
    other_parameters: bool = False  # it ignores unknown query parameters, instead of refusing them
    audited: bool = False  # the audit log has it, although it is a GET
    example: str = ""  # arguments of `curl`, with $BASE for the URL of the service
    # It shows a caller who sees some jobs only these, or creates only such jobs, although its path names none.
    narrows: bool = False

    @property
    def is_for_some_jobs(self) -> bool:
        """Whether a caller who sees only some jobs may call it. Operations with ids in the path find only what the caller
        sees.
        """
        return self.narrows or "{jobId}" in self.path or "{uploadId}" in self.path

    @property
    def query_names(self) -> frozenset[str]:
        return frozenset(p.name for p in self.parameters if p.place == "query")


@dataclass(frozen=True, slots=True)
class Route:
    """What the router finds: the operation, and what each request needs of it."""

    operation: HttpOperation
    handler: Handler
    scope: Scope | None
    query_names: frozenset[str]


@dataclass
class _Node:
    """A segment in the tree of paths."""

    literals: dict[str, _Node] = field(default_factory=dict)
    parameter: _Node | None = None
    methods: dict[str, Route] = field(default_factory=dict)

    def step(self, segment: str) -> _Node:
        if segment.startswith("{"):
            self.parameter = self.parameter or _Node()
            return self.parameter
        return self.literals.setdefault(segment, _Node())


class Router:
    """Finds the operation of a request."""

    def __init__(self, operations: Iterable[HttpOperation]) -> None:
        self._root = _Node()
        for operation in operations:
            node = self._root
            for segment in operation.path.removesuffix("/").split("/")[1:]:
                node = node.step(segment)
            route = Route(operation, operation.handler, operation.scope, operation.query_names)
            node.methods[operation.method] = route
            if operation.method == "GET":
                node.methods["HEAD"] = route

    def find(self, request: HttpRequest, method: str | None = None) -> Route:
        """Return the route of a request, or of its path and `method`. Raise a Problem if there is none."""
        method = method or request.scope["method"]
        node, path = self._root, request.path
        if path and not path.startswith("/"):  # `*`
            raise self._not_found(request)
        for segment in path.removesuffix("/").split("/")[1:]:
            following = node.literals.get(segment)
            if following is None:
                following = node.parameter
                if following is None or not segment:
                    raise self._not_found(request)
                request.args.append(segment)
            node = following
        route = node.methods.get(method)
        if route is None:
            if not node.methods:
                raise self._not_found(request)
            allowed = ", ".join(sorted(node.methods))
            raise MethodNotAllowed(
                f"{request.path[:200]!r} does not support {method[:50]}; use {allowed}",
                headers={"Allow": allowed},
            )
        return route

    def _not_found(self, request: HttpRequest) -> NotFound:
        path, base = request.path[:200], request.base
        near = self._near(path)
        hint = f"See {base}/docs for all paths." if near is None else f"Did you mean {base}{near}?"
        return NotFound(f"No such path: {path!r}. {hint}")

    def _near(self, path: str) -> str | None:
        """Return the path with misspelled segments corrected; None if there is no such path either."""
        node, found = self._root, []
        for segment in path.rstrip("/").split("/")[1:]:
            near = get_close_matches(segment, node.literals, 1)
            if near:
                node = node.literals[near[0]]
            elif node.parameter is not None and segment:
                node = node.parameter
            else:
                return None
            found.append(near[0] if near else segment)
        return "/" + "/".join(found) if node.methods and found else None


def check_names(request: HttpRequest, known: frozenset[str]) -> None:
    """Raise InvalidInput if the query has a parameter that the operation does not know."""
    unknown = [name for name in request.query if name not in known]
    if unknown:
        hint = f"use {', '.join(sorted(known))}" if known else "this operation has none"
        raise InvalidInput(
            f"unknown query parameter {', '.join(unknown)[:200]}; {hint}",
            errors=[{"pointer": f"?{name}", "detail": "unknown query parameter"} for name in unknown],
        )
