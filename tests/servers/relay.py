"""A TCP relay on loopback whose connections a test can reset.

A reset is a TCP RST, at any point of a message. If the server behind the relay does not accept a connection, the relay
accepts and resets it, as a load balancer does. It runs in a thread of its own.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, cast

from tests.servers.ports import HOST

NO_LINGER = struct.pack("ii", 1, 0)  # SO_LINGER: on, with a timeout of 0, so that a close sends a RST


class Relay:
    """Forwards connections from `self.port` to `port`."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._ends: set[_End] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._server = self._run(self._listen()).result(10)
        self.port = int(self._server.sockets[0].getsockname()[1])
        self.resets = 0

    def _run(self, work: Coroutine[Any, Any, Any]) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def _listen(self) -> asyncio.Server:
        return await self._loop.create_server(lambda: _End(self._ends, self._connect), HOST, 0)

    def _connect(self, near: _End) -> None:
        task = self._loop.create_task(self._reach(near))
        near.reaching = task

    async def _reach(self, near: _End) -> None:
        try:
            await self._loop.create_connection(lambda: _End(self._ends, near.join), HOST, self._to)
        except OSError:
            near.reset()

    def reset(self) -> int:
        """Resets all connections, and returns their number."""

        async def cut() -> int:
            ends = list(self._ends)
            for end in ends:
                end.reset()
            return len(ends) // 2

        count = int(self._run(cut()).result(60))
        self.resets += count
        return count

    def lead_to(self, port: int) -> None:
        """Forward new connections to this port."""
        self._to = port

    def end(self) -> None:
        async def close() -> None:
            self._server.close()
            for end in list(self._ends):
                end.reset()

        self._run(close()).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()


class _End(asyncio.Protocol):
    """One side of a connection. The other side sends what this side receives."""

    def __init__(self, ends: set[_End], connected: Callable[[_End], None]) -> None:
        self._ends = ends
        self._connected = connected
        self._transport: asyncio.Transport | None = None
        self._early = bytearray()  # received before the other side was connected
        self.other: _End | None = None
        self.reaching: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._ends.add(self)
        self._connected(self)

    def join(self, far: _End) -> None:
        self.other, far.other = far, self
        if self._transport is None or self._transport.is_closing():
            far.reset()
            return
        far.send(bytes(self._early))
        self._early.clear()

    def send(self, data: bytes) -> None:
        if self._transport is not None and data:
            self._transport.write(data)

    def data_received(self, data: bytes) -> None:
        if self.other is None:
            self._early += data
        else:
            self.other.send(data)

    def pause_writing(self) -> None:
        if self.other is not None and self.other._transport is not None:
            self.other._transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and self.other._transport is not None:
            self.other._transport.resume_reading()

    def reset(self) -> None:
        if self._transport is not None:
            sock = self._transport.get_extra_info("socket")
            if sock is not None and sock.fileno() >= 0:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
            self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._ends.discard(self)
        if self.other is not None and self.other._transport is not None:
            if error is None:
                self.other._transport.close()  # after it has sent its buffer
            else:
                self.other.reset()
