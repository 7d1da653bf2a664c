"""The measured services, and requests to them."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from bench.service import servers
from bide.service.backends import loop_factory

T = TypeVar("T")
APP = "bench.push.app:app"
_sockets: dict[int, socket.socket] = {}


@contextmanager
def push_site(folder: Path, *options: str) -> Iterator[servers.Site]:
    """A service whose queue is paused, so that jobs wait."""
    with servers.bide(folder, app=APP, options=options) as site:
        site.ask("POST", "/queues/default/pause")
        yield site


@contextmanager
def bare(folder: Path) -> Iterator[servers.Site]:
    with (
        servers.python_site(sys.executable, "bare", folder, package="bench.push") as site,
        socket.create_connection((servers.HOST, site.port)) as connection,
    ):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _sockets[site.port] = connection
        yield site


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run the listeners on the event loop of the services."""
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(work)


def round_trip(site: servers.Site) -> None:
    """Send a line to the bare server and receive it again."""
    connection = _sockets[site.port]
    connection.sendall(b"echo\n")
    connection.recv(100)


def write_to_all(site: servers.Site, size: int) -> None:
    _sockets[site.port].sendall(b"write %d\n" % size)


def submit(site: servers.Site, kind: str = "noop", **given: object) -> str:
    job: str = site.ask("POST", "/jobs", {"kind": kind, "input": given or {"n": 1}}).json()["jobId"]
    return job


def cancel(site: servers.Site, job_id: str) -> None:
    site.ask("POST", f"/jobs/{job_id}/cancel")
