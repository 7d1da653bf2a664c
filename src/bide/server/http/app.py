"""The ASGI application: finds the operation, sends its response, and turns errors into problem documents.

1. Every error response is application/problem+json.
2. An unexpected exception is logged with the traceId of the response.
3. The composition root handles the lifespan, not this module.
"""

from __future__ import annotations

import asyncio
import logging

from bide.core.errors import Internal, NotFound, Problem, Unavailable
from bide.server.http import (
    Components,
    audit,
    bulk,
    chunks,
    control,
    cors,
    docs,
    events,
    health,
    history,
    jobs,
    keys,
    metrics,
    presigned,
    problems,
    queues,
    results,
    sessions,
    sign_in,
    stats,
    submit,
    tokens,
    tus,
    ui,
    uploads,
    webhooks,
    websocket,
)
from bide.server.http.authentication import authenticate, is_known
from bide.server.http.hosts import Hosts, read_names
from bide.server.http.proxies import read_proxies, read_root_path
from bide.server.http.request import Disconnected, HttpRequest, Receive, Response, Scope, Send
from bide.server.http.routing import HttpOperation, Route, Router, check_names
from bide.server.job_tracer import set_caller
from bide.server.store import StoreUnavailable

log = logging.getLogger("bide.http")
REFUSING = (429, 503)  # statuses of problems that /metrics counts


class HttpApp:
    """The HTTP interface of one service."""

    def __init__(self, components: Components) -> None:
        self._components = components
        self.metrics = metrics.Metrics(components)
        self.health = health.Health(components)
        self.operations: list[HttpOperation] = [
            *submit.OPERATIONS,
            *jobs.OPERATIONS,
            *history.OPERATIONS,
            *events.OPERATIONS,
            *control.OPERATIONS,
            *bulk.OPERATIONS,
            *results.OPERATIONS,
            *uploads.OPERATIONS,
            *chunks.OPERATIONS,
            *presigned.OPERATIONS,
            *tus.OPERATIONS,
            *queues.OPERATIONS,
            *webhooks.OPERATIONS,
            *stats.OPERATIONS,
            *keys.OPERATIONS,
            *audit.OPERATIONS,
            *sessions.OPERATIONS,
            *sign_in.OPERATIONS,
            *tokens.OPERATIONS,
            *self.health.operations,
            *self.metrics.operations,
            *websocket.OPERATIONS,
            *problems.OPERATIONS,
            *ui.OPERATIONS,
        ]
        self.operations += docs.operations(self.operations, components.registry)
        self._find = Router(self.operations).find
        self._authenticator = components.authenticator
        auth = components.config.auth
        self._audit = components.audit if auth.enabled and auth.audit else None
        self._traces = components.config.traces.endpoint is not None
        self._origins = bool(components.config.http.origins)
        self._trusted = read_names(components.config.http.trusted_hosts)
        self._proxies = read_proxies(components.config.http.trusted_proxies)
        self.root_path = read_root_path(components.config.http.root_path)
        self._hosts: Hosts | None = None

    def check_hosts(self, address: str) -> None:
        """Make the application reject requests for a host that a service on `address` does not have. Without this call all
        hosts are accepted, as for a mounted application: there the outer application checks the host.
        """
        self._hosts = Hosts(address, self._trusted)

    def forget(self) -> None:
        """Clear the cache, because a version may name another state of the job after the store lost events."""
        self._components.status_bodies.clear()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._connect(scope, receive, send)
        request = HttpRequest(self._components, scope, receive, self.root_path)
        route: Route | None = None
        try:
            self._check(request)
            response = cors.preflight(request) if scope["method"] == "OPTIONS" else None
            if response is None:
                route = self._find(request)
                identities = self._authenticator
                if identities is not None and not is_known(request, route, identities):
                    await authenticate(request, route, identities)
                if scope["query_string"] and not route.operation.other_parameters:
                    check_names(request, route.query_names)
                response = await route.handler(request)
        except Problem as problem:
            if problem.status in REFUSING:
                self._components.limits.count(problem, request.tenant)
            response = request.problem_response(problem)
        except Disconnected:
            self._record(request, route, None)
            return None
        except asyncio.CancelledError:
            self._record(request, route, None)
            raise
        except Exception as error:
            response = request.problem_response(_unexpected(request, error))
        if self._audit is not None:
            self._record(request, route, response)
        if self._origins:
            send = _add_cors_headers(request, response, send)
        if response.stream is not None:
            # After the headers were sent, an error can only close the connection.
            return await response.stream(scope, receive, send)
        body = b"" if scope["method"] == "HEAD" else response.body
        await send(
            {"type": "http.response.start", "status": response.status, "headers": response.headers}
        )
        await send({"type": "http.response.body", "body": body})
        return None

    def _check(self, request: HttpRequest) -> None:
        if self._traces and (parent := request.header(b"traceparent")) is not None:
            set_caller(parent, request.header(b"tracestate"))
        if self._proxies is not None:
            self._proxies.read(request)
        if self._hosts is not None:
            self._hosts.check(request)
        cors.check_origin(request, self._trusted)

    def _record(self, request: HttpRequest, route: Route | None, response: Response | None) -> None:
        """Add a mutating call to the audit log."""
        if (
            self._audit is not None
            and route is not None
            and (request.scope["method"] not in audit.SAFE_METHODS or route.operation.audited)
        ):
            self._audit.add(audit.entry_of(request, route, response, self._proxies))

    async def _connect(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the handshake of a WebSocket."""
        if scope["type"] != "websocket":
            raise RuntimeError(f"ASGI scope {scope['type']!r} is not supported")
        if (await receive())["type"] != "websocket.connect":
            return
        request = HttpRequest(self._components, scope, receive, self.root_path)
        try:
            self._check(request)
            route = self._find(request, "GET")
            if route.handler is not websocket.get_without_upgrade:
                raise NotFound(
                    f"{request.path[:200]!r} is no WebSocket; {request.base}{websocket.PATH} is"
                )
            if self._authenticator is not None:
                await authenticate(request, route, self._authenticator)
            if scope["query_string"]:
                check_names(request, route.query_names)
            websocket.check_handshake(request)
            close = await self._components.limits.open_stream(request.tenant)
        except Problem as problem:
            await websocket.deny(request.problem_response(problem), scope, send)
        else:
            try:
                await websocket.EventSocket(request, send).run()
            finally:
                close()


def _add_cors_headers(request: HttpRequest, response: Response, send: Send) -> Send:
    """Add the CORS headers to a response, if its page may read it. Return the `send` of the response."""
    origin = cors.allowed_origin(request)
    if origin is None:
        return send
    # A new list: responses may share theirs.
    response.headers = [*response.headers, *cors.cors_headers(origin)]
    return send if response.stream is None else cors.with_cors_headers(send, origin)


def _unexpected(request: HttpRequest, error: Exception) -> Problem:
    method, path = request.scope["method"], request.path
    about = {
        "request": f"{method} {path}",
        "trace_id": request.trace_id,
        "tenant": request.tenant,
        "job_id": request.args[0] if request.args and path.startswith("/jobs/") else None,
    }
    if isinstance(error, StoreUnavailable):
        log.error("%s %s: %s [%s]", method, path, error, request.trace_id, extra=about)
        return Unavailable(f"the store is unavailable: {error}")
    log.error("%s %s failed [%s]", method, path, request.trace_id, exc_info=error, extra=about)
    return Internal("the service failed unexpectedly; its log has the error with this traceId")
