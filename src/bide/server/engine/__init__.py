"""The Engine port: gets jobs to workers. A hint wakes a worker; the store decides which worker runs which job.

It is split by who uses it: `WorkListener` is notified of work, `Fleet` knows the workers, and `Engine`, which is both, runs
the jobs. Only the service itself uses the whole `Engine`, because it starts and stops it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from bide.core.jobs.record import Job
from bide.core.wire.http import Event


class WorkerState(msgspec.Struct, frozen=True, rename="camel"):
    """A handler child, as GET /workers shows it."""

    name: str
    pid: int
    state: str  # "starting", "idle", "busy"
    runs: str  # "sync" or "async"
    jobs: list[str]
    started_at: str
    jobs_done: int


# Warning codes and their meaning.
WARNINGS = {
    "queue-unserved": "No worker takes jobs from a queue that has kinds or waiting jobs.",
    "no-workers": "No worker of the Celery engine is alive.",
    "workers-unknown": "The service cannot read from the store which workers are alive.",
    "broker-unreachable": "The broker does not answer. Workers look for jobs every few seconds instead.",
    "kind-unserved": "No living worker knows a kind of the app.",
    "worker-problem": "A worker reports a problem.",
    "children-starting": "Handler children are still starting.",
    "children-failing": "Handler children cannot start.",
    "overloaded": "The service refuses jobs, lists or statistics, because a bound of [admission] is reached.",
    "breaker-open": "A dependency fails, so its breaker is open, and the jobs that need it wait.",
    "webhook-disabled": "The service has disabled a webhook, because its endpoint answered 410 or failed for a day.",
}


class ServiceWarning(msgspec.Struct, frozen=True):
    """A condition that keeps jobs from running while the service still accepts them."""

    code: str  # one of WARNINGS
    detail: str


class WorkListener(Protocol):
    """Is notified of work, and lets workers know."""

    def hint(self, queue: str, kind: str) -> None:
        """Report that this queue may have jobs of this kind."""
        ...

    def on_events(self, events: Sequence[Event]) -> None:
        """React to committed events: new jobs may run, running ones may have to stop."""
        ...


class Fleet(Protocol):
    """Knows the workers."""

    def workers(self) -> list[WorkerState]: ...

    def serves(self, queue: str) -> bool:
        """Whether a worker takes jobs from this queue."""
        ...

    def slots(self, queue: str) -> int | None:
        """How many jobs of this queue the live workers run at once, if no other queue has jobs; None if it is unknown."""
        ...

    async def confirm_served(self, queue: str) -> bool:
        """Like `serves`, but also finds a worker that has just started. Raise StoreUnavailable if the workers cannot be
        read.
        """
        ...

    def warnings(self) -> list[ServiceWarning]:
        """The conditions that keep jobs from running."""
        ...


class Engine(WorkListener, Fleet, Protocol):
    """Runs jobs, or makes workers run them."""

    async def start(self) -> None: ...

    async def stop(self, drain: float) -> None:
        """Stop claiming, wait up to `drain` seconds for running jobs, and hand the rest back to the store."""
        ...

    def stop_now(self) -> None:
        """Make a `stop` in progress end without waiting for running jobs."""
        ...

    def holds(self, job: Job) -> bool:
        """Whether this process runs this attempt, or has its result and has not stored it yet."""
        ...

    def reset(self) -> None:
        """Check immediately which attempts this process still owns, because the store may have lost claims."""
        ...
