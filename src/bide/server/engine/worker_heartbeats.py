"""What a worker says of itself every few seconds, so that every service knows who runs jobs on which machine."""

from __future__ import annotations

import logging
from collections.abc import Iterable

import msgspec

from bide.server.engine import WorkerState

log = logging.getLogger("bide.engine")
HEARTBEAT = 2.0
SILENT = 10.0  # who was not heard of for so long is gone


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
    """Those that can be understood: a worker of another version may say it in other words."""
    found = []
    for state in states:
        try:
            found.append(msgspec.json.decode(state, type=WorkerHeartbeat))
        except msgspec.DecodeError as error:
            log.warning("a worker's word in the roster cannot be understood: %s", error)
    return found
