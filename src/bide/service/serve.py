"""One HTTP process: binds, starts the service, serves, and on a signal drains before it goes.

A first SIGTERM or SIGINT drains: nothing new is started, status is still told, running jobs may finish. A second one
hands the running jobs back at once. After the drain the service stops accepting connections, answers the requests that
it has, and closes the store last.
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
from bide.service.build import Service
from bide.service.connection import SPARE, Limits, sweep, within
from bide.service.loops import loop_factory

log = logging.getLogger("bide")

ANSWERING = 3.0  # seconds that a stop waits for requests to be answered; then their connections are cut
OWN_FILES = 400  # what the service opens besides connections: children, store, files that are sent


class _Server(uvicorn.Server):
    """Signals are ours: a drain comes first. So is the patience with slow callers."""

    on_started: Callable[[], None]

    def __init__(self, config: uvicorn.Config, limits: Limits) -> None:
        super().__init__(config)
        self._limits = limits

    async def on_tick(self, counter: int) -> bool:
        if counter % 10 == 0:  # a tick is a tenth of a second
            sweep(self.server_state.connections, self._limits, asyncio.get_running_loop().time())
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """A request that does not end, such as a large upload, meets what a broken connection would be: what came of it
        is kept.
        """
        cutting = asyncio.get_running_loop().call_later(ANSWERING, self._cut)
        try:
            await super().shutdown(sockets)
        finally:
            cutting.cancel()
        if self.server_state.tasks:
            await asyncio.wait(self.server_state.tasks, timeout=ANSWERING)

    def _cut(self) -> None:
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
                f"port {port} on {host} is in use: stop what uses it, or choose another with --port"
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
    """Serves until a signal ends it. `listening` is told the address as soon as requests are answered."""
    sock = bind(config.http.host, config.http.port)
    host, port = sock.getsockname()[:2]
    url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    with contextlib.closing(sock), asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_serve(registry, location, config, sock, lambda: listening(url)))


def allow_connections(most: int) -> int:
    """How many connections this process may have, after its limit of open files was raised as far as needed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return most
    wanted = most + SPARE + OWN_FILES
    if soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    allowed = min(most, max(soft - SPARE - OWN_FILES, soft // 4))
    if allowed < most:
        log.warning("only %d connections at once: raise the limit of open files (ulimit -n)", allowed)
    return allowed


async def _serve(
    registry: Registry,
    location: AppLocation,
    config: Config,
    sock: socket.socket,
    listening: Callable[[], None],
) -> None:
    service = Service(registry, location, config)
    await service.start()
    limits = Limits.of(config.http, allow_connections(config.http.max_connections))
    server = _Server(
        uvicorn.Config(
            service.http,
            http=within(limits),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=int(2 * ANSWERING),
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
    # Threads that put uploads away give the loop its turn back soon: polls wait for it.
    sys.setswitchinterval(0.0005)
    # What is there now stays: looking through it again and again would be a tax on every request.
    gc.collect()
    gc.freeze()
    # A request leaves nothing for the collector, so that it may come seldom: a thousand connections take it milliseconds.
    gc.set_threshold(10_000, 20, 50)
    serving = asyncio.create_task(server.serve(sockets=[sock]))
    gone = asyncio.create_task(ending.wait())
    await asyncio.wait({serving, gone}, return_when=asyncio.FIRST_COMPLETED)
    gone.cancel()
    log.info("stopping: waiting up to %g s for running jobs", config.worker.drain)
    try:
        await service.drain()
        server.should_exit = True
        await serving
    finally:
        await service.close()
