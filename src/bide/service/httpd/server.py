"""Listens for connections, and stops in order: no new connections, the remaining responses, then an abort."""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
import socket
from email.utils import formatdate
from typing import Any

from bide.core.errors import SetupError
from bide.service.httpd.connection import SPARE, ConnectionLimits, Connections, HttpConnection
from bide.service.httpd.request_cycle import WriteBuffer

log = logging.getLogger("bide")

BACKLOG = 2048
OTHER_FILES = 400  # file descriptors besides connections: children, store, downloads
# Seconds between two checks of the deadlines of connections; also the resolution of `Date`.
SWEEP_EVERY = 1.0
SHUTDOWN_TIMEOUT = 3.0  # seconds that a stop waits for responses before it aborts connections


def bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        if error.errno == errno.EADDRINUSE:
            raise SetupError(
                f"port {port} on {host} is in use: stop the other process, or choose another port with --port"
            ) from None
        raise SetupError(f"cannot listen on {host} port {port}: {error.strerror}") from None
    return sock


def allow_connections(most: int) -> int:
    """Raise the limit of open files as needed; return how many connections it allows, at most `most`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return most
    wanted = most + SPARE + OTHER_FILES
    if soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    allowed = min(most, max(soft - SPARE - OTHER_FILES, soft // 4))
    if allowed < most:
        log.warning(
            "the limit of open files allows %d connections instead of %d: raise it (ulimit -n)",
            allowed,
            most,
        )
    return allowed


class HttpServer:
    """Serves an ASGI application on a bound socket."""

    def __init__(self, app: Any, limits: ConnectionLimits, root_path: str = "") -> None:
        self._app = app
        self._limits = limits
        self._root_path = root_path

    async def start(self, sock: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        self._connections = Connections(
            self._app, self._limits, self._root_path, loop, WriteBuffer(loop)
        )
        self._every_second()
        self._listener = await loop.create_server(
            lambda: HttpConnection(self._connections), sock=sock, backlog=BACKLOG
        )

    def _every_second(self) -> None:
        connections = self._connections
        connections.date = b"date: %b\r\n" % formatdate(usegmt=True).encode()
        self._timer = connections.loop.call_later(SWEEP_EVERY, self._every_second)
        connections.sweep()

    async def stop(self) -> None:
        """Accept no more connections, send the remaining responses, close WebSockets (1001), and end. Requests that do
        not end, such as large uploads, are aborted. Their received bytes are kept, as after a broken connection.
        """
        connections = self._connections
        self._listener.close()
        connections.stopping = True
        for connection in list(connections.open):
            connection.shutdown()
        if not await self._ended():
            for connection in list(connections.open):
                connection.abort()
            if not await self._ended():
                log.error("%d requests did not end and are cancelled", len(connections.tasks))
                for task in connections.tasks:
                    task.cancel()
        self._timer.cancel()

    async def _ended(self) -> bool:
        """Wait for all connections and requests; return False after SHUTDOWN_TIMEOUT."""
        connections = self._connections
        end = connections.loop.time() + SHUTDOWN_TIMEOUT
        while connections.open or connections.tasks:
            if connections.loop.time() >= end:
                return False
            await asyncio.sleep(0.01)
        return True
