"""The HTTP process: binds, starts the service, serves, and drains on a signal.

On the first SIGTERM or SIGINT the service starts no more jobs, waits for running ones, and still answers requests. On
the second it returns the running jobs to the queue immediately. After the drain it stops accepting connections, answers
the remaining requests, and closes the store last.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import logging
import resource
import signal
import socket
import sys
from collections.abc import Callable, Iterator

import uvicorn

from bide.core.errors import SetupError
from bide.server.config import Config
from bide.server.registry import Registry
from bide.server.worker.app_location import AppLocation
from bide.service.assembly import assemble
from bide.service.backends import loop_factory
from bide.service.connection import SPARE, ConnectionLimits, connection_class, sweep

log = logging.getLogger("bide")

SHUTDOWN_TIMEOUT = 3.0  # seconds that a stop waits for responses before it aborts connections
OTHER_FILES = 400  # file descriptors besides connections: children, store, downloads


class _Server(uvicorn.Server):
    """uvicorn's server without its signal handlers, because the service drains first, and with a sweep of connections."""

    on_started: Callable[[], None]

    def __init__(self, config: uvicorn.Config, limits: ConnectionLimits) -> None:
        super().__init__(config)
        self._limits = limits

    async def on_tick(self, counter: int) -> bool:
        if counter % 10 == 0:  # uvicorn ticks ten times per second
            sweep(self.server_state.connections, self._limits, asyncio.get_running_loop().time())
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Aborts the connections of requests that do not end, such as large uploads. Their received bytes are kept, as after
        a broken connection.
        """
        abort_timer = asyncio.get_running_loop().call_later(SHUTDOWN_TIMEOUT, self._abort_connections)
        try:
            await super().shutdown(sockets)
        finally:
            abort_timer.cancel()
        if self.server_state.tasks:
            await asyncio.wait(self.server_state.tasks, timeout=SHUTDOWN_TIMEOUT)

    def _abort_connections(self) -> None:
        for connection in list(self.server_state.connections):
            connection.transport.abort()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.on_started()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


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


def serve(
    registry: Registry,
    location: AppLocation,
    config: Config,
    *,
    listening: Callable[[str], None] = lambda url: None,
) -> None:
    """Serves until a signal stops it. Calls `listening` with the URL when the service accepts requests."""
    sock = bind(config.http.host, config.http.port)
    host, port = sock.getsockname()[:2]
    url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    with contextlib.closing(sock), asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_serve(registry, location, config, sock, lambda: listening(url)))


def allow_connections(most: int) -> int:
    """Raises the limit of open files as needed; returns how many connections it allows, at most `most`."""
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


async def _serve(
    registry: Registry,
    location: AppLocation,
    config: Config,
    sock: socket.socket,
    listening: Callable[[], None],
) -> None:
    service = assemble(registry, location, config)
    await service.start()
    limits = ConnectionLimits.of(config.http, allow_connections(config.http.max_connections))
    server = _Server(
        uvicorn.Config(
            service.http,
            http=connection_class(limits),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=int(2 * SHUTDOWN_TIMEOUT),
        ),
        limits,
    )
    service.http.check_hosts(config.http.host)
    ending = asyncio.Event()

    def signalled() -> None:
        if ending.is_set():
            service.engine.stop_now()
        ending.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, signalled)
    server.on_started = listening
    # Upload threads must release the interpreter lock quickly, because polls wait for the loop.
    sys.setswitchinterval(0.0005)
    # The objects of the startup stay alive, so exclude them from garbage collection.
    gc.collect()
    gc.freeze()
    # Requests leave no cycles, so collect rarely: with a thousand connections a collection takes milliseconds.
    gc.set_threshold(10_000, 20, 50)
    serving = asyncio.create_task(server.serve(sockets=[sock]))
    signal_received = asyncio.create_task(ending.wait())
    await asyncio.wait({serving, signal_received}, return_when=asyncio.FIRST_COMPLETED)
    signal_received.cancel()
    log.info("stopping: waiting up to %g s for running jobs", config.worker.drain)
    try:
        await service.drain()
        server.should_exit = True
        await serving
    finally:
        await service.close()
