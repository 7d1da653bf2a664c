"""The Celery engine of a service: sends hints to workers on any machine, and knows the live workers.

1. It runs no jobs. A hint is sent after the commit of its job, so that the worker finds the job.
2. Every refresh finds jobs that wait because a hint was lost; workers also claim without hints periodically.
3. The workers' heartbeats in the store say which queues and kinds they serve.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Sequence

from msgspec.structs import replace

from bide.core.jobs.record import Job
from bide.core.wire.http import Event
from bide.server.engine import ServiceWarning, WorkerState
from bide.server.engine.celery.hint_publisher import HintPublisher
from bide.server.engine.celery.worker_heartbeats import SILENT, WorkerHeartbeat, read
from bide.server.registry import Registry, is_reserved
from bide.server.store import SharedStore, StoreUnavailable

log = logging.getLogger("bide.engine")
REFRESH = 1.0
REFRESH_SOON = 0.2  # while there is a warning, so that it disappears soon


class CeleryEngine:
    """`Engine` with Celery workers."""

    def __init__(self, registry: Registry, store: SharedStore, hints: HintPublisher) -> None:
        self._registry = registry
        self._store = store
        self._hints = hints
        self._workers: list[WorkerHeartbeat] = []
        self._serving: Counter[str] = Counter()  # workers, by queue
        self._problem: str | None = None
        self._refreshed_at: float | None = None  # None: never

    async def start(self) -> None:
        await self.refresh()
        self._hints.start()
        self._refreshing = asyncio.create_task(self._refresh_loop())

    async def stop(self, drain: float) -> None:
        """Stop sending hints. Workers keep running their jobs."""
        self._refreshing.cancel()
        await asyncio.gather(self._refreshing, return_exceptions=True)
        await asyncio.to_thread(self._hints.stop)

    def stop_now(self) -> None:
        pass

    # --- hints

    def hint(self, queue: str, kind: str) -> None:
        if is_reserved(kind):  # the service itself runs it
            return
        self._hints.request(queue, self._serving[queue] or 1)  # the number of jobs is unknown

    def on_events(self, events: Sequence[Event]) -> None:
        due: Counter[str] = Counter()
        for event in events:
            if event.type == "status" and event.job.get("due", 1e18) <= event.at:
                if is_reserved(event.job["kind"]):
                    continue
                due[event.job["queue"]] += 1
        for queue, jobs in due.items():
            self._hints.request(queue, jobs)

    async def _refresh_loop(self) -> None:
        while True:
            await asyncio.sleep(REFRESH_SOON if self.warnings() else REFRESH)
            try:
                await self.refresh()
            except Exception:
                log.exception("cannot read the live workers; retrying")

    async def refresh(self) -> None:
        """Read the live workers, and request hints for waiting jobs that they can run."""
        self._refreshed_at = time.monotonic()
        try:
            self._workers = read((await self._store.live_workers(SILENT)).values())
            waiting = await self._store.waiting()
        except StoreUnavailable as error:
            self._problem = f"the live workers cannot be read from the store: {error}"
            return
        self._problem = None
        self._serving = Counter(queue for worker in self._workers for queue in worker.queues)
        self._hints.set_workers(self._serving)
        known = {
            (queue, kind) for worker in self._workers for queue in worker.queues for kind in worker.kinds
        }
        for queue in {queue for queue, _ in waiting & known}:
            self._hints.request(queue, self._serving[queue])

    # --- state for the service

    def holds(self, job: Job) -> bool:
        return False

    def reset(self) -> None:
        pass  # it has no attempts, and reads everything else with every refresh

    def workers(self) -> list[WorkerState]:
        return [
            replace(child, name=f"{worker.name}/{child.name}")
            for worker in self._workers
            for child in worker.children
        ]

    def serves(self, queue: str) -> bool:
        return any(queue in worker.queues for worker in self._workers)

    def slots(self, queue: str) -> int | None:
        kinds = self._registry.queues.get(queue, [])
        if kinds and all(
            kind.is_async for kind in kinds
        ):  # a worker does not report its limit of async jobs
            return None
        serving = [worker.concurrency for worker in self._workers if queue in worker.queues]
        most = self._registry.concurrency.get(queue)
        return sum(count if most is None else min(count, most) for count in serving)

    async def confirm_served(self, queue: str) -> bool:
        if not self.serves(queue) and (
            self._refreshed_at is None or time.monotonic() - self._refreshed_at > REFRESH_SOON
        ):
            await self.refresh()
        if self.serves(queue):
            return True
        if self._problem is not None:
            raise StoreUnavailable(self._problem)
        return False

    def warnings(self) -> list[ServiceWarning]:
        found = []
        if self._problem is not None:
            found.append(ServiceWarning("workers-unknown", self._problem))
        if self._hints.problem is not None:
            found.append(ServiceWarning("broker-unreachable", self._hints.problem))
        if not self._workers:
            none = "no worker is alive: start one with `bide worker`"
            return [*found, ServiceWarning("no-workers", none)]
        known = {kind for worker in self._workers for kind in worker.kinds}
        for kind in sorted(self._registry.kinds.keys() - known):
            detail = f"no worker knows kind {kind}: restart the workers with the current app"
            found.append(ServiceWarning("kind-unserved", detail))
        for worker in self._workers:
            for problem in worker.troubles:
                found.append(ServiceWarning("worker-problem", f"worker {worker.name}: {problem}"))
        return found
