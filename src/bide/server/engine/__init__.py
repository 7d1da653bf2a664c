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


# The codes of warnings, and what each means.
WARNINGS = {
    "queue-unserved": "No worker takes jobs from a queue that has kinds or waiting jobs.",
    "no-workers": "No worker of the Celery engine is alive.",
    "workers-unknown": "Which workers are alive cannot be read from the store.",
    "broker-unreachable": "The broker does not answer. Workers look for jobs every few seconds instead.",
    "kind-unserved": "No living worker knows a kind of the app.",
    "worker-problem": "A worker reports a problem.",
    "children-starting": "Handler children are still starting.",
    "children-failing": "Handler children cannot start.",
}


class ServiceWarning(msgspec.Struct, frozen=True):
    """Something that keeps jobs from being run, while the service accepts them and answers."""

    code: str  # one of WARNINGS
    detail: str


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

    async def knows(self, queue: str) -> bool:
        """The same, when it has to be right: a worker that has just started is known. Unwritable if it cannot be read."""
        ...

    def warnings(self) -> list[ServiceWarning]:
        """What keeps jobs from being run."""
        ...
