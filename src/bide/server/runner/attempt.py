"""One attempt, seen from the runner: its child process, its limits, why it is being stopped, and its outcome."""

from __future__ import annotations

from collections import deque
from typing import Any

import msgspec
from msgspec.structs import replace

from bide.core.jobs.breaker import BreakerState
from bide.core.jobs.record import Job, Progress, Status
from bide.core.jobs.retry import BreakerOpen, Outcome, Raised, Returned, Stopped, Vanished
from bide.core.jobs.state_machine import Begun, Change, Emitted, Parked, StepStarted, advance
from bide.core.pacing.intervals import PROGRESS_SPREAD, remaining_by_progress
from bide.core.wire.traces import process_span_id, render_traceparent
from bide.server.progress import LiveProgress, attempt_key
from bide.server.registry import Kind
from bide.server.store import Claim
from bide.server.worker import protocol as p
from bide.server.worker.supervisor import ChildProcess

CANCEL, SHUTDOWN, LEASE_LOST = "cancel", "shutdown", "lease-lost"
HALFWAY = 50.0  # percent
HANGS = ("TIMEOUT", "STALLED")  # a call that does not return has failed


class Attempt:
    """A claimed job and the state of the attempt to run it."""

    trace: str | None = None  # the traceback of the handler's exception

    def __init__(
        self,
        job: Job,
        kind: Kind,
        child: ChildProcess,
        due: float | None = None,
        emitted: int = 0,
    ) -> None:
        """`due`: since when the job could be claimed. `emitted`: bytes of output of earlier attempts."""
        self.job = job
        self.due = due
        self.kind = kind
        self.child = child
        self.started: float | None = None  # None: it waits in its child's prefetch queue
        self.duration: float | None = None  # measured by the child
        self.last_activity = 0.0
        self.key = attempt_key(job)
        self.live = LiveProgress(0, job.progress or Progress())
        self.predicted: tuple[float, float, float] | None = None  # durations by its progress
        self._predicted_at = 0.0  # percent
        self.log: list[dict[str, Any]] = []
        self.output: list[msgspec.Raw] = []  # chunks that wait to be stored
        self._chunks = 0  # number of chunks before them in this attempt
        self._emitted = emitted  # bytes of the job's output before them
        self.inbox: deque[Any] = deque()  # messages that arrived while an earlier one was being stored
        self.storing = False
        self.pending_replies = 0  # replies that the handler waits for
        self.incomplete = False  # a job that it spawned could not be stored, so it must not succeed
        self.stopping: str | None = None
        self.cause: Raised | None = None
        self.stop_since = 0.0
        self.stage = 0
        self.started_at = 0.0
        self.calls: dict[
            str, bool
        ] = {}  # breakers of calls in progress, and whether the call is the probe
        # The breaker of the last failed call, its state after it, and whether the attempt counts.
        self.failed_call: tuple[str, BreakerState, bool] | None = None
        self.hung: str | None = None  # the breaker of a call that did not return in time
        self.refused_at = 0.0  # when the breaker that it needs may be probed

    @property
    def identity(self) -> dict[str, Any]:
        """The fields of a change with which the store recognizes this attempt."""
        return {"job_id": self.job.id, "owner": self.job.owner, "fence": self.job.fence}

    @property
    def ended(self) -> bool:
        """Whether the handler has ended and its end waits until an earlier message is stored."""
        return any(isinstance(message, p.AttemptEnd) for message in self.inbox)

    def update_progress(self, progress: Progress | None, at: float, *, final: bool = False) -> None:
        """`final`: the handler has ended, so the progress predicts nothing."""
        if progress is not None:
            self.live = LiveProgress(self.live.number + 1, progress, at)
            if not final and self._predicted_at < HALFWAY:
                self._predict(progress.percent, at)

    def _predict(self, percent: float | None, at: float) -> None:
        """Record how long the attempt takes according to its progress: at the first report from HALFWAY on, or at the last
        one before it.
        """
        begun = self.job.started_at if self.job.running else None
        elapsed = at - (self.started_at if begun is None else begun)
        left = remaining_by_progress(elapsed, percent)
        if left and percent is not None:  # none at the end of the work
            low, middle, high = (elapsed + factor * left for factor in PROGRESS_SPREAD)
            self.predicted, self._predicted_at = (low, middle, high), percent

    def add_line(self, line: dict[str, Any], at: float) -> None:
        """Add a line to the job's log; `at` is the time of the store's clock."""
        line["at"] = at
        self.log.append(line)

    def start(self, now: float, at: float) -> None:
        """Record that the child runs it now. `at` is the same instant on the store's clock."""
        self.started = self.last_activity = now
        self.started_at = at
        if self.stopping is not None:  # stopped while it waited in the prefetch queue
            self.stop_since = now
            self.child.request_stop(self.job.id, self.job.fence)

    def begin_changes(self) -> list[Change]:
        """The change to store before any other of this attempt: `Begun` for a prefetched job, otherwise none."""
        if self.job.running or self.started is None:
            return []
        waited = None if self.due is None else max(0.0, self.started_at - self.due)
        begun = Begun(started_at=self.started_at, waited=waited, **self.identity)
        self.job = advance(self.job, begun, self.started_at)
        return [begun]

    def step_began(self, change: StepStarted, now: float) -> None:
        """Record the start of a step, for the trace of the job."""
        if self.job.tracestate is not None:
            self.job = advance(self.job, change, now)

    def output_changes(self) -> list[Change]:
        """The changes that store the waiting chunks of the output stream."""
        if not self.output:
            return []
        chunks, self.output = tuple(self.output), []
        emitted = Emitted(chunks=chunks, first=self._chunks, total=self._emitted, **self.identity)
        self._chunks += len(chunks)
        self._emitted += sum(len(memoryview(chunk)) for chunk in chunks)
        return [*self.begin_changes(), emitted]

    def exceeded_limit(self, now: float) -> Raised | None:
        """The limit that the attempt has exceeded, if any."""
        if self.started is None or self.ended:
            return None
        if self.kind.timeout is not None and now - self.started > self.kind.timeout:
            return Raised(
                code="TIMEOUT", message=f"the attempt took longer than {self.kind.timeout:g} s"
            )
        # A handler that waits for the store does not stall.
        waits = self.storing or self.pending_replies > 0
        if self.kind.stall is not None and not waits and now - self.last_activity > self.kind.stall:
            return Raised(code="STALLED", message=f"no progress for {self.kind.stall:g} s")
        return None

    def reply(self, number: int, result: bytes | None = None, *, stored: bool, now: float) -> None:
        """Reply to a request of the handler, whose `stall` time starts again."""
        self.pending_replies -= 1
        self.last_activity = now
        self.child.send(p.StepReply(number, stored, result))

    def stop(self, reason: str, now: float, cause: Raised | None = None) -> None:
        """Request the handler to stop. The first reason stays, except that LEASE_LOST replaces it: such an attempt has no
        outcome.
        """
        if reason == LEASE_LOST:
            self.stopping = LEASE_LOST
        if self.stopping is None or self.stage == 0:
            self.stopping = self.stopping or reason
            self.cause = self.cause or cause
            self.stop_since = now
            self.stage = 1
            if self.started is None:
                self.child.request_return()
            else:
                self.child.request_stop(self.job.id, self.job.fence)

    def escalate(self, now: float, grace: float) -> None:
        """Terminate, and later kill, a child whose handler does not stop."""
        if self.started is None or self.child.state == "gone":
            return
        if self.stage == 1 and now - self.stop_since > grace:
            self.stage = 2
            self.child.terminate()
        elif self.stage == 2 and now - self.stop_since > 2 * grace:
            self.stage = 3
            self.child.kill()

    def outcome_of(self, message: p.AttemptEnd) -> Outcome | Change | None:
        """The outcome that the last message of the handler means. None after a lost lease."""
        match message:
            case p.AttemptFailed():
                raised = Raised(
                    code=message.code,
                    message=message.message,
                    retryable=message.retryable,
                    step=message.step,
                )
                return self.cause or self.excused(raised, message.breaker)
            case p.AttemptDelayed() if not self.incomplete and self.cause is None:
                waits = BreakerOpen(breaker=message.breaker, probe_at=self.refused_at)
                return None if self.stopping == LEASE_LOST else waits
            case p.AttemptDone() if not self.incomplete:
                self.duration = message.took
                return Returned(
                    result=msgspec.Raw(message.result) if message.result is not None else None,
                    result_file=message.result_file,
                    errors=None if message.errors is None else msgspec.json.decode(message.errors),
                    files=tuple(message.files),
                )
            case p.AttemptParked() if not self.incomplete:
                parked = Parked(
                    waiting_for=tuple(message.waiting_for),
                    files=tuple(message.files),
                    progress=message.progress,
                    **self.identity,
                )
                return None if self.stopping == LEASE_LOST else self.cause or parked
        return self.outcome_of_exit()

    def excused(self, raised: Raised, breaker: str | None) -> Raised:
        """The outcome of a failure in a call of this dependency."""
        if self.failed_call is None or self.failed_call[0] != breaker:
            return raised
        name, state, spared = self.failed_call
        if state.status == "closed":
            return replace(raised, spared=spared)
        return replace(raised, spared=spared, breaker=name, probe_at=state.retry_at)

    def outcome_of_exit(self) -> Outcome | None:
        """The outcome when the child has exited, or the handler has stopped on request. None after a lost lease."""
        if self.stopping == LEASE_LOST:
            return None
        if self.stopping == SHUTDOWN:
            return Stopped()
        if self.cause is not None:
            return self.cause
        if self.stopping == CANCEL:
            return Stopped()  # the job becomes CANCELLED because its cancellation is stored
        if self.child.killed or self.started is None:
            return Stopped()  # the child was killed because of another job, or this one never started
        return Vanished(message=f"the worker was lost ({self.child.exit_text})")


def run_message(claim: Claim, output_limit: int) -> p.RunJob:
    """The message that makes a child run this claim."""
    job = claim.job
    children = []
    for c in job.children:
        ended = claim.children.get(c.job_id)
        state = p.SpawnedJobState(c.job_id, c.key, c.kind, c.status)
        if ended is not None:
            state.result = bytes(ended.result) if ended.result is not None else None
            state.result_file = ended.result_file
            state.error = msgspec.to_builtins(ended.error)
            state.files = [p.GivenFile(c.job_id, file) for file in ended.files]
        children.append(state)
    return p.RunJob(
        job.id,
        job.fence,
        job.attempt,
        job.kind,
        claim.input,
        [p.GivenFile(f.job, f.file) for f in claim.files] if claim.files else [],
        {name: bytes(result) for name, result in claim.steps.items()} if claim.steps else {},
        children,
        job.progress,
        [s.name for s in job.steps if s.status is Status.DONE and s.name not in claim.steps]
        if job.steps
        else [],
        job.trace_id,
        max(0, output_limit - claim.emitted),
        None if job.tracestate is None else _trace_headers(job),
    )


def _trace_headers(job: Job) -> tuple[str, str]:
    """`traceparent` and `tracestate` of what the handler of a traced job calls."""
    span_id = process_span_id(job.id, job.fence)
    return render_traceparent(job.trace_id or "", span_id), job.tracestate or ""
