"""The HTTP process: binds, starts the service, serves, and drains on a signal.

1. On the first SIGTERM or SIGINT the service accepts and starts no more jobs (503), waits for running ones, and still
   answers other requests. On the second it returns the running jobs to the queue immediately.
2. After the drain it stops accepting connections, answers the remaining requests, and closes the store last.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
import socket
import sys
from collections.abc import Callable

from bide.server.config import Config
from bide.server.registry import Registry
from bide.server.worker.app_location import AppLocation
from bide.service.assembly import assemble
from bide.service.backends import loop_factory
from bide.service.httpd.connection import ConnectionLimits
from bide.service.httpd.server import HttpServer, allow_connections, bind

log = logging.getLogger("bide")


def serve(
    registry: Registry,
    location: AppLocation,
    config: Config,
    *,
    listening: Callable[[str], None] = lambda url: None,
) -> None:
    """Serve until a signal stops it. Calls `listening` with the URL when the service accepts requests."""
    sock = bind(config.http.host, config.http.port)
    host, port = sock.getsockname()[:2]
    url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    with contextlib.closing(sock), asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_serve(registry, location, config, sock, lambda: listening(url)))


async def _serve(
    registry: Registry,
    location: AppLocation,
    config: Config,
    sock: socket.socket,
    listening: Callable[[], None],
) -> None:
    service = assemble(registry, location, config)
    await service.start()
    service.http.check_hosts(config.http.host)
    limits = ConnectionLimits.of(config.http, allow_connections(config.http.max_connections))
    server = HttpServer(service.http, limits, service.http.root_path)
    stopping = asyncio.Event()

    def signalled() -> None:
        if stopping.is_set():
            service.engine.stop_now()
        stopping.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, signalled)
    # Upload threads must release the interpreter lock quickly, because polls wait for the loop.
    sys.setswitchinterval(0.0005)
    # The objects of the startup stay alive, so exclude them from garbage collection.
    gc.collect()
    gc.freeze()
    # Requests leave no cycles, so collect rarely: with a thousand connections a collection takes milliseconds.
    gc.set_threshold(10_000, 20, 50)
    try:
        try:
            await server.start(sock)
            listening()
            await stopping.wait()
            log.info("stopping: waiting up to %g s for running jobs", config.worker.drain)
        finally:
            await service.drain()
        await server.stop()
    finally:
        await service.close()
