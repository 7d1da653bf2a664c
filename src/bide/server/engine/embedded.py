"""The embedded engine: claims for its own children, hands them jobs, stores what comes of it. A worker of the Celery
engine is the same one, in a process of its own.

1. A settle and the claim for the slot that it frees are queued together, so that one commit covers both.
2. Only the attempt whose owner and fence the row has can change it; whatever else arrives is dropped.
3. A lease is renewed until the end of its attempt is stored, not only until its handler has returned.
4. A tick that comes late proves nothing about the children: what they sent meanwhile has not been read yet.
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

from bide.core import job as changes
from bide.core.clock import render_instant
from bide.core.job import Change
from bide.core.lease import renewal_interval
from bide.core.record import Job, Status
from bide.core.retry import Outcome, Raised, settle
from bide.core.wire import Event
from bide.server.config import WorkerConfig
from bide.server.engine import ServiceWarning, WorkerState
from bide.server.engine.attempt import CANCEL, SHUTDOWN, TAKEN, Attempt, run_message
from bide.server.engine.child_messages import Admit, MessageHandler
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
ASYNC_AT_ONCE = 1000  # jobs a claim may hand to the loop; the queue's limit is what counts
LOOK_AT_HEADS = 0.02  # a reserved job that runs for so long is shown as PROCESSING
TOO_LONG = 0.06  # and if it runs for so long, those behind it are taken back
LOOK_AROUND = 5.0  # seconds between two claims without a hint
RENEW_AGAIN = 1.0  # seconds after a renewal that could not be stored


class WorkerFolder(Protocol):
    """Where it works, and under which name."""

    @property
    def work(self) -> Path: ...

    @property
    def owner(self) -> str: ...


class EmbeddedEngine:
    """`Engine` with the service's own children."""

    def __init__(
        self,
        registry: Registry,
        store: Store,
        config: WorkerConfig,
        place: WorkerFolder,
        pool: Callable[[PoolListener, int, int], Pool],
        *,
        admit: Admit,
        progress: ProgressSink,
    ) -> None:
        self._registry = registry
        self._store = store
        self._config = config
        self._rng = random.Random()
        is_async = any(k.is_async for k in registry.kinds.values())
        sync = config.children(len(registry.queues)) if _has_sync(registry) else 0
        self._slots = ConcurrencyLimits(registry, sync, config.async_concurrency, config.queues)
        self._claims = Claimer(self._slots, self._ask, self)
        self._place = place
        self._work = str(place.work)
        self._looking = False
        self._pool = pool(self, sync, int(is_async))
        self._now = self._pool.now
        self._owner = ""  # known when it starts
        self._running: dict[str, Attempt] = {}
        self._deferred: dict[
            str, tuple[Claim, bool]
        ] = {}  # claimed while an earlier attempt still runs here
        self._lines = Prefetch(registry.max_jobs_per_child)
        self._watching = False  # whether reserved jobs that have come to the head are to be looked after
        self._stopping = False
        self._all_ended = asyncio.Event()
        self._progress = progress
        self._recorder = SettlementWriter(store)
        self._reports = MessageHandler(
            store, self._recorder, admit, self.nudge, self._end, progress.publish, self._now
        )
        self._next_renewal = -math.inf
        self._renewing = False
        self._last_tick: float | None = None
        self._next_look = -math.inf
        self._next_memory = -math.inf

    # --- beginning and end

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._owner = self._place.owner
        await self._pool.open()
        self._ticking = self._loop.create_task(self._tick_on())

    async def stop(self, drain: float) -> None:
        self._stopping = True
        began = self._now()
        await self._claims.close()
        await self._quiet(drain)
        for running in list(self._running.values()):
            running.stop(SHUTDOWN, self._now())
        await self._quiet(None)
        await self._pool.close(self._config.grace)
        await self._recorder.finish(max(self._config.grace, drain - (self._now() - began)))
        self._ticking.cancel()  # it renews the leases of results that wait for the store
        await self._recorder.close()

    def hurry(self) -> None:
        """Ends the patience of a stop that is under way."""
        self._all_ended.set()
        self._recorder.hurried = True

    async def _quiet(self, patience: float | None) -> None:
        """Until nothing runs any more, or patience ends."""
        if self._running:
            self._all_ended = asyncio.Event()
            try:
                async with asyncio.timeout(patience):
                    await self._all_ended.wait()
            except TimeoutError:
                return

    # --- what the others see

    def workers(self) -> list[WorkerState]:
        jobs: dict[ChildProcess, list[str]] = {}
        for job_id, running in self._running.items():
            jobs.setdefault(running.child, []).append(job_id)
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
        return queue in self._slots.queues

    async def knows(self, queue: str) -> bool:
        return self.serves(queue)

    def room(self, queue: str) -> bool:
        """Whether a job of this queue could start now. Any thread may ask."""
        if self._claims.closed:
            return False
        if self._lines.idle and self._slots.room(False, queue) > 0:
            return True
        async_ready = any(c.is_async and c.state == "idle" for c in list(self._pool.children))
        return async_ready and self._slots.room(True, queue) > 0

    def holds(self, job: Job) -> bool:
        if job.owner != self._owner:
            return False
        running = self._running.get(job.id)
        if running is not None and running.job.fence == job.fence:
            return True
        return job.id in self._deferred or (job.id, job.fence) in self._recorder.unwritten()

    def reset(self) -> None:
        self._next_renewal = self._now()

    def warnings(self) -> list[ServiceWarning]:
        if self._pool.trouble is not None:
            detail = f"handler children cannot start: {self._pool.trouble}"
            return [ServiceWarning("children-failing", detail)]
        if any(self._pool.waits_for(is_async) for is_async in (False, True)):
            return [ServiceWarning("children-starting", "handler children are still starting")]
        return []

    # --- hints and claims

    def nudge(self, queue: str, kind: str) -> None:
        self._claims.nudge(queue, kind)

    def nudge_all(self, queue: str) -> None:
        self._claims.nudge_all(queue)

    def heard(self, events: Sequence[Event]) -> None:
        for event in events:
            if event.type != "status":
                continue
            known = event.job
            running = self._running.get(event.job_id)
            if running is not None and known["fence"] >= running.job.fence:
                self._overheard(running, known)
            # A new job was nudged by whoever took it in.
            if known.get("due", 1e18) <= self._store.now() and known["version"] > 1:
                self.nudge(known["queue"], known["kind"])

    def _overheard(self, running: Attempt, known: dict[str, Any]) -> None:
        now = self._now()
        ours = (known["fence"], known.get("worker")) == (running.job.fence, self._owner)
        if not ours or known["status"] not in (Status.PROCESSING, running.job.status):
            running.stop(TAKEN, now)
        elif known.get("cancelAsked") and running.stopping is None:
            running.stop(CANCEL, now)

    def _ask(self, wants: list[ClaimRequest], limit: int) -> Awaitable[list[Claim]]:
        return self._store.claim(self._owner, wants, limit, self._config.lease)

    def free(self, is_async: bool) -> int:
        if is_async:
            return (
                ASYNC_AT_ONCE
                if any(c.is_async and c.state == "idle" for c in self._pool.children)
                else 0
            )
        return len(self._lines.idle)

    def lining(self, hints: dict[tuple[str, str], int]) -> list[ClaimRequest]:
        return self._lines.wants(hints, self._registry.kinds, self._now())

    def start_job(self, claim: Claim, is_async: bool) -> None:
        job = claim.job
        earlier = self._running.get(job.id)
        if earlier is not None and not self._stopping:
            # The store has lost the claim of an attempt that still runs here: that one has to end first.
            earlier.stop(TAKEN, self._now())
            self._deferred[job.id] = (claim, is_async)
            return
        child = None if self._stopping else self._child_for(job, is_async)
        if child is None:  # it died, or we stop, while the claim was under way
            self._recorder.write([_handed_back(job)])
            return
        running = Attempt(job, self._registry.kinds[job.kind], child)
        self._running[job.id] = running
        self._progress.publish(running.attempt, running.live)
        waits = not is_async and self._lines.busy(child)
        if not is_async:
            self._lines.append(running)
        if waits:
            self._watch_heads()
        else:
            self._slots.taken(is_async, job.queue)
            self._head(running)
        child.send(run_message(claim), at_once=not waits)

    def _child_for(self, job: Job, is_async: bool) -> ChildProcess | None:
        if is_async:
            return next((c for c in self._pool.children if c.is_async and c.state == "idle"), None)
        line = None if job.running else self._lines.shortest(job.queue)
        return line or self._lines.take_idle()

    def _head(self, running: Attempt) -> None:
        """It runs now. One that was only reserved is told to the store when it ends, or when it takes a moment."""
        running.start(self._now(), self._store.now())
        if running.inbox:
            self._loop.call_soon(self._reports.take_waiting, running)
        if not running.job.running:
            self._watch_heads()

    def _watch_heads(self) -> None:
        if not self._watching:
            self._watching = True
            self._loop.call_later(LOOK_AT_HEADS, self._look_at_heads)

    def _look_at_heads(self) -> None:
        self._watching = False
        now = self._now()
        for running in self._lines.heads():
            age = now - (running.started or now)
            waits = self._lines.behind(running) > 0
            if age >= LOOK_AT_HEADS and not running.job.running:
                self._recorder.write(running.begin())
            if age >= TOO_LONG and waits:
                running.child.ask_back()
            elif waits or not running.job.running:
                self._watch_heads()

    # --- what the pool tells (supervisor.Listener)

    def ready(self, child: ChildProcess) -> None:
        if not child.is_async:
            self._lines.idle.append(child)
        self._claims.look_everywhere()

    def said(self, child: ChildProcess, message: Any) -> None:
        if isinstance(message, p.JobsReturned):
            for job_id, fence in message.jobs:
                given = self._running.get(job_id)
                if given is not None and given.job.fence == fence:
                    # It never ran, so that it may run again whatever its kind.
                    self._end(given, None if given.stopping == TAKEN else _handed_back(given.job))
            return
        if isinstance(message, p.NeedsReplacement):
            child.leave()
            self._pool.fill()
            return
        running = self._running.get(message.job_id)
        if running is None or running.child is not child or running.job.fence != message.fence:
            if isinstance(
                message, p.StepRequest
            ):  # somebody waits there: a thread of a job that has ended
                child.send(p.StepReply(message.number, False))
            return
        self._reports.take(running, message)

    def gone(self, child: ChildProcess) -> None:
        # The end of an attempt may wait until a child that it has spawned is stored: then it is not lost.
        mine = [r for r in self._running.values() if r.child is child and not r.ended]
        for running in reversed(mine):  # from the end of its line, so that nobody moves up
            outcome = running.outcome_of_end()
            self._end(running, outcome)
            if outcome is not None and not child.killed:
                log.warning("job %s: its child %s (%s)", running.job.id, child.name, child.exit_text)
        self._lines.forget(child)

    # --- the end of an attempt

    def _end(self, running: Attempt, outcome: Outcome | Change | None) -> None:
        """The attempt is over: its slot is free, and what became of it goes to the store with the next claim."""
        job_id, child, patient = running.job.id, running.child, False
        if self._running.get(job_id) is not running:
            return
        begun = running.begin()
        if begun and running.log:  # a line of the log belongs to an attempt that is known
            self._recorder.write(begun)
            begun = []
        self._recorder.write_log(running)
        if outcome is not None:
            change = outcome if isinstance(outcome, Change) else self._settle(running, outcome)
            # While there is work in its line, its child does not wait for us: more can go into one commit.
            patient = not child.is_async and self._lines.plenty(running)
            write = self._recorder.write_soon if patient else self._recorder.write
            write([*begun, change], partial(self._settled, running.attempt))
        else:
            self._progress.ended(running.attempt)
        del self._running[job_id]
        if not self._running:
            self._all_ended.set()
        self._release(running)
        if (deferred := self._deferred.pop(job_id, None)) is not None:
            self.start_job(*deferred)
        if not patient:
            self._look_soon()

    def _look_soon(self) -> None:
        """Once for all that ended in this round of the loop: one claim then fills every slot."""
        if not self._looking:
            self._looking = True
            self._loop.call_soon(self._look)

    def _look(self) -> None:
        self._looking = False
        self._claims.look()

    def _settle(self, running: Attempt, outcome: Outcome) -> Change:
        return settle(
            running.job,
            outcome,
            running.kind.policy,
            now=self._store.now(),
            rng=self._rng,
            progress=running.live.progress if running.live.number else None,
        )

    def _settled(self, attempt: AttemptKey, outcome: Any) -> None:
        self._progress.ended(attempt)
        job_id = attempt[0]
        if isinstance(outcome, Job) and outcome.status.terminal:
            folder = f"{self._work}/{job_id}"
            # A next run of the job that is here already goes on with the folder; its end removes it.
            if (
                os.path.exists(folder)  # noqa: PTH110 — twice as fast, and asked for every job
                and job_id not in self._running
                and (renamed := work_folders.rename(folder)) is not None
            ):
                self._recorder.carry_out(asyncio.to_thread(work_folders.delete, renamed))

    def _release(self, running: Attempt) -> None:
        """Its place is free: for the next of its line, or for a claim."""
        child = running.child
        if running.started is not None:
            child.jobs_done += 1
            took = running.took
            self._lines.durations.learn(
                running.kind.name, self._now() - running.started if took is None else took
            )
        if child.is_async:
            self._slots.freed(True, running.job.queue)
        else:
            following = self._lines.remove(running)
            if following is not None:
                self._head(following)
            if self._lines.busy(child):
                return
            self._slots.freed(False, running.job.queue)
        if child.state == "idle":
            self._rest(child)

    def _rest(self, child: ChildProcess) -> None:
        most = self._registry.max_jobs_per_child
        if most is not None and child.jobs_done >= most:
            child.leave()
            self._pool.fill()
        elif not child.is_async:
            self._lines.idle.append(child)

    # --- time

    async def _tick_on(self) -> None:
        while True:
            try:
                self.tick(self._now())
            except Exception:
                log.exception("the engine's tick failed")
            await asyncio.sleep(TICK)

    def tick(self, now: float) -> None:
        """What time brings: limits, silent children, leases, logs, a look around."""
        last, self._last_tick = self._last_tick, now
        if last is not None and now - last > self._config.lease / 3:
            self._overslept(now, now - last)
        self._pool.check()
        if not self._stopping:
            self._pool.fill()
        for running in list(self._running.values()):
            if running.stopping is not None:
                running.press(now, self._config.grace)
            elif (cause := running.overrun(now)) is not None:
                running.stop(cause.code, now, cause)
            self._recorder.write_log(running)
        for child in list(self._pool.children):
            if child.state != "starting" and now - child.last_beat > self._config.lease:
                log.warning(
                    "child %s has been silent for %.0f s: killed", child.name, now - child.last_beat
                )
                child.kill(lost=True)
        if now >= self._next_memory and self._registry.memory_limit:
            self._next_memory = now + 1.0
            self._weigh(self._registry.memory_limit, now)
        if now >= self._next_renewal:
            self._next_renewal = now + renewal_interval(self._config.lease)
            self._renew()
        if now >= self._next_look:
            self._next_look = now + LOOK_AROUND
            self._claims.look_everywhere()
        self._claims.look()

    def _overslept(self, now: float, seconds: float) -> None:
        """This process was stopped, or starved. Its children may have beaten all the while: each has a whole lease from
        now on to be heard, and a handler as long to show progress as at its start.
        """
        log.warning("this process did not run for %.1f s", seconds)
        for child in self._pool.children:
            child.heard_at(now)
        for running in self._running.values():
            running.sign = now
        self._next_renewal = now

    def _weigh(self, limit: int, now: float) -> None:
        for child in list(self._pool.children):
            if child.state == "starting" or child.memory() <= limit:
                continue
            mine = [r for r in self._running.values() if r.child is child]
            if not mine and child in self._lines.idle:
                self._lines.forget(child)
                child.leave()
                self._pool.fill()
            for running in (r for r in mine if r.started is not None):
                text = f"the child used more than {limit} bytes of memory"
                running.stop("memory", now, Raised(code="MEMORY_LIMIT", message=text))
                running.stage = 3
            if mine:
                child.kill()

    def _renew(self) -> None:
        # Only for children that answer: a hung or stopped one loses its lease.
        recent = self._now() - self._config.lease / 2
        held = [
            (r.job.id, r.job.fence)
            for r in self._running.values()
            if r.child.last_beat > recent or r.ended
        ]
        held += [(claim.job.id, claim.job.fence) for claim, _ in self._deferred.values()]
        held += self._recorder.unwritten().difference(held)
        if held and not self._renewing:
            self._renewing = True
            self._recorder.carry_out(self._renewed(self._store, held))

    async def _renewed(self, store: JobStore, held: list[tuple[str, int]]) -> None:
        try:
            lost = await store.renew(self._owner, held, self._config.lease)
        except StoreUnavailable:
            self._next_renewal = min(self._next_renewal, self._now() + RENEW_AGAIN)
            raise
        finally:
            self._renewing = False
        for job_id, fence in lost:
            running = self._running.get(job_id)
            if running is not None and running.job.fence == fence and job_id not in self._deferred:
                running.stop(TAKEN, self._now())


def _handed_back(job: Job) -> Change:
    return changes.HandedBack(job_id=job.id, owner=job.owner, fence=job.fence)


def _has_sync(registry: Registry) -> bool:
    return any(not k.is_async for k in registry.kinds.values())
