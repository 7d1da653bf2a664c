"""Decides what follows an attempt of a job, and when to retry. Pure: time and randomness are arguments."""

from __future__ import annotations

import random
from typing import Any

import msgspec
from msgspec.structs import replace

from bide.core.errors import ErrorInfo
from bide.core.jobs.record import FileInfo, Job, Progress
from bide.core.jobs.retry_budget import RetryBudget
from bide.core.jobs.state_machine import (
    Change,
    Delayed,
    Failed,
    FailedForNow,
    HandedBack,
    Lost,
    RetryClaim,
    Succeeded,
    loss_record,
)
from bide.core.pacing.backoff import backoff

LOSS_CODES = frozenset({"WORKER_LOST", "POISONED"})  # of jobs that do not run again after a lost worker
MOST_LOSSES = 20  # in one run, even with progress in between
BREAKER, RETRIES = "breaker", "retries"  # waiting lists: of a breaker, and of the retry budget of a kind
PATIENCE = 86400.0  # seconds after which a job in a waiting list starts, also if nothing has released it


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """How a kind treats failures."""

    retries: int = 0
    backoff: float = 2.0
    backoff_cap: float = 600.0
    at_most_once: bool = False
    max_losses: int = 3
    remove_input: bool = False
    budget: RetryBudget | None = RetryBudget()


class Returned(msgspec.Struct, frozen=True, kw_only=True):
    """The handler returned; `errors` makes it a partial success."""

    result: msgspec.Raw | None = None
    result_file: FileInfo | None = None
    errors: list[dict[str, Any]] | None = None
    files: tuple[FileInfo, ...] = ()


class Raised(msgspec.Struct, frozen=True, kw_only=True):
    """The handler raised, or was stopped because of a limit (TIMEOUT, STALLED, MEMORY_LIMIT)."""

    code: str
    message: str
    retryable: bool = True
    step: str | None = None
    # The breaker of the call that failed, if it is open now, and when it may be probed.
    breaker: str | None = None
    probe_at: float = 0.0
    spared: bool = False  # the dependency is at fault, so the attempt does not count


class BreakerOpen(msgspec.Struct, frozen=True, kw_only=True):
    """The handler needs a dependency whose breaker is open. It may be probed at `probe_at`."""

    breaker: str
    probe_at: float


class Vanished(msgspec.Struct, frozen=True, kw_only=True):
    """The child process died, or its lease expired."""

    message: str = "the worker vanished"


class Stopped(msgspec.Struct, frozen=True, kw_only=True):
    """The handler was stopped because the service shuts down."""


Outcome = Returned | Raised | BreakerOpen | Vanished | Stopped


def settle(
    job: Job,
    outcome: Outcome,
    policy: Policy,
    *,
    now: float,
    rng: random.Random,
    progress: Progress | None = None,
    first_attempts: int = 0,
) -> Change:
    """Return the change that follows from the outcome of an attempt. If a cancel is pending, `advance` makes it
    CANCELLED."""
    common: dict[str, Any] = {"job_id": job.id, "owner": job.owner, "fence": job.fence}
    ending: dict[str, Any] = {**common, "progress": progress}
    match outcome:
        case Returned(errors=None):
            return Succeeded(
                result=outcome.result,
                result_file=outcome.result_file,
                files=outcome.files,
                remove_input=policy.remove_input,
                **ending,
            )
        case Returned():
            return Succeeded(
                result=outcome.result,
                result_file=outcome.result_file,
                files=outcome.files,
                error=_partial(job, outcome),
                **ending,
            )
        case Stopped() | Vanished() if not job.running:
            return HandedBack(**common)  # the attempt had not started
        case Stopped():
            if policy.at_most_once:
                return Failed(error=_error(job, "WORKER_LOST", _AT_MOST_ONCE), **ending)
            return HandedBack(**ending)
        case Vanished():
            if policy.at_most_once:
                return Failed(error=_error(job, "WORKER_LOST", _AT_MOST_ONCE), **ending)
            reason = _poisoned(job, policy, progress)
            if reason is not None:
                text = f"{reason}: {outcome.message}"
                return Failed(error=_error(job, "POISONED", text), **ending)
            return Lost(**ending)
        case BreakerOpen():
            text = f"the job waits, because the breaker {outcome.breaker!r} is open"
            error = _error(job, "BREAKER_OPEN", text, retryable=True)
            when = _waiting(outcome.breaker, outcome.probe_at, now, rng)
            return Delayed(error=error, **when, **ending)
        case Raised():
            change = _after_failure(job, outcome, policy, ending, now, rng)
            if type(change) is FailedForNow and change.waits_for is None and policy.budget is not None:
                due = now + rng.uniform(PATIENCE, 2 * PATIENCE)
                claim = RetryClaim(job.kind, policy.budget, due, first_attempts)
                return replace(change, budgeted=claim)
            return change


def _after_failure(
    job: Job,
    raised: Raised,
    policy: Policy,
    ending: dict[str, Any],
    now: float,
    rng: random.Random,
) -> Change:
    error = _error(job, raised.code, raised.message, raised.retryable, raised.step)
    # A kind without retries must not run again after a call, because the call may have had an effect.
    spared = raised.spared and policy.retries > 0
    if not raised.retryable or (job.failures >= policy.retries and not spared):
        return Failed(error=error, **ending)
    wait = backoff(job.failures, policy.backoff, policy.backoff_cap, rng)
    when: dict[str, Any] = {"retry_at": now + wait}
    if raised.breaker is not None:
        when = _waiting(raised.breaker, raised.probe_at, now, rng)
    return (Delayed if spared else FailedForNow)(error=error, **when, **ending)


def _waiting(breaker: str, probe_at: float, now: float, rng: random.Random) -> dict[str, Any]:
    """The fields of a job that waits until a breaker closes."""
    return {
        "retry_at": max(now, probe_at),
        "due": now + rng.uniform(PATIENCE, 2 * PATIENCE),
        "waits_for": f"{BREAKER} {breaker}",
    }


def _poisoned(job: Job, policy: Policy, progress: Progress | None) -> str | None:
    """Return why the job must not run again after losing its worker; None if it may."""
    record = loss_record(job, progress)
    lost = job.losses + 1
    in_a_row = lost - (0 if record is None else record.restarted_at)
    if in_a_row >= policy.max_losses:
        return (
            f"{_workers(in_a_row)} lost without a new step or more progress (max_losses={policy.max_losses}, "
            f"{lost} lost in this run)"
        )
    if lost >= MOST_LOSSES:
        return f"{_workers(lost)} lost in this run, the most that a job may lose"
    return None


def _workers(count: int) -> str:
    return f"{count} worker{'s were' if count != 1 else ' was'}"


_AT_MOST_ONCE = "the worker vanished during the attempt, and this kind must not run more than once"


def _error(
    job: Job, code: str, message: str, retryable: bool = False, step: str | None = None
) -> ErrorInfo:
    return ErrorInfo(
        code=code,
        message=message,
        retryable=retryable,
        failed_step=step,
        attempt=job.attempt,
        trace_id=job.trace_id,
    )


def _partial(job: Job, outcome: Returned) -> ErrorInfo:
    errors = outcome.errors or []
    text = f"{len(errors)} part{'s' if len(errors) != 1 else ''} failed"
    return ErrorInfo(
        code="PARTIAL_SUCCESS",
        message=text,
        attempt=job.attempt,
        trace_id=job.trace_id,
        errors=errors,
    )


def deadline_passed(job: Job) -> Failed:
    """Return the change for a job whose deadline passed before its end."""
    where = "while it ran" if job.running else "before a worker took it"
    error = _error(job, "DEADLINE", f"the deadline passed {where}")
    return Failed(job_id=job.id, error=error)
