"""One loop that never stops: due jobs, lost leases, deadlines, retention, orphaned files, what was learned.

1. Every promise that depends on time is kept here, at every tick and not only at the start.
2. What removes files waits for their storage, and nothing waits for it.
3. A lease is lost when it was observed unchanged for its whole length (`core.lease`), whatever the clocks say, and never
   when this process itself runs the attempt: then its engine knows better. One that was voided is lost at once.
4. What becomes of a lost attempt is for a service to say that knows its kind: another one cannot tell whether the job may
   run twice. During a rolling deploy both sorts of services look at the same jobs.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import random
import resource
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from bide.core.errors import StorageUnavailable
from bide.core.job import Change
from bide.core.lease import LEASE, LeaseObserver
from bide.core.record import Job
from bide.core.retry import Policy, Vanished, deadline_passed, settle
from bide.core.wire import Event, is_job_id
from bide.server.blobs import Blobs
from bide.server.blobs.orphans import Orphans
from bide.server.config import UpkeepConfig
from bide.server.estimates import Estimates
from bide.server.progress.publisher import ProgressPublisher
from bide.server.registry import Registry
from bide.server.store import Store, StoreUnavailable
from bide.server.worker import work_folders

log = logging.getLogger("bide.upkeep")
SAVE_EVERY = 10.0
COMPLAIN_EVERY = 60.0
SHORTEST_PAUSE = 0.005  # the store's time may pass more slowly than ours
RESUME_EVERY = 60.0
REMOVED_AT_ONCE = 16
RESCUED_AT_ONCE = 500
Round = Callable[[], Awaitable[None]]


class Upkeep:
    """Runs until it is stopped; `tick` is one round."""

    def __init__(
        self,
        store: Store,
        blobs: Blobs,
        registry: Registry,
        estimates: Estimates,
        config: UpkeepConfig,
        hint: Callable[[str, str], None],
        *,
        work: Path,
        lease: float = LEASE,
    ) -> None:
        self._store = store
        self._blobs = blobs
        self._registry = registry
        self._estimates = estimates
        self._config = config
        self._hint = hint
        self.orphans = Orphans(blobs, store.identity, config.quarantine)
        self._work = work
        self._observer = LeaseObserver(lease)
        self._rng = random.Random()
        self._sooner = asyncio.Event()
        self._next_due: float | None = None
        self._next_sweep = 0.0
        self._next_save = 0.0
        self._next_complaint = 0.0
        self._next_resume = 0.0
        self._left = 0  # how many lost attempts of unknown kinds were seen at once
        self._unknown: set[str] = set()  # kinds that were logged
        self.chores: list[Round] = []  # of other parts, at every round
        self.holds: Callable[[Job], bool] = lambda job: False  # whether this process runs an attempt
        self.progress: ProgressPublisher | None = None  # of running attempts
        self.elapsed: Callable[[], float] = _loop_time  # in seconds, for this process

    async def start(self) -> None:
        self._tasks = [
            asyncio.create_task(self._run(self.turn, self._pause)),
            asyncio.create_task(self._run(self.observe, self._look_later)),
            asyncio.create_task(self._run(self.tidy, partial(asyncio.sleep, self._config.interval))),
        ]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        try:
            await self._save()
        except (
            StoreUnavailable
        ) as error:  # what was learned can be learned again; a stop must come to its end
            log.error("durations are not kept: %s", error)

    def on_events(self, events: Sequence[Event]) -> None:
        """A job that becomes due before the next round makes it come sooner."""
        for event in events:
            due = event.job.get("due")
            if due is not None and due > event.at and (self._next_due is None or due < self._next_due):
                self._next_due = due
                self._sooner.set()

    async def _run(self, work: Round, pause: Round) -> None:
        while True:
            try:
                await work()
            except (StoreUnavailable, StorageUnavailable, OSError) as error:
                # The cause may pass: no room, no file descriptors, a database or storage that does not answer.
                log.error("the upkeep waits: %s", error)
            except Exception:
                log.exception("the upkeep failed; it goes on")
            await pause()

    async def _pause(self) -> None:
        self._sooner.clear()
        wait = self._config.interval
        if self._next_due is not None:
            wait = min(wait, max(SHORTEST_PAUSE, self._next_due - self._store.now()))
        try:
            async with asyncio.timeout(wait):
                await self._sooner.wait()
        except TimeoutError:
            return

    async def tick(self) -> None:
        """All of it, once."""
        await _each([self.turn, self.observe, self.tidy])

    async def turn(self) -> None:
        """What others wait for."""
        now = self._store.now()
        parts: list[Round] = [self._wake, self._rescue]
        if now >= self._next_save:
            self._next_save = now + SAVE_EVERY
            parts.append(self._save)
        self._count_descriptors(now)
        await _each(parts)

    async def tidy(self) -> None:
        """What is over is removed."""
        now = self._store.now()
        parts: list[Round] = [self._purge, *self.chores]
        if now >= self._next_resume:
            self._next_resume = now + RESUME_EVERY
            parts.append(self._resume_parked)
        if now >= self._next_sweep:
            self._next_sweep = now + self._config.sweep
            parts.append(partial(self._sweep, time.time()))  # files have the machine's time
        await _each(parts)

    async def _wake(self) -> None:
        pairs, self._next_due = await self._store.wake()
        for queue, kind in pairs:
            self._hint(queue, kind)

    async def _rescue(self) -> None:
        overdue = await self._store.overdue(limit=RESCUED_AT_ONCE + self._left)
        changes = await self._losses(overdue.leases)
        changes += [deadline_passed(job) for job in overdue.deadlines]
        if changes:
            await self._store.apply(changes)

    async def observe(self) -> None:
        """Looks at all leases, and rescues the jobs of those that are lost."""
        observer = self._observer
        asked = self.elapsed()
        leases = await self._store.leases()
        observer.look(leases, asked, self.elapsed())
        if not observer.suspects:
            observer.calm()
            return
        try:
            await self._store.check_writable()
            observer.writable(self.elapsed())
            lost = observer.lost()
            if lost:
                overdue = await self._store.overdue(lost, RESCUED_AT_ONCE + self._left)
                changes = await self._losses([job for job in overdue.leases if not self.holds(job)])
                if changes:
                    await self._store.apply(changes)
        except StoreUnavailable:
            observer.restart()
            raise

    async def _look_later(self) -> None:
        await asyncio.sleep(self._observer.pace)

    async def _resume_parked(self) -> None:
        """Resumes jobs that wait for children which do not exist or have ended, a page at a time: they may be many."""
        after: str | None = ""
        while after is not None:
            resumed, after = await self._store.resume_parked(after)
            for job_id in resumed:
                log.warning(
                    "Job %s waits for child jobs that do not exist or have ended. The service restarts it.",
                    job_id,
                )

    async def _losses(self, jobs: Sequence[Job]) -> list[Change]:
        """What becomes of these jobs, whose workers are lost. Their last progress counts, so it is read first."""
        mine = [job for job in jobs if self._decides(job)]
        self._left = max(self._left, len(jobs) - len(mine))  # these may be found before any other
        if mine and self.progress is not None:
            await self.progress.refresh(mine)
        return [self._lost(job) for job in mine]

    def _decides(self, job: Job) -> bool:
        """Whether this service can say what becomes of the job when its worker is lost."""
        if job.kind in self._registry.kinds or not job.running or job.cancel_asked_at is not None:
            return True
        if job.kind not in self._unknown:
            self._unknown.add(job.kind)
            log.warning(
                "job %s has lost its worker. This service does not know kind %r: a service that knows it "
                "decides whether the job runs again. Until one runs, cancel the job to end it",
                job.id,
                job.kind,
            )
        return False

    def _lost(self, job: Job) -> Change:
        kind = self._registry.kinds.get(job.kind)
        policy = kind.policy if kind is not None else Policy()
        outcome = Vanished(message="its worker did not renew its lease")
        live = None if self.progress is None else self.progress.live(job)
        change = settle(
            job,
            outcome,
            policy,
            now=self._store.now(),
            rng=self._rng,
            progress=None if live is None else live.progress,
        )
        return replace(change, lease=job.lease_until)

    async def _purge(self) -> None:
        more = True
        while more:
            removed, more = await self._store.purge(
                tombstones=self._config.tombstones, keys=self._config.idempotency
            )
            if removed:
                await self._remove_files(removed)

    async def _save(self) -> None:
        learned: dict[str, dict[str, Any]] = self._estimates.unsaved()
        if learned:
            await self._store.learn(learned)

    def _count_descriptors(self, now: float) -> None:
        """Says so before there are none left: from then on connections and children are refused."""
        used, limit = _descriptors()
        if used > 0.9 * limit and now >= self._next_complaint:
            self._next_complaint = now + COMPLAIN_EVERY
            log.error(
                "%d of %d file descriptors are in use, most of them by connections: raise the limit "
                "(`ulimit -n`, or LimitNOFILE= of systemd), or let a proxy hold the connections",
                used,
                limit,
            )

    async def _sweep(self, now: float) -> None:
        """Removes files of jobs that there are not: left by a crash between the file and its record."""
        age = self._config.orphan_age
        jobs, renamed = await asyncio.to_thread(work_folders.old, self._work, now - age)
        for folder in renamed:
            await asyncio.to_thread(work_folders.delete, folder)
        if not await self.orphans.ours(now):
            return
        ids = [name for name in jobs if is_job_id(name)]
        for job_id in set(ids) - await self._store.known(ids):
            await asyncio.to_thread(work_folders.remove, self._work / job_id)
        await self.orphans.sweep("", "", self._store.known, now, age)

    async def _remove_files(self, ids: Sequence[str]) -> None:
        for job_id in ids:
            await asyncio.to_thread(work_folders.remove, self._work / job_id)
        for i in range(0, len(ids), REMOVED_AT_ONCE):
            some = ids[i : i + REMOVED_AT_ONCE]
            await asyncio.gather(*(self._blobs.remove(job_id) for job_id in some))


async def _each(parts: Sequence[Round]) -> None:
    """Every part has its turn, whatever became of the others; then the first error is raised."""
    failures: list[Exception] = []
    for part in parts:
        try:
            await part()
        except Exception as error:
            failures.append(error)
    if failures:
        raise failures[0]


def _loop_time() -> float:
    return asyncio.get_running_loop().time()


def _descriptors() -> tuple[int, int]:
    """How many are in use, and how many there may be; (0, …) where the system does not tell."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    try:
        return len(os.listdir("/proc/self/fd")), limit  # noqa: PTH208 — names are enough
    except OSError as error:
        return (limit if error.errno == errno.EMFILE else 0), limit
