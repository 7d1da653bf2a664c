"""The Celery engine, at the service: tells workers on any machine that there is work, and knows who they are.

1. It runs nothing itself. A hint goes out after the commit that it is about: who follows it finds the job.
2. What waits without a hint, because one was lost, is found at every look; workers look by themselves too.
3. Who serves what is read from the roster, which the workers keep.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Sequence

from msgspec.structs import replace

from bide.core.record import Job
from bide.core.wire import Event
from bide.server.engine import ServiceWarning, WorkerState
from bide.server.engine.hint_publisher import HintPublisher
from bide.server.engine.worker_heartbeats import SILENT, WorkerHeartbeat, read
from bide.server.registry import Registry
from bide.server.store import SharedStore, StoreUnavailable

log = logging.getLogger("bide.engine")
LOOK = 1.0
LOOK_SOON = 0.2  # while something is wrong, so that it is known soon when it is not


class CeleryEngine:
    """`Engine` with workers of Celery."""

    def __init__(self, registry: Registry, store: SharedStore, hints: HintPublisher) -> None:
        self._registry = registry
        self._store = store
        self._hints = hints
        self._roster: list[WorkerHeartbeat] = []
        self._serving: Counter[str] = Counter()  # workers, by queue
        self._trouble: str | None = None
        self._looked_at: float | None = None  # None: never

    async def start(self) -> None:
        await self.look()
        self._hints.start()
        self._looking = asyncio.create_task(self._look_on())

    async def stop(self, drain: float) -> None:
        """What runs elsewhere goes on."""
        self._looking.cancel()
        await asyncio.gather(self._looking, return_exceptions=True)
        await asyncio.to_thread(self._hints.stop)

    def hurry(self) -> None:
        pass

    # --- hints

    def nudge(self, queue: str, kind: str) -> None:
        self._hints.want(queue, self._serving[queue] or 1)  # how much there is nobody has said

    def heard(self, events: Sequence[Event]) -> None:
        now = self._store.now()
        due: Counter[str] = Counter()
        for event in events:
            if event.type == "status" and event.job.get("due", 1e18) <= now:
                due[event.job["queue"]] += 1
        for queue, jobs in due.items():
            self._hints.want(queue, jobs)

    async def _look_on(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SOON if self.warnings() else LOOK)
            try:
                await self.look()
            except Exception:
                log.exception("the engine's look around failed; it goes on")

    async def look(self) -> None:
        """Who is there, and what waits that some of them could run."""
        self._looked_at = time.monotonic()
        try:
            self._roster = read((await self._store.roster(SILENT)).values())
            waiting = await self._store.waiting()
        except StoreUnavailable as error:
            self._trouble = f"who the workers are cannot be read: {error}"
            return
        self._trouble = None
        self._serving = Counter(queue for worker in self._roster for queue in worker.queues)
        self._hints.allow(self._serving)
        known = {
            (queue, kind) for worker in self._roster for queue in worker.queues for kind in worker.kinds
        }
        for queue in {queue for queue, _ in waiting & known}:
            self._hints.want(queue, self._serving[queue])

    # --- what the others see

    def holds(self, job: Job) -> bool:
        return False

    def reset(self) -> None:
        pass  # it has no attempts, and reads everything else at every look

    def workers(self) -> list[WorkerState]:
        return [
            replace(child, name=f"{worker.name}/{child.name}")
            for worker in self._roster
            for child in worker.children
        ]

    def serves(self, queue: str) -> bool:
        return any(queue in worker.queues for worker in self._roster)

    async def knows(self, queue: str) -> bool:
        if not self.serves(queue) and (
            self._looked_at is None or time.monotonic() - self._looked_at > LOOK_SOON
        ):
            await self.look()
        if self.serves(queue):
            return True
        if self._trouble is not None:
            raise StoreUnavailable(self._trouble)
        return False

    def warnings(self) -> list[ServiceWarning]:
        found = []
        if self._trouble is not None:
            found.append(ServiceWarning("workers-unknown", self._trouble))
        if self._hints.trouble is not None:
            found.append(ServiceWarning("broker-unreachable", self._hints.trouble))
        if not self._roster:
            none = "no worker is alive: start one with `bide worker`"
            return [*found, ServiceWarning("no-workers", none)]
        known = {kind for worker in self._roster for kind in worker.kinds}
        for kind in sorted(self._registry.kinds.keys() - known):
            detail = f"No worker knows kind {kind}. Restart the workers with the current app."
            found.append(ServiceWarning("kind-unserved", detail))
        for worker in self._roster:
            for trouble in worker.troubles:
                found.append(ServiceWarning("worker-problem", f"worker {worker.name}: {trouble}"))
        return found
