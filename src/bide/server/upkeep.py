"""Periodic maintenance: due jobs, lost leases, deadlines, overdue jobs, retention, orphaned files, learned durations.

1. Everything that depends on time happens here, at every tick and not only at the start.
2. The removal of files waits for the storage; no other task waits for it.
3. A lease is lost when it was observed unchanged for its whole length (`core.jobs.lease`), regardless of the clocks. It is
   never lost while this process runs the attempt, because its engine has newer information. A void lease is lost at once.
4. Only a service that knows the kind of a lost attempt decides about it, because others do not know whether the job may run
   twice. During a rolling deployment old and new services see the same jobs.
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

from bide.core.errors import QueryTimeout, StorageUnavailable
from bide.core.jobs.lease import LeaseObserver
from bide.core.jobs.record import Job
from bide.core.jobs.retry import Policy, Vanished, deadline_passed, settle
from bide.core.jobs.state_machine import Change, MarkedOverdue
from bide.core.json_log import about_job
from bide.core.wire.http import Event
from bide.server.blobs import Blobs
from bide.server.blobs.orphans import Orphans
from bide.server.config import Config, UpkeepConfig
from bide.server.estimates import Estimates
from bide.server.job_tracer import JobTracer
from bide.server.progress.publisher import ProgressPublisher
from bide.server.registry import Registry, policy_of
from bide.server.store import StoreUnavailable, UpkeepStore
from bide.server.worker import work_folders

log = logging.getLogger("bide.upkeep")
SAVE_EVERY = 10.0
REPAIR_EVERY = 30.0  # seconds between two searches for jobs that are blocked without a reason
LOG_EVERY = 60.0
OVERDUE_FACTOR = 3.0  # a job is overdue after this many times the 99th percentile of its kind
MIN_PAUSE = 0.005  # the store's clock may run more slowly than this machine's
RESUME_EVERY = 60.0
REMOVE_BATCH = 16
SAMPLE_EVERY = 20.0  # seconds between two counts of the jobs that wait and run
MERGE_EVERY = 60.0
INDEX_BATCH = 500  # jobs per transaction
INDEX_TIME = 0.5  # seconds of each tick
RESCUE_BATCH = 500
Task = Callable[[], Awaitable[None]]


class CleanUp:
    """Removes expired jobs and orphaned files, and resumes parked jobs that would wait for ever."""

    def __init__(
        self,
        store: UpkeepStore,
        blobs: Blobs,
        orphans: Orphans,
        work: Path,
        config: UpkeepConfig,
        more_tasks: Sequence[Task] = (),
    ) -> None:
        """`work` has the jobs' working folders. `more_tasks` are clean-up tasks of other components."""
        self._store = store
        self._blobs = blobs
        self._orphans = orphans
        self._work = work
        self._config = config
        self._more_tasks = more_tasks
        self._next_sweep = 0.0
        self._next_resume = 0.0
        self._next_sample = 0.0
        self._next_merge = 0.0
        self._unindexed = True  # jobs of an earlier release may not be searchable yet

    async def tick(self) -> None:
        """Remove expired jobs and orphaned files, and run the tasks of other components."""
        now = self._store.now()
        parts: list[Task] = [self._purge, *self._more_tasks]
        if now >= self._next_sample:
            self._next_sample = now + SAMPLE_EVERY
            parts.append(self._sample)
        if now >= self._next_merge:
            self._next_merge = now + MERGE_EVERY
            parts.append(self._merge_rollups)
        if self._unindexed:
            parts.append(self._index_old)
        if now >= self._next_resume:
            self._next_resume = now + RESUME_EVERY
            parts.append(self._resume_parked)
        if now >= self._next_sweep:
            self._next_sweep = now + self._config.sweep
            parts.append(partial(self._sweep, time.time()))  # file times are of the machine's clock
        await _run_all(parts)

    async def _purge(self) -> None:
        more = True
        while more:
            removed, more = await self._store.purge(
                tombstones=self._config.tombstones, keys=self._config.idempotency
            )
            if removed:
                await self._remove_files(removed)

    async def _sample(self) -> None:
        try:
            await self._store.sample_load()
        except QueryTimeout as error:  # the plot has a gap, and nothing else depends on it
            log.info("cannot count the jobs that wait: %s", error)

    async def _merge_rollups(self) -> None:
        """Merge the minutes of complete hours, and remove old ones, in small transactions."""
        end = time.monotonic() + INDEX_TIME
        while await self._store.merge_rollups() and time.monotonic() < end:
            pass

    async def _index_old(self) -> None:
        """Make the jobs of an earlier release searchable, in small transactions, so that no submission waits for long."""
        end = time.monotonic() + INDEX_TIME
        while self._unindexed and time.monotonic() < end:
            self._unindexed = await self._store.index_old(INDEX_BATCH)

    async def _resume_parked(self) -> None:
        """Resume parked jobs whose children do not exist or have ended, one page at a time."""
        after: str | None = ""
        while after is not None:
            resumed, after = await self._store.resume_parked(after)
            for job_id in resumed:
                log.warning(
                    "Job %s waits for child jobs that do not exist or have ended. The service restarts it.",
                    job_id,
                    extra={"job_id": job_id},
                )

    async def _sweep(self, now: float) -> None:
        """Remove files whose job no longer exists, and files that a crash left without a record."""
        age = self._config.orphan_age
        if not await self._orphans.may_remove(now):
            return
        await work_folders.sweep(self._work, now - age, self._store.known)
        await self._orphans.sweep("", "", self._store.known, now, age)

    async def _remove_files(self, ids: Sequence[str]) -> None:
        for job_id in ids:
            await asyncio.to_thread(work_folders.remove, self._work / job_id)
        for i in range(0, len(ids), REMOVE_BATCH):
            some = ids[i : i + REMOVE_BATCH]
            await asyncio.gather(*(self._blobs.remove(job_id) for job_id in some))


class Upkeep:
    """Runs its tasks until it is stopped; `tick` runs each of them once."""

    def __init__(
        self,
        store: UpkeepStore,
        registry: Registry,
        estimates: Estimates,
        config: Config,
        hint: Callable[[str, str], None],
        clean_up: CleanUp,
        *,
        holds: Callable[[Job], bool] = lambda job: False,
        progress: ProgressPublisher | None = None,
    ) -> None:
        """`holds` returns whether this process runs the attempt."""
        self.tracer: JobTracer | None = None
        self.clean_up = clean_up
        self._store = store
        self._registry = registry
        self._estimates = estimates
        self._config = config.upkeep
        self._hint = hint
        self._holds = holds
        self._progress = progress
        self._observer = LeaseObserver(config.worker.lease)
        self._rng = random.Random()
        self._wake_up = asyncio.Event()
        self._next_due: float | None = None
        self._next_save = 0.0
        self._next_repair = 0.0
        self._next_overdue = 0.0
        self._next_log = 0.0
        self._undecided = 0  # the most lost attempts of unknown kinds in one query so far
        self._unknown: set[str] = set()  # unknown kinds that were logged

    async def start(self) -> None:
        self._tasks = [
            asyncio.create_task(self._run(self.recover, self._pause)),
            asyncio.create_task(self._run(self.observe, self._pause_observer)),
            asyncio.create_task(
                self._run(self.clean_up.tick, partial(asyncio.sleep, self._config.interval))
            ),
        ]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        try:
            await self._save()
        except StoreUnavailable as error:  # durations can be learned again, and the stop must finish
            log.error("cannot save learned durations: %s", error)

    def on_events(self, events: Sequence[Event]) -> None:
        """Start the next round earlier if a job becomes due before it."""
        for event in events:
            due = event.job.get("due")
            if due is not None and due > event.at and (self._next_due is None or due < self._next_due):
                self._next_due = due
                self._wake_up.set()

    async def _run(self, work: Task, pause: Task) -> None:
        while True:
            try:
                await work()
            except (StoreUnavailable, StorageUnavailable, OSError) as error:
                # Possibly temporary: a full disk, no file descriptors, an unreachable database or storage.
                log.error("the upkeep cannot run; retrying: %s", error)
            except Exception:
                log.exception("the upkeep failed; retrying")
            await pause()

    async def _pause(self) -> None:
        self._wake_up.clear()
        wait = self._config.interval
        if self._next_due is not None:
            wait = min(wait, max(MIN_PAUSE, self._next_due - self._store.now()))
        try:
            async with asyncio.timeout(wait):
                await self._wake_up.wait()
        except TimeoutError:
            return

    async def tick(self) -> None:
        """Run every task once."""
        await _run_all([self.recover, self.observe, self.clean_up.tick])

    async def recover(self) -> None:
        """Wake due jobs, rescue lost ones, mark overdue ones, and save learned durations."""
        now = self._store.now()
        parts: list[Task] = [self._wake, self._rescue]
        if now >= self._next_overdue:
            self._next_overdue = now + self._config.interval
            parts.append(self._mark_overdue)
        if now >= self._next_save:
            self._next_save = now + SAVE_EVERY
            parts.append(self._save)
        if now >= self._next_repair:
            self._next_repair = now + REPAIR_EVERY
            parts.append(self._repair)
        self._check_descriptors(now)
        await _run_all(parts)

    async def _wake(self) -> None:
        self._next_due = None  # a job that is inserted while the store reads sets it again
        pairs, due = await self._store.wake()
        self._next_due = min((at for at in (due, self._next_due) if at is not None), default=None)
        for queue, kind in pairs:
            self._hint(queue, kind)

    async def _repair(self) -> None:
        """Unblock jobs whose concurrency key nobody holds, for example because a release was lost."""
        for queue, kind in await self._store.repair_blocked():
            self._hint(queue, kind)

    async def _rescue(self) -> None:
        found = await self._store.lost_and_late(limit=RESCUE_BATCH + self._undecided)
        changes = await self._losses(found.leases)
        changes += [deadline_passed(job) for job in found.deadlines]
        if changes:
            await self._apply(changes, found.leases)

    async def _apply(self, changes: Sequence[Change], jobs: Sequence[Job]) -> None:
        """Store changes, and export the attempts of these jobs, which their workers cannot export."""
        outcomes = await self._store.apply(changes)
        if self.tracer is None:
            return
        running = {job.id: job for job in jobs if job.running}
        for change, outcome in zip(changes, outcomes, strict=True):
            job = running.get(change.job_id)
            if job is not None and isinstance(outcome, Job):
                started = job.updated_at if job.started_at is None else job.started_at
                self.tracer.attempted(job, started, None, self._store.now(), change)

    async def _mark_overdue(self) -> None:
        """Mark the jobs that run much longer than others of their kind."""
        usual = {
            kind: seconds
            for kind in self._registry.kinds
            if (seconds := self._estimates.usual_limit(kind)) is not None
        }
        if not usual:
            return
        now = self._store.now()
        since = {kind: now - OVERDUE_FACTOR * seconds for kind, seconds in usual.items()}
        changes = [
            MarkedOverdue(
                job_id=job.id,
                owner=job.owner,
                fence=job.fence,
                message=f"the attempt has run for {now - (job.started_at or now):.3g} s, longer than "
                f"{OVERDUE_FACTOR:g} times the 99th percentile of {job.kind!r} ({usual[job.kind]:.3g} s)",
            )
            for job in await self._store.long_running(since)
        ]
        if changes:
            outcomes = await self._store.apply(changes)
            for change, outcome in zip(changes, outcomes, strict=True):
                if isinstance(outcome, Job):  # otherwise it has just ended, or another service was first
                    log.warning(
                        "job %s is overdue: %s",
                        change.job_id,
                        change.message,
                        extra=about_job(outcome),
                    )

    async def observe(self) -> None:
        """Observe all leases, and rescue the jobs whose leases are lost."""
        observer = self._observer
        started = _monotonic()
        leases = await self._store.leases()
        observer.look(leases, started, _monotonic())
        if not observer.suspects:
            observer.calm()
            return
        try:
            await self._store.check_writable()
            observer.writable(_monotonic())
            lost = observer.lost()
            if lost:
                found = await self._store.lost_and_late(lost, RESCUE_BATCH + self._undecided)
                changes = await self._losses([job for job in found.leases if not self._holds(job)])
                if changes:
                    await self._apply(changes, found.leases)
        except StoreUnavailable:
            observer.restart()
            raise

    async def _pause_observer(self) -> None:
        await asyncio.sleep(self._observer.pace)

    async def _losses(self, jobs: Sequence[Job]) -> list[Change]:
        """The changes for jobs whose workers are lost. Their last progress counts, so it is fetched first."""
        decidable = [job for job in jobs if self._decides(job)]
        # The next query must return more rows, because it may find the undecided jobs first.
        self._undecided = max(self._undecided, len(jobs) - len(decidable))
        if decidable and self._progress is not None:
            await self._progress.refresh(decidable)
        return [self._lost(job) for job in decidable]

    def _decides(self, job: Job) -> bool:
        """Whether this service can decide about a job whose worker is lost."""
        if not job.running or job.cancel_asked_at is not None:
            return True
        if policy_of(self._registry, job.kind) is not None:
            return True
        if job.kind not in self._unknown:
            self._unknown.add(job.kind)
            log.warning(
                "job %s has lost its worker, and this service does not know its kind %r. A service that knows the "
                "kind decides whether the job runs again. If there is none, cancel the job",
                job.id,
                job.kind,
                extra=about_job(job),
            )
        return False

    def _lost(self, job: Job) -> Change:
        policy = policy_of(self._registry, job.kind) or Policy()
        outcome = Vanished(message="its worker did not renew its lease")
        live = None if self._progress is None else self._progress.live(job)
        change = settle(
            job,
            outcome,
            policy,
            now=self._store.now(),
            rng=self._rng,
            progress=None if live is None else live.progress,
        )
        return replace(change, lease=job.lease_until)

    async def _save(self) -> None:
        learned: dict[str, dict[str, Any]] = self._estimates.unsaved()
        if learned:
            await self._store.learn(learned)

    def _check_descriptors(self, now: float) -> None:
        """Log an error before the file descriptors run out, because then connections and children fail."""
        used, limit = _descriptors()
        if used > 0.9 * limit and now >= self._next_log:
            self._next_log = now + LOG_EVERY
            log.error(
                "%d of %d file descriptors are in use, most of them by connections: raise the limit "
                "(`ulimit -n`, or LimitNOFILE= of systemd), or let a proxy hold the connections",
                used,
                limit,
            )


async def _run_all(parts: Sequence[Task]) -> None:
    """Run every task even if others fail, then raise the first error."""
    failures: list[Exception] = []
    for part in parts:
        try:
            await part()
        except Exception as error:
            failures.append(error)
    if failures:
        raise failures[0]


def _monotonic() -> float:
    return asyncio.get_running_loop().time()


def _descriptors() -> tuple[int, int]:
    """The number of open file descriptors and their limit; the number is 0 if the system does not report it."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    try:
        return len(os.listdir("/proc/self/fd")), limit  # noqa: PTH208 — names are enough
    except OSError as error:
        return (limit if error.errno == errno.EMFILE else 0), limit
