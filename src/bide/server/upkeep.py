"""One loop that never stops: due jobs, lost leases, deadlines, retention, orphaned files, what was learned.

Every promise that depends on time is kept here, at every tick and not only at the start.
"""

from __future__ import annotations

import asyncio
import logging
import random
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from bide.core.job import Change
from bide.core.record import Job
from bide.core.retry import Policy, Vanished, deadline_passed, settle
from bide.core.wire import Event, is_job_id
from bide.server.blobs import Blobs
from bide.server.config import UpkeepConfig
from bide.server.estimates import Estimates
from bide.server.registry import Registry
from bide.server.store import Store

log = logging.getLogger("bide.upkeep")
SWEEP_EVERY = 600.0
SAVE_EVERY = 10.0


class Upkeep:
    """Runs until it is stopped; `tick` is one round."""

    def __init__(
        self,
        store: Store,
        blobs: Blobs,
        registry: Registry,
        estimates: Estimates,
        config: UpkeepConfig,
        nudge: Callable[[str, str], None],
        *,
        work: Path,
    ) -> None:
        self._store = store
        self._blobs = blobs
        self._registry = registry
        self._estimates = estimates
        self._config = config
        self._nudge = nudge
        self._work = work
        self._rng = random.Random()
        self._sooner = asyncio.Event()
        self._next_due: float | None = None
        self._next_sweep = 0.0
        self._next_save = 0.0

    async def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self._save()

    def heard(self, events: Sequence[Event]) -> None:
        """A job that becomes due before the next round makes it come sooner."""
        for event in events:
            due = event.job.get("due")
            if due is not None and due > event.at and (self._next_due is None or due < self._next_due):
                self._next_due = due
                self._sooner.set()

    async def _run(self) -> None:
        while True:
            try:
                await self.tick()
            except Exception:  # a full disk today must not end tomorrow's upkeep
                log.exception("the upkeep failed; it goes on")
            await self._pause()

    async def _pause(self) -> None:
        self._sooner.clear()
        wait = self._config.interval
        if self._next_due is not None:
            wait = min(wait, max(0.0, self._next_due - self._store.now()))
        try:
            async with asyncio.timeout(wait):
                await self._sooner.wait()
        except TimeoutError:
            return

    async def tick(self) -> None:
        now = self._store.now()
        await self._wake()
        await self._rescue()
        await self._purge()
        if now >= self._next_save:
            self._next_save = now + SAVE_EVERY
            await self._save()
        if now >= self._next_sweep:
            self._next_sweep = now + SWEEP_EVERY
            await self._sweep(now)

    async def _wake(self) -> None:
        pairs, self._next_due = await self._store.wake()
        for queue, kind in pairs:
            self._nudge(queue, kind)

    async def _rescue(self) -> None:
        overdue = await self._store.overdue()
        changes: list[Change] = [self._lost(job) for job in overdue.leases]
        changes += [deadline_passed(job) for job in overdue.deadlines]
        if changes:
            await self._store.apply(changes)

    def _lost(self, job: Job) -> Change:
        kind = self._registry.kinds.get(job.kind)
        policy = kind.policy if kind is not None else Policy()
        outcome = Vanished(message="its lease ran out")
        change = settle(job, outcome, policy, now=self._store.now(), rng=self._rng)
        return replace(change, lease=job.lease_until)

    async def _purge(self) -> None:
        more = True
        while more:
            removed, more = await self._store.purge(
                tombstones=self._config.tombstones, keys=self._config.idempotency
            )
            if removed:
                await asyncio.to_thread(self._remove_files, removed)

    async def _save(self) -> None:
        learned: dict[str, dict[str, Any]] = self._estimates.unsaved()
        if learned:
            await self._store.learn(learned)

    async def _sweep(self, now: float) -> None:
        """Removes files of jobs that there are not: left by a crash between the file and its record."""
        old = now - self._config.orphan_age
        found = await asyncio.to_thread(lambda: {*self._blobs.jobs(old), *_folders(self._work, old)})
        ids = [name for name in found if is_job_id(name)]
        orphans = set(ids) - await self._store.known(ids)
        if orphans:
            log.info("removing the files of %d jobs that no longer exist", len(orphans))
            await asyncio.to_thread(self._remove_files, sorted(orphans))

    def _remove_files(self, ids: Sequence[str]) -> None:
        for job_id in ids:
            self._blobs.remove(job_id)
            shutil.rmtree(self._work / job_id, ignore_errors=True)


def _folders(root: Path, older_than: float) -> list[str]:
    if not root.is_dir():
        return []
    return [f.name for f in root.iterdir() if f.is_dir() and f.stat().st_mtime < older_than]
