"""The ASGI application: finds the operation, sends its answer, and turns whatever goes wrong into a problem document.

1. Every answer that is not a success is application/problem+json.
2. An exception that nobody expected is logged under the traceId that the caller is told.
3. The lifespan belongs to whoever puts the service together; it is not handled here.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Sequence

from bide.core.errors import Internal, Problem, Unavailable
from bide.core.wire import Event
from bide.server.http import (
    Parts,
    chunks,
    control,
    cors,
    docs,
    health,
    jobs,
    metrics,
    presigned,
    problems,
    queues,
    results,
    submit,
    tus,
    uploads,
)
from bide.server.http.exchange import REPLY, Answer, Disconnected, Receive, Request, Scope, Send
from bide.server.http.hosts import Hosts, read_names
from bide.server.http.operations import Dispatch, Operation
from bide.server.store import StoreUnavailable

log = logging.getLogger("bide.http")


class HttpApp:
    """The HTTP interface of one service."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._metrics = metrics.Metrics(parts)
        self.health = health.Health(parts)
        self._rendered: dict[tuple[str, str, str], bytes] = {}  # see status.Shown.body
        self.operations: list[Operation] = [
            *submit.OPERATIONS,
            *jobs.OPERATIONS,
            *control.OPERATIONS,
            *results.OPERATIONS,
            *uploads.OPERATIONS,
            *chunks.OPERATIONS,
            *presigned.OPERATIONS,
            *tus.OPERATIONS,
            *queues.OPERATIONS,
            *self.health.operations,
            *self._metrics.operations,
            *problems.OPERATIONS,
        ]
        self.operations += docs.operations(self.operations, parts.registry)
        self._find = Dispatch(self.operations).find
        self._origins = bool(parts.config.uploads.origins)
        self._trusted = read_names(parts.config.http.trusted_hosts)
        self._hosts: Hosts | None = None

    def check_hosts(self, address: str) -> None:
        """From now on, answer only to the hosts of a service that listens on `address`. A mounted application leaves this
        to the outer one.
        """
        self._hosts = Hosts(address, self._trusted)

    def heard(self, events: Sequence[Event]) -> None:
        """What was committed, for the counters."""
        self._metrics.heard(events)

    def forget(self) -> None:
        """The same version of a job may be another one now."""
        self._rendered.clear()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await _refuse(scope, receive, send)
        request = Request(self._parts, scope, receive, self._rendered)
        try:
            answer = await self._answer(request)
        except Problem as problem:
            answer = request.problem_answer(problem)
        except Disconnected:
            return None
        except Exception as error:
            answer = request.problem_answer(_unexpected(request, error))
        if self._origins and (origin := cors.allowed_origin(request)) is not None:
            answer.headers += cors.shown(origin)
            if answer.stream is not None:
                send = cors.showing(send, origin)
        if answer.stream is not None:
            # Once it has begun there is no other answer: an error from here on ends the connection.
            return await answer.stream(scope, receive, send)
        return await _send(answer, scope, send)

    async def _answer(self, request: Request) -> Answer:
        if self._hosts is not None:
            self._hosts.check(request)
        cors.check_origin(request, self._trusted)
        method = request.scope["method"]
        if method == "POST":
            tus.override(request)
        elif method == "OPTIONS" and (asked := cors.preflight(request)) is not None:
            return asked
        return await self._find(request)(request)


async def _send(answer: Answer, scope: Scope, send: Send) -> None:
    body = b"" if scope["method"] == "HEAD" else answer.body
    reply = scope.get(REPLY)
    if reply is not None and reply(answer.status, answer.headers, body):
        return
    await send({"type": "http.response.start", "status": answer.status, "headers": answer.headers})
    await send({"type": "http.response.body", "body": body})


def _unexpected(request: Request, error: Exception) -> Problem:
    method, path = request.scope["method"], request.path
    if isinstance(error, StoreUnavailable):
        log.error("%s %s: %s [%s]", method, path, error, request.trace_id)
        return Unavailable(f"the store cannot be used right now: {error}")
    if isinstance(error, sqlite3.OperationalError):
        log.error("%s %s: the store: %s [%s]", method, path, error, request.trace_id)
        return Unavailable("the store cannot be used right now")
    log.error("%s %s failed [%s]", method, path, request.trace_id, exc_info=error)
    return Internal("something went wrong in the service; its log has it under this traceId")


async def _refuse(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] != "websocket":
        raise RuntimeError(f"the HTTP edge does not speak {scope['type']}")
    await receive()
    await send({"type": "websocket.close", "code": 1000})
