"""The heartbeat that each worker stores every few seconds, so that every service knows the live workers."""

from __future__ import annotations

import logging
from collections.abc import Iterable

import msgspec

from bide.server.engine import WorkerState

log = logging.getLogger("bide.engine")
HEARTBEAT = 2.0
SILENT = 10.0  # a worker without a heartbeat for this long is dead


class WorkerHeartbeat(msgspec.Struct, frozen=True):
    """A worker process with its handler children."""

    name: str
    queues: tuple[str, ...]
    kinds: tuple[str, ...]
    concurrency: int
    children: tuple[WorkerState, ...] = ()
    troubles: tuple[str, ...] = ()


def write(worker: WorkerHeartbeat) -> str:
    return msgspec.json.encode(worker).decode()


def read(states: Iterable[str]) -> list[WorkerHeartbeat]:
    """Decode heartbeats, and skip those that a worker of another version wrote in another format."""
    found = []
    for state in states:
        try:
            found.append(msgspec.json.decode(state, type=WorkerHeartbeat))
        except msgspec.DecodeError as error:
            log.warning("a worker's heartbeat cannot be decoded (another version of bide?): %s", error)
    return found
