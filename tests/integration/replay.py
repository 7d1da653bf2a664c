"""A server that answers as the vendors of api_vendors do, by method and path, and keeps what it was sent."""

from __future__ import annotations

import json
from typing import Any

from aiohttp import web

from tests.integration.api_vendors import Told, Vendor, at
from tests.integration.third_party import ThirdParty
from tests.unit.fake_service import Reply


class Replay(ThirdParty):
    """Answers by method and path, or by the operation that AWS names in a header; keeps what was sent."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[tuple[str, str, Any]] = []

    def forget(self) -> None:
        """Clear all requests and responses for the next test."""
        self._scripts.clear()
        for kept in (self.asked, self.bodies, self.came, self.sent):
            kept.clear()

    def tell(self, route: tuple[str, str], *answers: Told | Reply) -> None:
        self.on(*route, *(self._reply(a) if isinstance(a, tuple) else a for a in answers))

    def _reply(self, answer: Told) -> Reply:
        status, body, headers = answer

        async def reply(request: web.Request) -> web.StreamResponse:
            filled = at(self.url, body)
            data = filled if isinstance(filled, bytes) else json.dumps(filled).encode()
            kind = {} if isinstance(filled, bytes) else {"Content-Type": "application/json"}
            named = {name: value.replace("{url}", self.url) for name, value in headers.items()}
            return web.Response(status=status, body=data, headers={**kind, **named})

        return reply

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        what = _what(request, body)
        csv = "csv" in request.content_type
        self.sent.append(
            (what, request.path, body.decode() if csv else json.loads(body) if body else None)
        )
        replies = self._scripts.get((what, request.path))
        if replies is not None:
            self._scripts[request.method, request.path] = replies
        return await super()._answer(request)

    def bodies_of(self, route: tuple[str, str]) -> list[Any]:
        return [body for what, path, body in self.sent if (what, path) == route]


def _what(request: web.Request, body: bytes) -> str:
    """What is asked for: the method, the operation that AWS names in a header, or what GraphQL names in the body."""
    if "graphql" in request.path:
        text = body.decode()
        return next(
            name for name in ("bulkOperationRunQuery", "bulkOperationCancel", "node") if name in text
        )
    return request.headers.get("X-Amz-Target", request.method)


def play(server: Replay, vendor: Vendor, *answers: Told | Reply) -> None:
    """Takes submissions, and answers questions in this order; the last answer stays."""
    server.tell(vendor.submit, vendor.accepted)
    server.tell(vendor.ask, *answers)
    for route, _ in vendor.after:
        server.tell(route, said({}))
    if vendor.fetch is not None:
        server.tell(("GET", vendor.fetch[0]), vendor.fetch[1])


def said(body: Any) -> Told:
    return 200, body, {}
