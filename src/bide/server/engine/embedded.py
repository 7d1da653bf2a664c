"""The embedded engine: a runner in the process of the service. Its child processes are the only workers.

The service calls the runner when there is work. A worker of the Celery engine uses this engine, too: there the hint
consumer calls the runner.
"""

from __future__ import annotations

from bide.core.clock import render_instant
from bide.server.engine import ServiceWarning, WorkerState
from bide.server.runner.runner import Runner
from bide.server.worker.supervisor import ChildProcess


class EmbeddedEngine(Runner):
    """`Engine` with child processes of this process."""

    def workers(self) -> list[WorkerState]:
        jobs: dict[ChildProcess, list[str]] = {}
        for job_id, attempt in self.attempts.items():
            jobs.setdefault(attempt.child, []).append(job_id)
        return [
            WorkerState(
                child.name,
                child.pid,
                "busy" if child in jobs else child.state,
                "async" if child.is_async else "sync",
                jobs.get(child, []),
                render_instant(child.started),
                child.jobs_done,
            )
            for child in sorted(self.pool.children, key=lambda c: c.started)
        ]

    def serves(self, queue: str) -> bool:
        return queue in self.queues

    def slots(self, queue: str) -> int | None:
        return self.limit(queue)

    async def confirm_served(self, queue: str) -> bool:
        return self.serves(queue)

    def warnings(self) -> list[ServiceWarning]:
        if self.pool.problem is not None:
            detail = f"handler children cannot start: {self.pool.problem}"
            return [ServiceWarning("children-failing", detail)]
        if any(self.pool.waits_for(is_async) for is_async in (False, True)):
            return [ServiceWarning("children-starting", "handler children are still starting")]
        return []
