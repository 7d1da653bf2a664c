"""The embedded engine: claims for its own children, hands them jobs, stores what comes of it.

1. A settle and the claim for the slot that it frees are queued together, so that one commit covers both.
2. Only the attempt whose fence the row has can change it; whatever else arrives is dropped.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import shutil
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from bide.core import job as changes
from bide.core import record
from bide.core.clock import render_instant
from bide.core.errors import Problem
from bide.core.job import Change
from bide.core.lease import renewal_interval
from bide.core.record import Job, Status
from bide.core.retry import Outcome, Raised, Returned, settle
from bide.core.wire import Event
from bide.server.blobs import Blobs
from bide.server.config import WorkerConfig
from bide.server.engine import Live, WorkerState
from bide.server.engine.claims import Claims
from bide.server.engine.running import CANCEL, SHUTDOWN, TAKEN, Running, run_message
from bide.server.engine.slots import Slots
from bide.server.registry import Registry
from bide.server.store import Claim, Jobs, NewJob, Store, Want
from bide.server.worker import protocol as p
from bide.server.worker.locate import Location
from bide.server.worker.supervisor import Child, Pool, sweep

log = logging.getLogger("bide.engine")
TICK = 0.25
ASYNC_AT_ONCE = 1000  # jobs a claim may hand to the loop; the queue's limit is what counts
LOOK_AROUND = 5.0  # seconds between two claims without a hint
Admit = Callable[[p.Spawn, Job], Awaitable[NewJob]]


class EmbeddedEngine:
    """`Engine` with the service's own children."""

    def __init__(
        self,
        registry: Registry,
        store: Store,
        blobs: Blobs,
        config: WorkerConfig,
        location: Location,
        data: Path,
        *,
        rng: random.Random | None = None,
    ) -> None:
        self._registry = registry
        self._store = store
        self._blobs = blobs
        self._config = config
        self._rng = rng or random.Random()
        self.admit: Admit | None = None  # set by the composition root: how a spawned job is checked
        self.progressed: Callable[[str], None] = lambda job_id: None
        is_async = any(k.is_async for k in registry.kinds.values())
        sync = config.children(len(registry.queues)) if _has_sync(registry) else 0
        self._slots = Slots(registry, sync, config.async_concurrency)
        self._claims = Claims(self._slots, self._ask, self)
        self._data = data
        self._pool = Pool(
            location,
            data,
            sync=sync,
            is_async=int(is_async),
            beat=min(config.lease / 6, 5.0),
            listener=self,
        )
        self._owner = f"{os.uname().nodename}:{os.getpid()}"
        self._running: dict[str, Running] = {}
        self._fading: dict[str, Live] = {}  # of attempts that have ended, until that is stored
        self._idle: list[Child] = []
        self._stopping = False
        self._all_ended = asyncio.Event()
        self._background: set[asyncio.Future[Any]] = set()
        self._next_renewal = 0.0
        self._next_look = 0.0
        self._next_memory = 0.0

    # --- beginning and end

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        left = await asyncio.to_thread(sweep, self._data)
        if left:
            log.warning("ended %d processes that an earlier service had left behind", left)
        self._pool.fill()
        self._ticking = self._loop.create_task(self._tick_on())

    async def stop(self, drain: float) -> None:
        self._stopping = self._claims.closed = True
        await self._quiet(drain)
        for running in list(self._running.values()):
            running.stop(SHUTDOWN, time.monotonic())
        await self._quiet(None)
        await self._pool.close(self._config.grace)
        self._ticking.cancel()
        if self._background:
            await asyncio.wait(self._background)

    def hurry(self) -> None:
        """Ends the patience of a stop that is under way."""
        self._all_ended.set()

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

    def live(self, job_id: str) -> Live | None:
        running = self._running.get(job_id)
        live = running.live if running is not None else self._fading.get(job_id)
        return None if live is None or live.number == 0 else live

    def workers(self) -> list[WorkerState]:
        jobs: dict[Child, list[str]] = {}
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

    def troubles(self) -> list[str]:
        if self._stopping:
            return ["the service is stopping"]
        if self._pool.trouble is not None:
            return [f"handler children cannot start: {self._pool.trouble}"]
        if any(self._pool.waits_for(is_async) for is_async in (False, True)):
            return ["handler children are still starting"]
        return []

    # --- hints and claims

    def nudge(self, queue: str, kind: str) -> None:
        self._claims.nudge(queue, kind)

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

    def _overheard(self, running: Running, known: dict[str, Any]) -> None:
        now = time.monotonic()
        if known["fence"] != running.job.fence or known["status"] != Status.PROCESSING:
            running.stop(TAKEN, now)
        elif known.get("cancelAsked") and running.stopping is None:
            running.stop(CANCEL, now)

    def _ask(self, wants: list[Want], limit: int) -> Awaitable[list[Claim]]:
        return self._store.claim(self._owner, wants, limit, self._config.lease)

    def free(self, is_async: bool) -> int:
        if is_async:
            return (
                ASYNC_AT_ONCE
                if any(c.is_async and c.state == "idle" for c in self._pool.children)
                else 0
            )
        return len(self._idle)

    def start_job(self, claim: Claim, is_async: bool) -> None:
        child = self._child_for(is_async)
        job = claim.job
        if child is None:  # it died while the claim was under way
            self._store_later(changes.HandedBack(job_id=job.id, fence=job.fence))
            return
        self._slots.taken(is_async, job.queue)
        self._running[job.id] = Running(job, self._registry.kinds[job.kind], child, time.monotonic())
        child.send(run_message(claim, self._blobs))

    def _child_for(self, is_async: bool) -> Child | None:
        if is_async:
            return next((c for c in self._pool.children if c.is_async and c.state == "idle"), None)
        return self._idle.pop() if self._idle else None

    # --- what the pool tells (supervisor.Listener)

    def ready(self, child: Child) -> None:
        if not child.is_async:
            self._idle.append(child)
        self._claims.look_everywhere()

    def said(self, child: Child, message: Any) -> None:
        running = self._running.get(message.job_id)
        if running is None or running.child is not child or running.job.fence != message.fence:
            return
        if running.storing:
            running.inbox.append(message)
        else:
            self._take(running, message)

    def gone(self, child: Child) -> None:
        if child in self._idle:
            self._idle.remove(child)
        for running in [r for r in self._running.values() if r.child is child]:
            outcome = running.outcome_of_end()
            self._end(running, outcome)
            if outcome is not None and not child.killed:
                log.warning("job %s: its child %s (%s)", running.job.id, child.name, child.exit_text)

    # --- what an attempt says

    def _take(self, running: Running, message: p.FromJob) -> None:
        running.sign = time.monotonic()
        fields: dict[str, Any] = {"job_id": message.job_id, "fence": message.fence}
        match message:
            case p.Moved():
                running.moved(message.progress, self._store.now())
                if message.progress is not None:
                    self.progressed(message.job_id)
            case p.Said():
                running.log.append(message.line)
            case p.Began():
                self._store_later(changes.StepStarted(name=message.step, **fields))
            case p.Kept():
                self._keep(running, message, fields)
            case p.Spawn():
                self._spawn(running, message)
            case p.Parked():
                running.moved(message.progress, self._store.now())
                self._end(
                    running,
                    running.cause  # a child that was refused will never end: do not wait for it
                    or changes.Parked(
                        waiting_for=tuple(message.waiting_for),
                        files=tuple(message.files),
                        progress=message.progress,
                        **fields,
                    ),
                )
            case p.Done():
                running.moved(message.progress, self._store.now())
                self._end(running, _returned(message))
            case p.Failed():
                running.moved(message.progress, self._store.now())
                raised = Raised(
                    code=message.code,
                    message=message.message,
                    retryable=message.retryable,
                    step=message.step,
                )
                self._end(running, running.cause or raised)
            case p.Stopped():
                running.moved(message.progress, self._store.now())
                self._end(running, running.outcome_of_end())

    def _keep(self, running: Running, message: p.Kept, fields: dict[str, Any]) -> None:
        change = changes.StepKept(
            name=message.step,
            result=msgspec.Raw(message.result),
            files=tuple(message.files),
            **fields,
        )

        def kept(outcome: Any) -> None:
            if isinstance(outcome, Job):  # a child that is spawned later may be given one of these files
                running.job = replace(running.job, files=outcome.files)
            running.child.send(p.Answer(message.number, isinstance(outcome, Job)))

        self._store_later(change, kept)

    def _spawn(self, running: Running, message: p.Spawn) -> None:
        """Later messages of the same attempt wait until the child is stored."""
        running.storing = True

        async def store() -> None:
            assert self.admit is not None
            running.job = replace(running.job, files=(*message.files, *running.job.files))
            try:
                new = await self.admit(message, running.job)
                link = record.Child(new.job.id, new.job.kind, message.key)
                change = changes.Spawned(
                    job_id=message.job_id, fence=message.fence, child=link, files=tuple(message.files)
                )
                stored = self._store.spawn(change, new)
                self.nudge(new.job.queue, new.job.kind)
                if not isinstance(await stored, Job):
                    running.stop(TAKEN, time.monotonic())
            except Problem as problem:
                places = "; ".join(e["detail"] for e in problem.errors or ())
                text = f"{message.kind} cannot be spawned: {problem.detail} {places}".strip()
                cause = Raised(code="SPAWN_REFUSED", message=text, retryable=False)
                running.stop("spawn", time.monotonic(), cause)
            finally:
                running.storing = False
                while running.inbox and not running.storing:
                    self._take(running, running.inbox.popleft())

        self._in_background(store())

    def _end(self, running: Running, outcome: Outcome | Change | None) -> None:
        """The attempt is over: its slot is free, and what became of it goes to the store with the next claim."""
        job, child = running.job, running.child
        if self._running.get(job.id) is not running:
            return
        self._flush_log(running)
        if outcome is not None:
            change = outcome if isinstance(outcome, Change) else self._settle(running, outcome)
            self._fading[job.id] = running.live
            self._store_later(change, partial(self._settled, job.id))
        del self._running[job.id]
        if not self._running:
            self._all_ended.set()
        self._slots.freed(child.is_async, job.queue)
        self._release(child)
        self._claims.look()

    def _settle(self, running: Running, outcome: Outcome) -> Change:
        return settle(
            running.job,
            outcome,
            running.kind.policy,
            now=self._store.now(),
            rng=self._rng,
            progress=running.live.progress if running.live.number else None,
        )

    def _settled(self, job_id: str, outcome: Any) -> None:
        self._fading.pop(job_id, None)
        if isinstance(outcome, Job) and outcome.status.terminal:
            folder = self._data / "work" / outcome.id
            if folder.exists():
                self._in_background(asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True))

    def _release(self, child: Child) -> None:
        child.jobs_done += 1
        if child.state != "idle":
            return
        most = self._registry.max_jobs_per_child
        if most is not None and child.jobs_done >= most:
            child.leave()
            self._pool.fill()
        elif not child.is_async:
            self._idle.append(child)

    # --- storing

    def _store_later(self, change: Change, then: Callable[[Any], None] | None = None) -> None:
        """Queues a change; one that cannot be written is tried again until it can, or is refused."""

        def stored(future: asyncio.Future[Any]) -> None:
            self._background.discard(future)
            if future.cancelled():
                return
            error = future.exception()
            if error is not None:
                log.error("job %s cannot be stored, trying again: %s", change.job_id, error)
                self._loop.call_later(1.0, self._store_later, change, then)
            elif then is not None:
                then(future.result()[0])

        future = asyncio.ensure_future(self._store.apply([change]))
        self._background.add(future)
        future.add_done_callback(stored)

    def _flush_log(self, running: Running) -> None:
        if running.log:
            lines, running.log = running.log, []
            # Queued here and now, so that a job's last lines are stored before its end is.
            self._in_background(self._store.log(running.job.id, running.job.fence, lines))

    def _in_background(self, work: Awaitable[Any]) -> None:
        task = asyncio.ensure_future(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    # --- time

    async def _tick_on(self) -> None:
        while True:
            try:
                self.tick(time.monotonic())
            except Exception:
                log.exception("the engine's tick failed")
            await asyncio.sleep(TICK)

    def tick(self, now: float) -> None:
        """What time brings: limits, silent children, leases, logs, a look around."""
        self._pool.check()
        if not self._stopping:
            self._pool.fill()
        for running in list(self._running.values()):
            if running.stopping is not None:
                running.press(now, self._config.grace)
            elif (cause := running.overrun(now)) is not None:
                running.stop(cause.code, now, cause)
            self._flush_log(running)
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

    def _weigh(self, limit: int, now: float) -> None:
        for child in list(self._pool.children):
            if child.state == "starting" or child.memory() <= limit:
                continue
            mine = [r for r in self._running.values() if r.child is child]
            if not mine and child in self._idle:
                self._idle.remove(child)
                child.leave()
                self._pool.fill()
            for running in mine:
                text = f"the child used more than {limit} bytes of memory"
                running.stop("memory", now, Raised(code="MEMORY_LIMIT", message=text))
                running.stage = 3
            if mine:
                child.kill()

    def _renew(self) -> None:
        # Only for children that answer: a hung or stopped one loses its lease.
        recent = time.monotonic() - self._config.lease / 2
        held = [(r.job.id, r.job.fence) for r in self._running.values() if r.child.last_beat > recent]
        if held:
            self._in_background(self._renewed(self._store, held))

    async def _renewed(self, store: Jobs, held: list[tuple[str, int]]) -> None:
        for job_id, fence in await store.renew(held, self._config.lease):
            running = self._running.get(job_id)
            if running is not None and running.job.fence == fence:
                running.stop(TAKEN, time.monotonic())


def _has_sync(registry: Registry) -> bool:
    return any(not k.is_async for k in registry.kinds.values())


def _returned(message: p.Done) -> Returned:
    return Returned(
        result=msgspec.Raw(message.result) if message.result is not None else None,
        result_file=message.result_file,
        errors=message.errors,
        files=tuple(message.files),
    )
