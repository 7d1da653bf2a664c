"""WebSockets, over ASGI only."""

from __future__ import annotations

from bide.server.http.request import Response, Scope, Send

DENIAL = "websocket.http.response"  # the ASGI extension for a response instead of a WebSocket


async def deny(response: Response, scope: Scope, send: Send) -> None:
    """Answer a handshake with a response. A server without the extension sends 403 without a body instead."""
    if DENIAL not in (scope.get("extensions") or {}):
        await send({"type": "websocket.close", "code": 1008})
        return
    start = {"type": f"{DENIAL}.start", "status": response.status, "headers": response.headers}
    await send(start)
    await send({"type": f"{DENIAL}.body", "body": response.body})
