"""The embedded engine: claims jobs, runs them in child processes and stores their outcomes. A worker of the Celery
engine runs the same engine in a process of its own.

1. The settlement of a job and the claim for the slot that it frees are queued together, so that one commit covers both.
2. Only the attempt whose owner and fence match the row can change it; other messages are dropped.
3. A lease is renewed until the end of its attempt is stored, not only until its handler has returned.
4. A late tick proves nothing about the children, because their messages have not been read yet.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import random
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from bide.core.clock import render_instant
from bide.core.jobs import state_machine as changes
from bide.core.jobs.lease import renewal_interval
from bide.core.jobs.record import Job, Status
from bide.core.jobs.retry import Outcome, Raised, settle
from bide.core.jobs.state_machine import Change
from bide.core.wire.http import Event
from bide.server.config import WorkerConfig
from bide.server.engine import ServiceWarning, WorkerState
from bide.server.engine.attempt import CANCEL, LEASE_LOST, SHUTDOWN, Attempt, run_message
from bide.server.engine.child_messages import MessageHandler, PrepareSpawn
from bide.server.engine.claiming import Claimer
from bide.server.engine.concurrency import ConcurrencyLimits
from bide.server.engine.prefetch import Prefetch
from bide.server.engine.settlement import SettlementWriter
from bide.server.progress import AttemptKey, ProgressSink
from bide.server.registry import Registry
from bide.server.store import Claim, ClaimRequest, JobStore, Store, StoreUnavailable
from bide.server.worker import protocol as p
from bide.server.worker import work_folders
from bide.server.worker.supervisor import ChildProcess, Pool, PoolListener

log = logging.getLogger("bide.engine")
TICK = 0.25
ASYNC_AT_ONCE = 1000  # jobs per claim for the async child; the limit of the queue is lower
HEAD_CHECK = 0.02  # a prefetched job that runs for this long is stored as PROCESSING
RETURN_AFTER = 0.06  # when it runs for this long, its child returns the jobs behind it
CLAIM_EVERY = 5.0  # seconds between two claims without a hint
RENEW_RETRY = 1.0  # seconds after a renewal that could not be stored


class WorkerFolder(Protocol):
    """The folder for the jobs' working folders, and the owner name for claims."""

    @property
    def work(self) -> Path: ...

    @property
    def owner(self) -> str: ...


class EmbeddedEngine:
    """`Engine` with child processes of this process."""

    def __init__(
        self,
        registry: Registry,
        store: Store,
        config: WorkerConfig,
        folder: WorkerFolder,
        pool: Callable[[PoolListener, int, int], Pool],
        *,
        prepare_spawn: PrepareSpawn,
        progress: ProgressSink,
    ) -> None:
        self._registry = registry
        self._store = store
        self._config = config
        self._rng = random.Random()
        is_async = any(k.is_async for k in registry.kinds.values())
        sync = config.children(len(registry.queues)) if _has_sync(registry) else 0
        self._limits = ConcurrencyLimits(registry, sync, config.async_concurrency, config.queues)
        self._claimer = Claimer(self._limits, self._claim, self)
        self._folder = folder
        self._work = str(folder.work)
        self._claim_scheduled = False
        self._pool = pool(self, sync, int(is_async))
        self._now = self._pool.now
        self._owner = ""  # set by `start`
        self._attempts: dict[str, Attempt] = {}
        # Claims of jobs of which an earlier attempt still runs here.
        self._deferred: dict[str, tuple[Claim, bool]] = {}
        self._prefetch = Prefetch(registry.max_jobs_per_child)
        self._checking_heads = False
        self._stopping = self._stopping_now = False
        self._all_ended = asyncio.Event()
        self._progress = progress
        self._settlement = SettlementWriter(store)
        self._messages = MessageHandler(
            store, self._settlement, prepare_spawn, self.hint, self._end, progress.publish, self._now
        )
        self._next_renewal = -math.inf
        self._renewing = False
        self._last_tick: float | None = None
        self._next_claim = -math.inf
        self._next_memory = -math.inf

    # --- start and stop

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._owner = self._folder.owner
        await self._pool.open()
        self._ticking = self._loop.create_task(self._tick_loop())

    async def stop(self, drain: float) -> None:
        self._stopping = True
        began = self._now()
        await self._claimer.close()
        if not self._stopping_now:
            await self._wait_until_idle(drain)
        for attempt in list(self._attempts.values()):
            attempt.stop(SHUTDOWN, self._now())
        await self._wait_until_idle(None)
        await self._pool.close(self._config.grace)
        await self._settlement.finish(max(self._config.grace, drain - (self._now() - began)))
        self._ticking.cancel()  # only now: the tick renews the leases of results that wait for the store
        await self._settlement.close()

    def stop_now(self) -> None:
        """Make `stop` end without waiting for running jobs, also if it has not begun to wait."""
        self._stopping_now = True
        self._all_ended.set()
        self._settlement.skip_wait = True

    async def _wait_until_idle(self, timeout: float | None) -> None:
        if self._attempts:
            self._all_ended = asyncio.Event()
            try:
                async with asyncio.timeout(timeout):
                    await self._all_ended.wait()
            except TimeoutError:
                return

    # --- state for the service

    def workers(self) -> list[WorkerState]:
        jobs: dict[ChildProcess, list[str]] = {}
        for job_id, attempt in self._attempts.items():
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
            for child in sorted(self._pool.children, key=lambda c: c.started)
        ]

    def serves(self, queue: str) -> bool:
        return queue in self._limits.queues

    async def confirm_served(self, queue: str) -> bool:
        return self.serves(queue)

    def has_capacity(self, queue: str) -> bool:
        """Whether a job of this queue can start now. Thread-safe."""
        if self._claimer.closed:
            return False
        if self._prefetch.idle and self._limits.available(False, queue) > 0:
            return True
        async_ready = any(c.is_async and c.state == "idle" for c in list(self._pool.children))
        return async_ready and self._limits.available(True, queue) > 0

    def holds(self, job: Job) -> bool:
        if job.owner != self._owner:
            return False
        attempt = self._attempts.get(job.id)
        if attempt is not None and attempt.job.fence == job.fence:
            return True
        return job.id in self._deferred or (job.id, job.fence) in self._settlement.unwritten()

    def reset(self) -> None:
        self._next_renewal = self._now()

    def warnings(self) -> list[ServiceWarning]:
        if self._pool.problem is not None:
            detail = f"handler children cannot start: {self._pool.problem}"
            return [ServiceWarning("children-failing", detail)]
        if any(self._pool.waits_for(is_async) for is_async in (False, True)):
            return [ServiceWarning("children-starting", "handler children are still starting")]
        return []

    # --- hints and claims

    def hint(self, queue: str, kind: str) -> None:
        self._claimer.hint(queue, kind)

    def hint_queue(self, queue: str) -> None:
        self._claimer.hint_queue(queue)

    def on_events(self, events: Sequence[Event]) -> None:
        for event in events:
            if event.type != "status":
                continue
            known = event.job
            attempt = self._attempts.get(event.job_id)
            if attempt is not None and known["fence"] >= attempt.job.fence:
                self._on_status(attempt, known)
            # The intake has already hinted at a new job (version 1).
            if known.get("due", 1e18) <= self._store.now() and known["version"] > 1:
                self.hint(known["queue"], known["kind"])

    def _on_status(self, attempt: Attempt, known: dict[str, Any]) -> None:
        now = self._now()
        is_current = (known["fence"], known.get("worker")) == (attempt.job.fence, self._owner)
        if not is_current or known["status"] not in (Status.PROCESSING, attempt.job.status):
            attempt.stop(LEASE_LOST, now)
        elif known.get("cancelAsked") and attempt.stopping is None:
            attempt.stop(CANCEL, now)

    def _claim(self, requests: list[ClaimRequest], limit: int) -> Awaitable[list[Claim]]:
        return self._store.claim(self._owner, requests, limit, self._config.lease)

    def free_slots(self, is_async: bool) -> int:
        if is_async:
            return (
                ASYNC_AT_ONCE
                if any(c.is_async and c.state == "idle" for c in self._pool.children)
                else 0
            )
        return len(self._prefetch.idle)

    def prefetch_requests(self, hints: dict[tuple[str, str], int]) -> list[ClaimRequest]:
        return self._prefetch.requests(hints, self._registry.kinds, self._now())

    def start_job(self, claim: Claim, is_async: bool) -> None:
        job = claim.job
        earlier = self._attempts.get(job.id)
        if earlier is not None and not self._stopping:
            # The store has lost the claim of an attempt that still runs here. That attempt must end first.
            earlier.stop(LEASE_LOST, self._now())
            self._deferred[job.id] = (claim, is_async)
            return
        child = None if self._stopping else self._child_for(job, is_async)
        if child is None:  # the child died, or the engine stopped, while the claim was in flight
            self._settlement.write([_handed_back(job)])
            return
        attempt = Attempt(job, self._registry.kinds[job.kind], child)
        self._attempts[job.id] = attempt
        self._progress.publish(attempt.key, attempt.live)
        waits = not is_async and self._prefetch.busy(child)
        if not is_async:
            self._prefetch.append(attempt)
        if waits:
            self._check_heads_soon()
        else:
            self._limits.acquire(is_async, job.queue)
            self._start_running(attempt)
        child.send(run_message(claim), at_once=not waits)

    def _child_for(self, job: Job, is_async: bool) -> ChildProcess | None:
        if is_async:
            return next((c for c in self._pool.children if c.is_async and c.state == "idle"), None)
        busy = None if job.running else self._prefetch.shortest(job.queue)
        return busy or self._prefetch.take_idle()

    def _start_running(self, attempt: Attempt) -> None:
        """Record that the child runs this attempt. A prefetched job is stored as begun when it ends or after HEAD_CHECK."""
        attempt.start(self._now(), self._store.now())
        if attempt.inbox:
            self._loop.call_soon(self._messages.handle_queued, attempt)
        if not attempt.job.running:
            self._check_heads_soon()

    def _check_heads_soon(self) -> None:
        if not self._checking_heads:
            self._checking_heads = True
            self._loop.call_later(HEAD_CHECK, self._check_heads)

    def _check_heads(self) -> None:
        self._checking_heads = False
        now = self._now()
        for attempt in self._prefetch.heads():
            age = now - (attempt.started or now)
            waits = self._prefetch.behind(attempt) > 0
            if age >= HEAD_CHECK and not attempt.job.running:
                self._settlement.write(attempt.begin_changes())
            if age >= RETURN_AFTER and waits:
                attempt.child.request_return()
            elif waits or not attempt.job.running:
                self._check_heads_soon()

    # --- callbacks of the child pool (supervisor.PoolListener)

    def ready(self, child: ChildProcess) -> None:
        if not child.is_async:
            self._prefetch.idle.append(child)
        self._claimer.hint_everywhere()

    def received(self, child: ChildProcess, message: Any) -> None:
        if isinstance(message, p.JobsReturned):
            for job_id, fence in message.jobs:
                returned = self._attempts.get(job_id)
                if returned is not None and returned.job.fence == fence:
                    # It never ran, so it may run again even if its kind is at_most_once.
                    self._end(
                        returned, None if returned.stopping == LEASE_LOST else _handed_back(returned.job)
                    )
            return
        if isinstance(message, p.NeedsReplacement):
            child.request_exit()
            self._pool.fill()
            return
        attempt = self._attempts.get(message.job_id)
        if attempt is None or attempt.child is not child or attempt.job.fence != message.fence:
            # A thread that an ended handler left behind waits for this reply.
            if isinstance(message, p.StepRequest):
                child.send(p.StepReply(message.number, False))
            return
        self._messages.handle(attempt, message)

    def exited(self, child: ChildProcess) -> None:
        # An attempt whose end waits until its spawned job is stored is not lost.
        attempts = [r for r in self._attempts.values() if r.child is child and not r.ended]
        # From the end of the prefetch queue, so that no attempt becomes the head.
        for attempt in reversed(attempts):
            outcome = attempt.outcome_of_exit()
            self._end(attempt, outcome)
            if outcome is not None and not child.killed:
                log.warning("job %s: child %s exited (%s)", attempt.job.id, child.name, child.exit_text)
        self._prefetch.forget(child)

    # --- the end of an attempt

    def _end(self, attempt: Attempt, outcome: Outcome | Change | None) -> None:
        """End an attempt: free its slot and store its outcome together with the next claim."""
        job_id, child, delayed = attempt.job.id, attempt.child, False
        if self._attempts.get(job_id) is not attempt:
            return
        begun = attempt.begin_changes()
        if begun and attempt.log:  # the store accepts log lines only of an attempt that has begun
            self._settlement.write(begun)
            begun = []
        self._settlement.write_log(attempt)
        if outcome is not None:
            change = outcome if isinstance(outcome, Change) else self._settle(attempt, outcome)
            # While the child has prefetched work, delay the write: one commit then covers more outcomes.
            delayed = not child.is_async and self._prefetch.well_filled(attempt)
            write = self._settlement.write_soon if delayed else self._settlement.write
            write([*begun, change], partial(self._settled, attempt.key))
        else:
            self._progress.ended(attempt.key)
        del self._attempts[job_id]
        if not self._attempts:
            self._all_ended.set()
        self._release(attempt)
        if (deferred := self._deferred.pop(job_id, None)) is not None:
            self.start_job(*deferred)
        if not delayed:
            self._claim_soon()

    def _claim_soon(self) -> None:
        """Claim once for all attempts that end in this iteration of the event loop."""
        if not self._claim_scheduled:
            self._claim_scheduled = True
            self._loop.call_soon(self._claim_now)

    def _claim_now(self) -> None:
        self._claim_scheduled = False
        self._claimer.claim_free()

    def _settle(self, attempt: Attempt, outcome: Outcome) -> Change:
        return settle(
            attempt.job,
            outcome,
            attempt.kind.policy,
            now=self._store.now(),
            rng=self._rng,
            progress=attempt.live.progress if attempt.live.number else None,
        )

    def _settled(self, attempt: AttemptKey, outcome: Any) -> None:
        self._progress.ended(attempt)
        job_id = attempt[0]
        if isinstance(outcome, Job) and outcome.status.terminal:
            folder = f"{self._work}/{job_id}"
            # If the next run of the job has already started here, it uses the folder, and its end removes it.
            if (
                os.path.exists(folder)  # noqa: PTH110 — twice as fast as Path.exists, and called for every job
                and job_id not in self._attempts
                and (renamed := work_folders.rename(folder)) is not None
            ):
                self._settlement.run_in_background(asyncio.to_thread(work_folders.delete, renamed))

    def _release(self, attempt: Attempt) -> None:
        """Free the attempt's slot for the next prefetched job or for a claim."""
        child = attempt.child
        if attempt.started is not None:
            child.jobs_done += 1
            took = attempt.duration
            self._prefetch.durations.learn(
                attempt.kind.name, self._now() - attempt.started if took is None else took
            )
        if child.is_async:
            self._limits.release(True, attempt.job.queue)
        else:
            following = self._prefetch.remove(attempt)
            if following is not None:
                self._start_running(following)
            if self._prefetch.busy(child):
                return
            self._limits.release(False, attempt.job.queue)
        if child.state == "idle":
            self._reuse(child)

    def _reuse(self, child: ChildProcess) -> None:
        most = self._registry.max_jobs_per_child
        if most is not None and child.jobs_done >= most:
            child.request_exit()
            self._pool.fill()
        elif not child.is_async:
            self._prefetch.idle.append(child)

    # --- time

    async def _tick_loop(self) -> None:
        while True:
            try:
                self.tick(self._now())
            except Exception:
                log.exception("the engine's tick failed; the next one runs as usual")
            await asyncio.sleep(TICK)

    def tick(self, now: float) -> None:
        """Periodic work: attempt limits, silent children, memory, lease renewals, log lines and claims."""
        last, self._last_tick = self._last_tick, now
        if last is not None and now - last > self._config.lease / 3:
            self._on_suspension(now, now - last)
        self._pool.check()
        if not self._stopping:
            self._pool.fill()
        for attempt in list(self._attempts.values()):
            if attempt.stopping is not None:
                attempt.escalate(now, self._config.grace)
            elif (cause := attempt.exceeded_limit(now)) is not None:
                attempt.stop(cause.code, now, cause)
            self._settlement.write_log(attempt)
        for child in list(self._pool.children):
            if child.state != "starting" and now - child.last_heartbeat > self._config.lease:
                silence = now - child.last_heartbeat
                log.warning("child %s sent no heartbeat for %.0f s; killing it", child.name, silence)
                child.kill(lost=True)
        if now >= self._next_memory and self._registry.memory_limit:
            self._next_memory = now + 1.0
            self._check_memory(self._registry.memory_limit, now)
        if now >= self._next_renewal:
            self._next_renewal = now + renewal_interval(self._config.lease)
            self._renew()
        if now >= self._next_claim:
            self._next_claim = now + CLAIM_EVERY
            self._claimer.hint_everywhere()
        self._claimer.claim_free()

    def _on_suspension(self, now: float, seconds: float) -> None:
        """Called after this process was stopped or starved, while its children may have sent heartbeats. Give each child a
        whole lease from now on, and each handler its whole `stall` time.
        """
        log.warning("this process did not run for %.1f s (stopped, or too little CPU)", seconds)
        for child in self._pool.children:
            child.mark_alive(now)
        for attempt in self._attempts.values():
            attempt.last_activity = now
        self._next_renewal = now

    def _check_memory(self, limit: int, now: float) -> None:
        for child in list(self._pool.children):
            if child.state == "starting" or child.memory() <= limit:
                continue
            attempts = [r for r in self._attempts.values() if r.child is child]
            if not attempts and child in self._prefetch.idle:
                self._prefetch.forget(child)
                child.request_exit()
                self._pool.fill()
            for attempt in (r for r in attempts if r.started is not None):
                text = f"the child used more than memory_limit ({limit} bytes)"
                attempt.stop("memory", now, Raised(code="MEMORY_LIMIT", message=text))
                attempt.stage = 3
            if attempts:
                child.kill()

    def _renew(self) -> None:
        # Only for children that send heartbeats: a hung or stopped child loses its leases.
        recent = self._now() - self._config.lease / 2
        held = [
            (r.job.id, r.job.fence)
            for r in self._attempts.values()
            if r.child.last_heartbeat > recent or r.ended
        ]
        held += [(claim.job.id, claim.job.fence) for claim, _ in self._deferred.values()]
        held += self._settlement.unwritten().difference(held)
        if held and not self._renewing:
            self._renewing = True
            self._settlement.run_in_background(self._renewed(self._store, held))

    async def _renewed(self, store: JobStore, held: list[tuple[str, int]]) -> None:
        try:
            lost = await store.renew(self._owner, held, self._config.lease)
        except StoreUnavailable:
            self._next_renewal = min(self._next_renewal, self._now() + RENEW_RETRY)
            raise
        finally:
            self._renewing = False
        for job_id, fence in lost:
            attempt = self._attempts.get(job_id)
            if attempt is not None and attempt.job.fence == fence and job_id not in self._deferred:
                attempt.stop(LEASE_LOST, self._now())


def _handed_back(job: Job) -> Change:
    return changes.HandedBack(job_id=job.id, owner=job.owner, fence=job.fence)


def _has_sync(registry: Registry) -> bool:
    return any(not k.is_async for k in registry.kinds.values())
