"""The Engine port: gets jobs to workers. A nudge is only a hint; the store decides who runs what."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from bide.core.record import Job
from bide.core.wire import Event


class WorkerState(msgspec.Struct, frozen=True, rename="camel"):
    """A handler child, as GET /workers shows it."""

    name: str
    pid: int
    state: str  # "starting", "idle", "busy"
    runs: str  # "sync" or "async"
    jobs: list[str]
    started_at: str
    jobs_done: int


class Engine(Protocol):
    async def start(self) -> None: ...

    async def stop(self, drain: float) -> None:
        """Takes nothing new, waits up to `drain` seconds for what runs, hands the rest back."""
        ...

    def hurry(self) -> None:
        """Ends the patience of a stop that is under way."""
        ...

    def nudge(self, queue: str, kind: str) -> None:
        """There may be work of this kind in this queue."""
        ...

    def heard(self, events: Sequence[Event]) -> None:
        """What was committed: new work to look at, running jobs to stop."""
        ...

    def holds(self, job: Job) -> bool:
        """Whether this process runs this very attempt, or has its result and could not store it yet."""
        ...

    def reset(self) -> None:
        """The store may have lost claims: find out at once which attempts are still its own."""
        ...

    def workers(self) -> list[WorkerState]: ...

    def serves(self, queue: str) -> bool:
        """Whether some worker takes jobs from this queue."""
        ...

    def troubles(self) -> list[str]:
        """What keeps jobs from being run, in words for a person."""
        ...
