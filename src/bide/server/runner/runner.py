"""The runner: claims jobs, runs them in child processes, and stores their outcomes. It reads from top to bottom: a hint, a
claim, the start in a child, the messages of the child, the end of the attempt, its settlement.

1. The settlement of a job and the claim for the slot that it frees are queued together, so that one commit covers both.
2. Only the attempt whose owner and fence match the row can change it; other messages are dropped.
3. Claimed jobs are always started or handed back, also those of a claim that was in flight when `stop` was called.
4. Messages of one attempt are handled in order, even while an earlier one is being stored. The `Begun` change of a
   prefetched job is written before its other changes.
5. A job is parked only after the spawned jobs that it waits for are stored. If one of them cannot be stored, the attempt
   neither parks nor succeeds: it fails with the reason.
6. The writer's thread gives jobs to idle children right after the commit of their claim. `_start` does everything else, and
   messages of the job wait for it.
7. A lease is renewed until the end of its attempt is stored, not only until its handler has returned.
8. A late tick proves nothing about the children, because their messages have not been read yet.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from bide.core.errors import Problem
from bide.core.jobs import record
from bide.core.jobs import state_machine as changes
from bide.core.jobs.lease import renewal_interval
from bide.core.jobs.record import Job, Status
from bide.core.jobs.retry import Outcome, Raised, settle
from bide.core.jobs.state_machine import Change, Refused
from bide.core.json_log import about_job
from bide.core.wire.http import Event
from bide.server.config import WorkerConfig
from bide.server.job_tracer import JobTracer
from bide.server.progress import AttemptKey, ProgressSink
from bide.server.registry import Registry
from bide.server.runner.attempt import CANCEL, HANGS, LEASE_LOST, SHUTDOWN, Attempt, run_message
from bide.server.runner.breakers import BreakerAnswer, BreakerCache
from bide.server.runner.settlement import SettlementWriter
from bide.server.runner.slots import PlannedClaim, Slots
from bide.server.store import Claim, FirstAttempts, Missing, NewJob, RunnerStore, StoreUnavailable
from bide.server.worker import protocol as p
from bide.server.worker import work_folders
from bide.server.worker.supervisor import ChildProcess, Pool

log = logging.getLogger("bide.engine")
TICK = 0.25
OUTPUT_EVERY = 0.05  # seconds between two writes of output streams
HEAD_CHECK = 0.02  # a prefetched job that runs for this long is stored as PROCESSING
RETURN_AFTER = 0.06  # when it runs for this long, its child returns the jobs behind it
REPORT_EVERY = 10.0  # seconds between two reports of first attempts without a failure
CLAIM_EVERY = 5.0  # seconds between two claims without a hint
LOG_EVERY = 10.0  # seconds between two lines about the same failure of claims
RENEW_RETRY = 1.0  # seconds after a renewal that could not be stored
RETRY_AFTER = 1.0  # seconds after a step or a spawned job that the store could not read or write
SMALL_INPUT = 8 * 1024  # bytes of the input of a job that the writer's thread gives to a child
_FAILED = (changes.Failed, changes.FailedForNow)
PrepareSpawn = Callable[[p.Spawn, Job], Awaitable[NewJob]]  # validates a spawned job


class WorkerFolder(Protocol):
    """The folder for the jobs' working folders, and the owner name for claims."""

    @property
    def work(self) -> Path: ...

    @property
    def owner(self) -> str: ...


def children_of(registry: Registry, config: WorkerConfig) -> tuple[int, int]:
    """How many sync and async children the app needs."""
    modes = {kind.is_async for kind in registry.kinds.values()}
    return config.children(len(registry.queues)) if False in modes else 0, int(True in modes)


class Runner:
    """Runs jobs in the children of `pool`."""

    def __init__(
        self,
        registry: Registry,
        store: RunnerStore,
        config: WorkerConfig,
        folder: WorkerFolder,
        pool: Pool,
        *,
        prepare_spawn: PrepareSpawn,
        progress: ProgressSink,
        tracer: JobTracer | None = None,
    ) -> None:
        self.prepare_spawn = prepare_spawn
        self.pool = pool
        self.attempts: dict[str, Attempt] = {}  # by job id
        self._registry = registry
        self._store = store
        self._config = config
        self._folder = folder
        self._work = str(folder.work)
        self._owner = ""  # set by `start`
        self._progress = progress
        self._tracer = tracer
        self._now = pool.now
        self._rng = random.Random()
        # Retry budgets of the kinds that have one, and first attempts that were not reported yet.
        self._budgets = {
            kind.name: kind.policy.budget
            for kind in registry.kinds.values()
            if kind.policy.retries and kind.policy.budget is not None
        }
        self._first_attempts: Counter[str] = Counter()
        self._next_report = -math.inf
        # Tests replace the generator.
        jitter = lambda: self._rng.random()  # noqa: E731, PLW0108
        self._breakers = BreakerCache(registry, store, pool.now, jitter)
        sync, _ = children_of(registry, config)
        self._slots = Slots(registry, sync, config.async_concurrency, config.queues)
        self.queues = self._slots.queues
        self._settlement = SettlementWriter(store)
        self._claims: set[asyncio.Future[list[Claim]]] = set()  # in flight
        self._claim_scheduled = False
        # By job id: the child that the writer's thread has taken for it, and whether it has got the job.
        self._handed_over: dict[str, tuple[ChildProcess, bool]] = {}
        self._early: dict[str, list[Any]] = {}  # messages of these jobs
        self._log_again_at: dict[str, float] = {}  # by the reason why claims fail
        # Claims of jobs of which an earlier attempt still runs here.
        self._deferred: dict[str, tuple[Claim, bool]] = {}
        self._checking_heads = False
        self._output_scheduled = False
        self._stopping = self._stopping_now = False
        self._all_ended = asyncio.Event()
        self._renewing = False
        self._last_tick: float | None = None
        self._next_renewal = -math.inf
        self._next_claim = -math.inf
        self._next_memory = -math.inf

    # --- start and stop

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._owner = self._folder.owner
        await self.pool.open(self)
        self._ticking = self._loop.create_task(self._tick_loop())

    async def stop(self, drain: float) -> None:
        """Stop claiming, wait up to `drain` seconds for running jobs, and hand the rest back to the store."""
        self._stopping = True
        began = self._now()
        while self._claims:  # their jobs are already this runner's
            await asyncio.wait(self._claims)
        if not self._stopping_now:
            await self._wait_until_idle(drain)
        for attempt in list(self.attempts.values()):
            attempt.stop(SHUTDOWN, self._now())
        await self._wait_until_idle(None)
        await self.pool.close(self._config.grace)
        await self._settlement.finish(max(self._config.grace, drain - (self._now() - began)))
        self._ticking.cancel()  # only now: the tick renews the leases of results that wait for the store
        await self._settlement.close()

    def stop_now(self) -> None:
        """Make `stop` end without waiting for running jobs, also if it has not begun to wait."""
        self._stopping_now = True
        self._all_ended.set()
        self._settlement.skip_wait = True

    async def _wait_until_idle(self, timeout: float | None) -> None:
        if self.attempts:
            self._all_ended = asyncio.Event()
            try:
                async with asyncio.timeout(timeout):
                    await self._all_ended.wait()
            except TimeoutError:
                return

    # --- hints

    def hint(self, queue: str, kind: str) -> None:
        """Claim jobs of this kind from this queue when they can start."""
        self._slots.hint(queue, kind)
        self._claim()

    def hint_queue(self, queue: str) -> None:
        """Claim jobs of any kind from this queue when they can start."""
        self._slots.hint_queue(queue)
        self._claim()

    def _hint_everywhere(self) -> None:
        """Called when a child is ready, and periodically in case a hint was lost."""
        self._slots.hint_everywhere()
        self._claim()

    def on_events(self, events: Sequence[Event]) -> None:
        """React to committed events: claim jobs that are due, stop attempts that were cancelled or have lost their lease."""
        for event in events:
            if event.type != "status":
                continue
            known = event.job
            attempt = self.attempts.get(event.job_id)
            if attempt is not None and known["fence"] >= attempt.job.fence:
                is_current = (known["fence"], known.get("worker")) == (attempt.job.fence, self._owner)
                if not is_current or known["status"] not in (Status.PROCESSING, attempt.job.status):
                    attempt.stop(LEASE_LOST, self._now())
                elif known.get("cancelAsked") and attempt.stopping is None:
                    attempt.stop(CANCEL, self._now())
            # The intake has already hinted at a new job (version 1). The upkeep hints at jobs that are due later.
            if known.get("due", 1e18) <= event.at and known["version"] > 1:
                self.hint(known["queue"], known["kind"])

    def has_capacity(self, queue: str) -> bool:
        """Whether a job of this queue can start now. Thread-safe."""
        return not self._stopping and self._slots.has_capacity(queue)

    def limit(self, queue: str) -> int:
        """How many jobs of this queue run at once, if no other queue has jobs."""
        return self._slots.limit(queue)

    def holds(self, job: Job) -> bool:
        """Whether this process runs this attempt, or has its result and has not stored it yet."""
        if job.owner != self._owner:
            return False
        attempt = self.attempts.get(job.id)
        if attempt is not None and attempt.job.fence == job.fence:
            return True
        return job.id in self._deferred or (job.id, job.fence) in self._settlement.unwritten()

    # --- claim

    def _claim(self, *, prefetch: bool = True) -> None:
        """Claim as many jobs as can start now, from queues that may have any."""
        self._claim_scheduled = False
        if self._stopping:
            return
        for planned in self._slots.plan(self._now(), prefetch=prefetch):
            to_idle = not planned.is_async and not planned.prefetches
            claiming = asyncio.ensure_future(
                self._store.claim(
                    self._owner,
                    planned.requests,
                    planned.limit,
                    self._config.lease,
                    stored=self._hand_over if to_idle else None,
                )
            )
            self._claims.add(claiming)
            claiming.add_done_callback(partial(self._claimed, planned))

    def _hand_over(self, claims: Sequence[Claim]) -> None:
        """Give claimed jobs to idle children, which start while the event loop wakes up. The writer's thread calls it."""
        for claim in claims:
            job = claim.job
            large = claim.steps or claim.children or len(claim.input) > SMALL_INPUT
            if large or self._stopping or job.id in self.attempts:
                continue
            message = run_message(claim, self._config.output_limit)
            child = self._slots.take_idle()
            if child is None:
                return
            # First, because the child may respond immediately.
            self._handed_over[job.id] = child, True
            if not child.hand_over(message):
                self._handed_over[job.id] = child, False

    def _claimed(self, planned: PlannedClaim, claiming: asyncio.Future[list[Claim]]) -> None:
        self._claims.discard(claiming)
        if claiming.cancelled() or (error := claiming.exception()) is not None:
            self._slots.claimed(planned, None)
            self._log_failure("cancelled" if claiming.cancelled() else str(error))
            return
        claims = claiming.result()
        for claim in claims:  # first, so that the children start meanwhile
            self._start(claim, planned.is_async)
        self._slots.claimed(planned, claims)
        self._claim(prefetch=not planned.prefetches or len(claims) == planned.limit)

    def _log_failure(self, reason: str) -> None:
        """The hints stay and the next tick claims again, so each reason is logged only every LOG_EVERY seconds."""
        now = self._loop.time()
        if now >= self._log_again_at.get(reason, -math.inf):
            recent = {other: until for other, until in self._log_again_at.items() if until > now}
            self._log_again_at = {**recent, reason: now + LOG_EVERY}
            log.error("cannot claim jobs; retrying: %s", reason)

    # --- start

    def _start(self, claim: Claim, is_async: bool) -> None:
        """Give a claimed job to a child."""
        job = claim.job
        child, sent = self._handed_over.pop(job.id, (None, False))
        if not sent:
            if child is not None and child.state == "idle":
                self._slots.add_child(child)
            earlier = self.attempts.get(job.id)
            if earlier is not None and not self._stopping:
                # The store has lost the claim of an attempt that still runs here. That attempt must end first.
                earlier.stop(LEASE_LOST, self._now())
                self._deferred[job.id] = (claim, is_async)
                return
            child = None if self._stopping else self._slots.take_child(job, is_async)
        if child is None:  # the child died, or the runner stopped, while the claim was in flight
            self._settlement.write([_handed_back(job)])
            return
        attempt = Attempt(job, self._registry.kinds[job.kind], child, claim.due, claim.emitted)
        self.attempts[job.id] = attempt
        runs = self._slots.add(attempt)
        if not sent:
            # First, so that the child starts meanwhile.
            child.send(run_message(claim, self._config.output_limit), at_once=runs)
        self._progress.publish(attempt.key, attempt.live)
        if not runs:
            self._check_heads_soon()
            return
        attempt.inbox.extend(self._early.pop(job.id, ()))
        self._start_running(attempt)
        if child.state == "gone":  # it has exited since
            self._handle_messages(attempt)
            self._exited(attempt)

    def _start_running(self, attempt: Attempt) -> None:
        """Record that the child runs this attempt. A prefetched job is stored as begun when it ends or after HEAD_CHECK."""
        attempt.start(self._now(), self._store.now())
        if attempt.job.fence == 1 and attempt.kind.name in self._budgets:
            self._first_attempts[attempt.kind.name] += 1
        if attempt.inbox:
            self._loop.call_soon(self._handle_messages, attempt)
        if not attempt.job.running:
            self._check_heads_soon()

    def _check_heads_soon(self) -> None:
        if not self._checking_heads:
            self._checking_heads = True
            self._loop.call_later(HEAD_CHECK, self._check_heads)

    def _check_heads(self) -> None:
        self._checking_heads = False
        now = self._now()
        for attempt in self._slots.heads():
            age = now - (attempt.started or now)
            waits = self._slots.behind(attempt) > 0
            if age >= HEAD_CHECK and not attempt.job.running:
                self._settlement.write(attempt.begin_changes())
            if age >= RETURN_AFTER and waits:
                attempt.child.request_return()
            elif waits or not attempt.job.running:
                self._check_heads_soon()

    # --- children and their messages (supervisor.PoolListener)

    def ready(self, child: ChildProcess) -> None:
        self._slots.add_child(child)
        self._hint_everywhere()

    def received(self, child: ChildProcess, message: Any) -> None:
        if isinstance(message, p.JobsReturned):
            for job_id, fence in message.jobs:
                returned = self.attempts.get(job_id)
                if returned is not None and returned.job.fence == fence:
                    # It never ran, so it may run again even if its kind is at_most_once.
                    lost = returned.stopping == LEASE_LOST
                    self._end(returned, None if lost else _handed_back(returned.job))
            return
        if isinstance(message, p.NeedsReplacement):
            self._replace(child)
            return
        attempt = self.attempts.get(message.job_id)
        if attempt is None and self._handed_over.get(message.job_id) == (child, True):
            self._early.setdefault(message.job_id, []).append(message)
            return
        if attempt is None or attempt.child is not child or attempt.job.fence != message.fence:
            # A thread that an ended handler left behind waits for this reply.
            if isinstance(message, p.StepRequest):
                child.send(p.StepReply(message.number, False))
            return
        attempt.inbox.append(message)
        self._handle_messages(attempt)

    def exited(self, child: ChildProcess) -> None:
        attempts = [r for r in self.attempts.values() if r.child is child]
        # From the end of the prefetch queue, so that no attempt becomes the head.
        for attempt in reversed(attempts):
            self._exited(attempt)
        self._slots.remove_child(child)

    def _exited(self, attempt: Attempt) -> None:
        """End an attempt whose child has exited, unless its end waits until its spawned job is stored, or was handled."""
        if attempt.ended or self.attempts.get(attempt.job.id) is not attempt:
            return
        child, outcome = attempt.child, attempt.outcome_of_exit()
        self._end(attempt, outcome)
        if outcome is not None and not child.killed:
            log.warning(
                "job %s: child %s exited (%s)",
                attempt.job.id,
                child.name,
                child.exit_text,
                extra=about_job(attempt.job),
            )

    def _replace(self, child: ChildProcess) -> None:
        child.request_exit()
        self.pool.fill()

    def _handle_messages(self, attempt: Attempt) -> None:
        """Handle the messages that can be handled now. Messages of a prefetched job wait until `Attempt.start`: the job may
        start in its child while a spawn of the job before it is still being stored.
        """
        while attempt.inbox and not attempt.storing and attempt.started is not None:
            message: p.AttemptMessage = attempt.inbox.popleft()
            attempt.last_activity = self._now()
            match message:
                case p.ProgressChanged():
                    attempt.update_progress(message.progress, self._store.now())
                    if message.progress is not None:
                        self._progress.publish(attempt.key, attempt.live)
                case p.JobLogLine():
                    attempt.add_line(message.line, self._store.now())
                case p.OutputEmitted():
                    attempt.output.append(msgspec.Raw(message.data))
                    self._write_output_soon()
                case p.StepBegan():
                    started = changes.StepStarted(name=message.step, **attempt.identity)
                    self._settlement.write(
                        [*attempt.begin_changes(), *attempt.output_changes(), started]
                    )
                    attempt.step_began(started, self._store.now())
                case (
                    p.AttemptDone()
                    | p.AttemptFailed()
                    | p.AttemptDelayed()
                    | p.AttemptParked()
                    | p.AttemptStopped()
                ):
                    attempt.update_progress(message.progress, self._store.now(), final=True)
                    if isinstance(message, p.AttemptFailed) and message.trace is not None:
                        attempt.trace = message.trace
                        line = {"level": "error", "message": message.trace}
                        attempt.add_line(line, self._store.now())
                    self._end(attempt, attempt.outcome_of(message))
                case p.KeepStep() | p.ReadStep() | p.EnterBreaker():
                    self._handle_request(attempt, message)
                case p.LeaveBreaker():
                    self._leave_breaker(attempt, message)
                case p.Spawn() if not attempt.incomplete:
                    attempt.storing = True
                    self._settlement.run_in_background(self._spawn(attempt, message))

    def _handle_request(self, attempt: Attempt, message: p.StepRequest) -> None:
        """Handle a message whose reply the handler waits for."""
        if attempt.incomplete:  # this reply stops the handler
            attempt.child.send(p.StepReply(message.number, False))
        elif isinstance(message, p.KeepStep):
            self._keep_step(attempt, message)
        elif isinstance(message, p.ReadStep):
            self._settlement.run_in_background(self._read_step(attempt, message))
        else:
            attempt.pending_replies += 1
            answer = self._breakers.quick(message.breaker)
            if message.breaker in attempt.calls:  # nested in the block of the same breaker
                attempt.reply(message.number, b"", stored=True, now=self._now())
            elif answer is None:
                self._settlement.run_in_background(self._enter_breaker(attempt, message))
            else:
                self._answer_breaker(attempt, message, answer)

    # --- output, steps and spawned jobs

    def _write_output_soon(self) -> None:
        """Store the waiting chunks of all attempts together, so that output costs at most 20 commits per second."""
        if not self._output_scheduled:
            self._output_scheduled = True
            self._loop.call_later(OUTPUT_EVERY, self._write_output)

    def _write_output(self) -> None:
        self._output_scheduled = False
        for attempt in self.attempts.values():
            if attempt.output:
                self._settlement.write(attempt.output_changes())

    def _keep_step(self, attempt: Attempt, message: p.KeepStep) -> None:
        change = changes.StepKept(
            name=message.step,
            result=msgspec.Raw(message.result),
            files=tuple(message.files),
            **attempt.identity,
        )

        def kept(outcome: Any) -> None:
            attempt.reply(message.number, stored=isinstance(outcome, Job), now=self._now())

        attempt.pending_replies += 1
        earlier = [*attempt.begin_changes(), *attempt.output_changes()]
        self._settlement.write([*earlier, change], kept)
        # A job spawned later may use these files, and worker losses are counted from this step on.
        attempt.job = changes.advance(attempt.job, change, self._store.now())

    async def _read_step(self, attempt: Attempt, message: p.ReadStep) -> None:
        """Send a stored step result to the handler. Retries while the store is unavailable."""
        result: bytes | None = None
        attempt.pending_replies += 1
        try:
            result = await self._stored_step(attempt, message)
        except Exception as error:
            log.exception(
                "job %s: cannot read step %r from the store",
                message.job_id,
                message.step,
                extra=about_job(attempt.job),
            )
            text = (
                f"the result of step {message.step!r} could not be read: {type(error).__name__}: {error}"
            )
            attempt.stop("step", self._now(), Raised(code="STEP_UNREADABLE", message=text))
        attempt.reply(message.number, result, stored=result is not None, now=self._now())

    async def _stored_step(self, attempt: Attempt, message: p.ReadStep) -> bytes | None:
        while attempt.child.state != "gone":
            try:
                return await self._store.step(message.job_id, message.step)
            except StoreUnavailable as error:
                log.error(
                    "job %s: cannot read step %r; retrying: %s",
                    message.job_id,
                    message.step,
                    error,
                    extra=about_job(attempt.job),
                )
            if attempt.stopping is not None:
                break
            await asyncio.sleep(RETRY_AFTER)
        return None

    async def _spawn(self, attempt: Attempt, message: p.Spawn) -> None:
        """Store a spawned job. Later messages of the attempt wait until it is stored."""
        try:
            if earlier := [*attempt.begin_changes(), *attempt.output_changes()]:
                self._settlement.write(earlier)
            attempt.job = replace(attempt.job, files=(*message.files, *attempt.job.files))
            stored = await self._store_spawned(attempt, message)
            if not isinstance(stored, Job):
                attempt.incomplete = True
                if stored is not None:
                    attempt.stop(LEASE_LOST, self._now())
        except Problem as problem:
            places = "; ".join(e["detail"] for e in problem.errors or ())
            text = f"{message.kind} cannot be spawned: {problem.detail} {places}".strip()
            self._fail_spawn(attempt, "SPAWN_REFUSED", text, retryable=problem.retryable)
        except Exception as error:
            log.exception(
                "job %s: cannot store a spawned %s job",
                attempt.job.id,
                message.kind,
                extra=about_job(attempt.job),
            )
            text = f"{message.kind} could not be stored: {type(error).__name__}: {error}"
            self._fail_spawn(attempt, "SPAWN_FAILED", text, retryable=True)
        finally:
            attempt.storing = False
            attempt.last_activity = self._now()
            self._handle_messages(attempt)

    def _fail_spawn(self, attempt: Attempt, code: str, text: str, *, retryable: bool) -> None:
        """Stop the attempt: it must not wait for a job that is not stored, nor succeed without it."""
        attempt.incomplete = True
        attempt.stop("spawn", self._now(), Raised(code=code, message=text, retryable=retryable))

    async def _store_spawned(self, attempt: Attempt, message: p.Spawn) -> Job | Refused | Missing | None:
        """Validate and store the spawned job. Retries while the store is unavailable. None if the attempt stops first."""
        new: NewJob | None = None
        while True:
            try:
                new = new or await self.prepare_spawn(message, attempt.job)
                if not self._settlement.blocked:  # earlier changes must be stored first
                    link = record.Child(new.job.id, new.job.kind, message.key)
                    change = changes.Spawned(child=link, files=tuple(message.files), **attempt.identity)
                    storing = self._store.spawn(change, new)
                    self.hint(new.job.queue, new.job.kind)
                    stored = await storing
                    if self._tracer is not None and isinstance(stored, Job) and stored.id == new.job.id:
                        self._tracer.submitted(new.job, self._store.now(), attempt.job.fence)
                    return stored
            except StoreUnavailable as error:
                log.error(
                    "job %s cannot spawn a %s job; retrying: %s",
                    attempt.job.id,
                    message.kind,
                    error,
                    extra=about_job(attempt.job),
                )
            if attempt.stopping is not None or (attempt.child.state == "gone" and not attempt.ended):
                return None
            await asyncio.sleep(RETRY_AFTER)

    # --- breakers

    async def _enter_breaker(self, attempt: Attempt, message: p.EnterBreaker) -> None:
        answer = BreakerAnswer(False, False, self._breakers.state(message.breaker))
        try:
            answer = await self._breakers.enter(message.breaker, attempt.job.id, attempt.job.fence)
        finally:
            self._answer_breaker(attempt, message, answer)

    def _answer_breaker(self, attempt: Attempt, message: p.EnterBreaker, answer: BreakerAnswer) -> None:
        if answer.allowed:
            attempt.calls[message.breaker] = answer.probe
        else:
            attempt.refused_at = answer.state.retry_at
        attempt.reply(message.number, b"", stored=answer.allowed, now=self._now())

    def _leave_breaker(self, attempt: Attempt, message: p.LeaveBreaker) -> None:
        """A failed call, and that of a prober, is stored before the next message is handled, because it decides whether the
        attempt counts.
        """
        success = message.success
        if success is None and attempt.cause is not None and attempt.cause.code in HANGS:
            success, attempt.hung = False, message.breaker
        probe = attempt.calls.pop(message.breaker, False)
        if success and not probe:
            self._breakers.succeeded(message.breaker)
        elif success is False or probe:
            attempt.storing = True
            self._settlement.run_in_background(
                self._report_call(attempt, message.breaker, probe, success)
            )

    async def _report_call(
        self, attempt: Attempt, breaker: str, probe: bool, success: bool | None
    ) -> None:
        try:
            await self._store_call(attempt, breaker, probe, success)
        finally:
            attempt.storing = False
            attempt.last_activity = self._now()
            self._handle_messages(attempt)

    async def _store_call(
        self, attempt: Attempt, breaker: str, probe: bool, success: bool | None
    ) -> None:
        """Report the end of a call. Retries while the store is unavailable, because the end of the attempt waits, too."""
        fence = attempt.job.fence if probe else None
        while True:
            try:
                verdict = await self._breakers.ended(breaker, attempt.job.id, fence, success)
            except StoreUnavailable as error:
                log.error("cannot store a call of the breaker %r; retrying: %s", breaker, error)
            else:
                if success is False:
                    attempt.failed_call = (breaker, verdict.state, verdict.spared)
                return
            if attempt.stopping is not None:
                return
            await asyncio.sleep(RETRY_AFTER)

    def _in_call(self, attempt: Attempt, outcome: Outcome | Change | None) -> bool:
        """Whether the attempt ends in the block of a breaker. If so, its calls end first."""
        if not attempt.calls or outcome is None:
            return False
        self._settlement.run_in_background(self._end_calls(attempt, outcome))
        return True

    async def _end_calls(self, attempt: Attempt, outcome: Outcome | Change) -> None:
        """End an attempt whose handler did not leave the block of a breaker, because its child was killed."""
        calls, attempt.calls = attempt.calls, {}
        hangs = isinstance(outcome, Raised) and outcome.code in HANGS
        try:
            for breaker, probe in calls.items():
                if hangs:
                    attempt.hung = breaker
                if hangs or probe:
                    await self._store_call(attempt, breaker, probe, False if hangs else None)
        finally:
            self._end(attempt, outcome)

    # --- end and settle

    def _end(self, attempt: Attempt, outcome: Outcome | Change | None) -> None:
        """End an attempt: free its slot and store its outcome together with the next claim."""
        job_id, child, delayed = attempt.job.id, attempt.child, False
        if self.attempts.get(job_id) is not attempt or self._in_call(attempt, outcome):
            return
        begun = attempt.begin_changes()
        if begun and attempt.log:  # the store accepts log lines only of an attempt that has begun
            self._settlement.write(begun)
            begun = []
        self._settlement.write_log(attempt)
        begun += attempt.output_changes()
        if outcome is not None:
            change = self._settle(attempt, outcome)
            self._report_end(attempt, change)
            # While the child has prefetched work, delay the write: one commit then covers more outcomes.
            delayed = not child.is_async and self._slots.well_filled(attempt)
            write = self._settlement.write_soon if delayed else self._settlement.write
            write([*begun, change], partial(self._settled, attempt.key))
        else:
            self._progress.ended(attempt.key)
        del self.attempts[job_id]
        if not self.attempts:
            self._all_ended.set()
        # The slot is free for the next prefetched job or for a claim.
        following = self._slots.remove(attempt, self._now())
        if following is not None:
            self._start_running(following)
        if child.state == "idle" and not self._slots.busy(child):
            if self._slots.worn(child):
                self._replace(child)
            else:
                self._slots.add_child(child)
        if (deferred := self._deferred.pop(job_id, None)) is not None:
            self._start(*deferred)
        if not delayed and not self._claim_scheduled:
            # Later, so that one claim serves all attempts that end in this iteration of the event loop.
            self._claim_scheduled = True
            self._loop.call_soon(self._claim)

    def _report_end(self, attempt: Attempt, change: Change) -> None:
        if isinstance(change, _FAILED):
            _log_failed_attempt(attempt, change)
        if self._tracer is not None and attempt.started is not None:
            times = attempt.started_at, attempt.due, self._store.now()
            self._tracer.attempted(attempt.job, *times, change)

    def _settle(self, attempt: Attempt, outcome: Outcome | Change) -> Change:
        if isinstance(outcome, Change):
            return outcome
        if isinstance(outcome, Raised) and outcome is attempt.cause:
            outcome = attempt.excused(outcome, attempt.hung)
        change = settle(
            attempt.job,
            outcome,
            attempt.kind.policy,
            now=self._store.now(),
            rng=self._rng,
            progress=attempt.live.progress if attempt.live.number else None,
            first_attempts=self._first_attempts[attempt.kind.name],
        )
        if isinstance(change, changes.FailedForNow) and change.budgeted is not None:
            self._first_attempts.pop(attempt.kind.name, None)  # reported with this change
        if attempt.predicted is not None and isinstance(change, changes.Succeeded):
            return replace(change, predicted=attempt.predicted)
        return change

    def _settled(self, attempt: AttemptKey, outcome: Any) -> None:
        """The end of the attempt is stored, or refused."""
        self._progress.ended(attempt)
        job_id = attempt[0]
        if isinstance(outcome, Job) and outcome.status.terminal:
            folder = f"{self._work}/{job_id}"
            # If the next run of the job has already started here, it uses the folder, and its end removes it.
            if (
                os.path.exists(folder)  # noqa: PTH110 — twice as fast as Path.exists, and called for every job
                and job_id not in self.attempts
                and (renamed := work_folders.rename(folder)) is not None
            ):
                self._settlement.run_in_background(asyncio.to_thread(work_folders.delete, renamed))

    # --- time

    async def _tick_loop(self) -> None:
        while True:
            try:
                self.tick(self._now())
            except Exception:
                log.exception("the tick of the runner failed; the next one runs as usual")
            await asyncio.sleep(TICK)

    def tick(self, now: float) -> None:
        """Periodic work: attempt limits, silent children, memory, lease renewals, log lines and claims."""
        last, self._last_tick = self._last_tick, now
        if last is not None and now - last > self._config.lease / 3:
            self._on_suspension(now, now - last)
        self.pool.check()
        if not self._stopping:
            self.pool.fill()
        for attempt in list(self.attempts.values()):
            if attempt.stopping is not None:
                attempt.escalate(now, self._config.grace)
            elif (cause := attempt.exceeded_limit(now)) is not None:
                attempt.stop(cause.code, now, cause)
            self._settlement.write_log(attempt)
        for child in list(self.pool.children):
            if child.state != "starting" and now - child.last_heartbeat > self._config.lease:
                silence = now - child.last_heartbeat
                log.warning("child %s sent no heartbeat for %.0f s; killing it", child.name, silence)
                child.kill(lost=True)
        if now >= self._next_memory and self._registry.memory_limit:
            self._next_memory = now + 1.0
            self._check_memory(self._registry.memory_limit, now)
        for report in self._breakers.tick(now):
            self._settlement.run_in_background(report)
        if self._first_attempts and now >= self._next_report:
            self._next_report = now + REPORT_EVERY
            counts, self._first_attempts = self._first_attempts, Counter()
            reports = [FirstAttempts(kind, self._budgets[kind], n) for kind, n in counts.items()]
            self._settlement.run_in_background(self._store.report_first_attempts(reports))
        if now >= self._next_renewal:
            self._next_renewal = now + renewal_interval(self._config.lease)
            self._renew()
        if now >= self._next_claim:
            self._next_claim = now + CLAIM_EVERY
            self._hint_everywhere()
        self._claim()

    def _on_suspension(self, now: float, seconds: float) -> None:
        """Called after this process was stopped or starved, while its children may have sent heartbeats. Give each child a
        whole lease from now on, and each handler its whole `stall` time.
        """
        log.warning("this process did not run for %.1f s (stopped, or too little CPU)", seconds)
        for child in self.pool.children:
            child.mark_alive(now)
        for attempt in self.attempts.values():
            attempt.last_activity = now
        self._next_renewal = now

    def _check_memory(self, limit: int, now: float) -> None:
        for child in list(self.pool.children):
            if child.state == "starting" or child.memory() <= limit:
                continue
            attempts = [r for r in self.attempts.values() if r.child is child]
            if not attempts and not child.is_async and self._slots.remove_child(child):
                self._replace(child)
            for attempt in (r for r in attempts if r.started is not None):
                text = f"the child used more than memory_limit ({limit} bytes)"
                attempt.stop("memory", now, Raised(code="MEMORY_LIMIT", message=text))
                attempt.stage = 3
            if attempts:
                child.kill()

    def reset(self) -> None:
        """Check immediately which attempts this process still owns, because the store may have lost claims."""
        self._next_renewal = self._now()

    def _renew(self) -> None:
        # Only for children that send heartbeats: a hung or stopped child loses its leases.
        recent = self._now() - self._config.lease / 2
        held = [
            (r.job.id, r.job.fence)
            for r in self.attempts.values()
            if r.child.last_heartbeat > recent or r.ended
        ]
        held += [(claim.job.id, claim.job.fence) for claim, _ in self._deferred.values()]
        held += self._settlement.unwritten().difference(held)
        if held and not self._renewing:
            self._renewing = True
            self._settlement.run_in_background(self._renewed(held))

    async def _renewed(self, held: list[tuple[str, int]]) -> None:
        try:
            lost = await self._store.renew(self._owner, held, self._config.lease)
        except StoreUnavailable:
            self._next_renewal = min(self._next_renewal, self._now() + RENEW_RETRY)
            raise
        finally:
            self._renewing = False
        for job_id, fence in lost:
            attempt = self.attempts.get(job_id)
            if attempt is not None and attempt.job.fence == fence and job_id not in self._deferred:
                attempt.stop(LEASE_LOST, self._now())


def _log_failed_attempt(attempt: Attempt, change: changes.Failed | changes.FailedForNow) -> None:
    """A traceback means that the handler raised an exception that it did not expect."""
    job, error = attempt.job, change.error
    if error.code == "BREAKER_OPEN":  # nothing has failed
        return
    log.log(
        logging.WARNING if attempt.trace is None else logging.ERROR,
        "job %s: attempt %d of %d of %r failed%s%s: %s: %s%s",
        job.id,
        job.attempt,
        job.max_attempts,
        job.kind,
        f" in step {error.failed_step!r}" if error.failed_step is not None else "",
        " and will be retried" if isinstance(change, changes.FailedForNow) else "",
        error.code,
        error.message,
        f"\n{attempt.trace}" if attempt.trace is not None else "",
        extra=about_job(job),
    )


def _handed_back(job: Job) -> Change:
    return changes.HandedBack(job_id=job.id, owner=job.owner, fence=job.fence)
