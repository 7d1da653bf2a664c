"""The handshake of a WebSocket: a GET request that the application accepts, or answers as any other request.

Until the application accepts it, it is a request of its HTTP connection. Then the connection switches to a
`WebSocketConnection`, and `receive` and `send` are those of the WebSocket.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from websockets.datastructures import Headers as HandshakeHeaders
from websockets.http11 import Request
from websockets.server import ServerProtocol

from bide.server.http.request import Headers
from bide.service.httpd.request_cycle import Message, RequestCycle, check_header
from bide.service.httpd.websocket import WebSocketConnection

if TYPE_CHECKING:
    from bide.service.httpd.connection import HttpConnection

log = logging.getLogger("bide.http")

DENIAL = "websocket.http.response"  # an ASGI extension: the application can send a response instead of accepting
_BODY = (b"content-length", b"transfer-encoding")


def accept_key(method: str, version: str, headers: Headers) -> str | None:
    """Return the `Sec-WebSocket-Accept` for the head of a request; None if the request is not a valid handshake."""
    if method != "GET" or version != "1.1" or any(name in _BODY for name, _ in headers):
        return None
    fields = HandshakeHeaders()
    for name, value in headers:
        if name in (b"connection", b"upgrade") or name.startswith(b"sec-websocket-"):
            fields[name.decode()] = value.decode("latin-1")
    response = ServerProtocol().accept(Request("/", fields))
    return response.headers["Sec-WebSocket-Accept"] if response.status_code == 101 else None


class Handshake(RequestCycle):
    """The request of a WebSocket, and the WebSocket that it becomes."""

    __slots__ = ("_accept_key", "_connected", "_websocket", "_websocket_scope", "early")

    def __init__(self, connection: HttpConnection, scope: dict[str, Any], key: str) -> None:
        super().__init__(connection, scope, keep_alive=False, expects_continue=False)
        self.body_complete = True
        self.early = bytearray()  # received before the application accepted
        self._accept_key = key
        self._connected = False  # the application has received websocket.connect
        self._websocket: WebSocketConnection | None = None
        self._websocket_scope = {
            **{name: value for name, value in scope.items() if name != "method"},
            "type": "websocket",
            "scheme": "ws",
            "subprotocols": _subprotocols(scope["headers"]),
            "extensions": {DENIAL: {}},
        }

    async def run(self, app: Any) -> None:
        try:
            await app(self._websocket_scope, self.receive, self.send)
        except Exception:
            log.exception("WebSocket %s failed", self.scope["path"])
            self._abandon()
        except BaseException:
            self._abandon()
            raise
        else:
            if self._websocket is not None:
                self._websocket.close(1000)
            elif not self.response_complete and not self.disconnected:
                log.error("WebSocket %s ended without an answer to the handshake", self.scope["path"])
                self._abandon()

    def _abandon(self) -> None:
        if self._websocket is not None:
            self._websocket.close(1011, "the service failed unexpectedly; its log has the error")
        else:
            super()._abandon()

    async def receive(self) -> Message:
        if not self._connected:
            self._connected = True
            return {"type": "websocket.connect"}
        while self._websocket is None and not (self.disconnected or self.response_complete):
            if self._event is None:
                self._event = asyncio.Event()
            self._event.clear()
            await self._event.wait()
        if self._websocket is not None:
            return await self._websocket.receive()
        return {"type": "websocket.disconnect", "code": 1006, "reason": ""}

    async def send(self, message: Message) -> None:
        kind = message["type"]
        if self._websocket is not None:
            await self._websocket.send(message)
        elif kind == "websocket.accept":
            self._accept(message)
        elif kind == "websocket.close":
            await super().send({"type": "http.response.start", "status": 403, "headers": []})
            await super().send({"type": "http.response.body"})
        elif kind.startswith(DENIAL):
            await super().send({**message, "type": kind.removeprefix("websocket.")})
        else:
            raise RuntimeError(f"ASGI message {kind!r} is not supported before websocket.accept")

    def _accept(self, message: Message) -> None:
        if self.response_started or self._start is not None:
            raise RuntimeError("the handshake has already been answered")
        connection = self._connection
        headers: Headers = [
            (b"upgrade", b"websocket"),
            (b"connection", b"Upgrade"),
            (b"sec-websocket-accept", self._accept_key.encode()),
        ]
        if subprotocol := message.get("subprotocol"):
            headers.append((b"sec-websocket-protocol", subprotocol.encode("latin-1")))
        headers += message.get("headers", ())
        lines = [b"HTTP/1.1 101 Switching Protocols\r\n", connection.date]
        for name, value in headers:
            check_header(name, value)
            lines += (name, b": ", value, b"\r\n")
        if self.disconnected:
            return
        connection.write(b"".join([*lines, b"\r\n"]))
        self.response_started = self.response_complete = True
        self._websocket = connection.switch(bytes(self.early))
        self.early.clear()
        self.wake()


def _subprotocols(headers: Headers) -> list[str]:
    values = [value.decode("latin-1") for name, value in headers if name == b"sec-websocket-protocol"]
    return [name for value in values for part in value.split(",") if (name := part.strip())]
