"""One request to an ASGI application, without a network."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec

from tests.integration.http.service import Reply, scope


async def call(
    app: Any,
    method: str,
    target: str,
    *,
    json: Any = None,
    body: bytes = b"",
    headers: Mapping[str, str] | None = None,
) -> Reply:
    lines = {"host": "service.example", **{k.lower(): v for k, v in (headers or {}).items()}}
    if json is not None:
        body = msgspec.json.encode(json)
        lines.setdefault("content-type", "application/json")
    if body:
        lines.setdefault("content-length", str(len(body)))
    waiting = [body]
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        if waiting:
            return {"type": "http.request", "body": waiting.pop(), "more_body": False}
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope(method, target, lines), receive, send)
    answered = {k.decode(): v.decode() for k, v in sent[0]["headers"]}
    return Reply(sent[0]["status"], answered, b"".join(m.get("body", b"") for m in sent[1:]))
