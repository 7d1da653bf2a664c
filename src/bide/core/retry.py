"""What becomes of a job when an attempt has ended, and when to try again. Pure: time and randomness are passed in."""

from __future__ import annotations

import math
import random
from typing import Any

import msgspec

from bide.core.errors import ErrorInfo
from bide.core.job import Change, Failed, FailedForNow, HandedBack, Lost, Succeeded, loss_record
from bide.core.record import FileInfo, Job, Progress

MOST_LOSSES = 20  # in one run, whatever it achieves in between


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """What a kind says about its failures."""

    retries: int = 0
    backoff: float = 2.0
    backoff_cap: float = 600.0
    at_most_once: bool = False
    max_losses: int = 3


class Returned(msgspec.Struct, frozen=True, kw_only=True):
    """The handler came back; `errors` makes it a partial success."""

    result: msgspec.Raw | None = None
    result_file: FileInfo | None = None
    errors: list[dict[str, Any]] | None = None
    files: tuple[FileInfo, ...] = ()


class Raised(msgspec.Struct, frozen=True, kw_only=True):
    """The handler failed, or was ended because of a limit (TIMEOUT, STALLED, MEMORY_LIMIT)."""

    code: str
    message: str
    retryable: bool = True
    step: str | None = None


class Vanished(msgspec.Struct, frozen=True, kw_only=True):
    """The child died, or its lease ran out."""

    message: str = "the worker vanished"


class Stopped(msgspec.Struct, frozen=True, kw_only=True):
    """The handler was stopped because the service shuts down."""


Outcome = Returned | Raised | Vanished | Stopped


def backoff(failures: int, base: float, cap: float, rng: random.Random) -> float:
    """Exponential with full jitter: anywhere between 0 and base·2^failures, at most the cap."""
    ceiling = min(cap, base * 2.0 ** min(failures, 60))
    return rng.uniform(0, ceiling)


class Breaker:
    """Keeps requests from a host that fails: closed, open after so many failures in a row, then one probe at a time.

    A probe that succeeds closes it; one that fails opens it again for longer, with full jitter above half of the
    pause, so that it never becomes nothing. A probe that is never heard of again gives way to the next after
    `patience`. Answers to what was sent before it opened neither close it nor prolong it.
    """

    __slots__ = (
        "_base",
        "_cap",
        "_failures",
        "_opened",
        "_patience",
        "_probing",
        "_rng",
        "_threshold",
        "_until",
    )

    def __init__(
        self,
        *,
        rng: random.Random,
        threshold: int = 5,
        base: float = 1.0,
        cap: float = 60.0,
        patience: float = 60.0,
    ) -> None:
        self._rng = rng
        self._threshold = threshold
        self._base = base
        self._cap = cap
        self._patience = patience
        self._failures = 0  # in a row
        self._opened = 0  # times in a row
        self._until = -math.inf
        self._probing = False

    @property
    def closed(self) -> bool:
        return not self._opened

    def ready(self, now: float) -> float:
        """The moment from which a request may be sent; not after `now`: at once."""
        return self._until if self._opened else now

    def spend(self, now: float) -> None:
        """One is sent: when it is open, that is the probe, and nothing follows until it is heard of."""
        if self._opened and now >= self._until:
            self._probing = True
            self._until = now + self._patience

    def succeeded(self, now: float) -> None:
        """The host has answered, whatever it said."""
        if not self._opened or self._probing:
            self._failures = self._opened = 0
            self._probing = False

    def failed(self, now: float) -> None:
        """No answer, or one that only a host in trouble gives."""
        self._failures += 1
        if self._probing or (not self._opened and self._failures >= self._threshold):
            ceiling = min(self._cap, self._base * 2.0 ** min(self._opened, 60))
            self._until = now + self._rng.uniform(ceiling / 2, ceiling)
            self._opened += 1
            self._probing = False


def settle(
    job: Job,
    outcome: Outcome,
    policy: Policy,
    *,
    now: float,
    rng: random.Random,
    progress: Progress | None = None,
) -> Change:
    """The change that an attempt's outcome comes to. (When a cancel was asked for, `advance` makes it CANCELLED.)"""
    common: dict[str, Any] = {"job_id": job.id, "owner": job.owner, "fence": job.fence}
    ending: dict[str, Any] = {**common, "progress": progress}
    match outcome:
        case Returned(errors=None):
            return Succeeded(
                result=outcome.result,
                result_file=outcome.result_file,
                files=outcome.files,
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
            return HandedBack(**common)  # it was only reserved
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
        case Raised():
            error = _error(job, outcome.code, outcome.message, outcome.retryable, outcome.step)
            if outcome.retryable and job.failures < policy.retries:
                wait = backoff(job.failures, policy.backoff, policy.backoff_cap, rng)
                return FailedForNow(error=error, retry_at=now + wait, progress=progress, **common)
            return Failed(error=error, **ending)


def _poisoned(job: Job, policy: Policy, progress: Progress | None) -> str | None:
    """Why the job must not run again after the loss of the worker that runs it now; None if it may."""
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
    """The change for a job whose deadline has come before its end, wherever it was."""
    where = "while it ran" if job.running else "before a worker took it"
    error = _error(job, "DEADLINE", f"the deadline passed {where}")
    return Failed(job_id=job.id, error=error)
