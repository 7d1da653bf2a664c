"""The job and its state machine. Everything that affects the state machine lives in this file.

Invariants:
1. A status changes only by `advance`, and only along TRANSITIONS; after a cancel was requested, the end of the attempt
   ends the job as CANCELLED.
2. A change by a worker carries the owner and the fence of its attempt; if either is not the job's, it is refused. The
   fence alone is not enough: a database that was restored to an older state issues the same number again.
3. The fence grows with every claim, the version with every change; neither ever goes back.
4. A terminal job changes only by `Rerun`, which starts a new run, and by `ChildEnded`, which leaves its status; each
   run enters a terminal status once.
5. Only a job with `due` set can be claimed; one that runs, is reserved or parked has none.
6. A job that runs or is reserved has a lease; no other has one.
7. A job parks only on ids that are among its `children`, so each id in `waiting_for` is a stored job.
8. A parked job becomes due as soon as no child that it waits for is unfinished; an id that is not among its `children`
   never delays it.
9. The run of a job is 0 until all its files are uploaded. If it ends before, it never runs.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from bide.core.errors import ErrorInfo
from bide.core.jobs.record import LIVE, Child, FileInfo, Job, LossRecord, Progress, Status, Step
from bide.core.jobs.retry_budget import RetryBudget


class Change(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A change of one job. Workers set `owner` and `fence`, callers with If-Match set `version`."""

    job_id: str
    owner: str | None = None
    fence: int | None = None
    version: int | None = None
    lease: float | None = None  # set by the upkeep: the `lease_until` that it observed unchanged


class Uploaded(Change, frozen=True, kw_only=True):
    """All files of the job are uploaded."""


class Claimed(Change, frozen=True, kw_only=True):
    """A worker claims the job, and renews its lease of `lease_seconds` until the attempt ends."""

    owner: str
    lease_until: float
    lease_seconds: float | None = None


class Reserved(Change, frozen=True, kw_only=True):
    """A worker prefetches the job behind the one that it runs. The status stays, because the job does not run yet."""

    owner: str
    lease_until: float
    lease_seconds: float | None = None


class Begun(Change, frozen=True, kw_only=True):
    """A reserved job runs since `started_at`. It was due `waited` seconds before that; None: unknown."""

    started_at: float
    waited: float | None = None


class Emitted(Change, frozen=True, kw_only=True):
    """The handler has added chunks to the output stream. They become events; the job itself does not change.

    `first` is the number of the first chunk in this attempt, `total` the bytes of the job's stream before it.
    """

    chunks: tuple[msgspec.Raw, ...] = ()
    first: int = 0
    total: int = 0
    repeated: bool = False  # an earlier write of the same chunks may be stored, although it failed


class StepStarted(Change, frozen=True, kw_only=True):
    name: str


class StepKept(Change, frozen=True, kw_only=True):
    """A step has succeeded; its result is stored with the files that it made."""

    name: str
    result: msgspec.Raw
    files: tuple[FileInfo, ...] = ()


class Spawned(Change, frozen=True, kw_only=True):
    """The handler has spawned a child; the files made so far are stored with it."""

    child: Child
    files: tuple[FileInfo, ...] = ()


class Parked(Change, frozen=True, kw_only=True):
    """The handler waits until these children have ended, and holds no worker."""

    waiting_for: tuple[str, ...]
    progress: Progress | None = None
    files: tuple[FileInfo, ...] = ()


class ChildEnded(Change, frozen=True, kw_only=True):
    child_id: str
    status: Status


class Succeeded(Change, frozen=True, kw_only=True):
    """The handler has returned; an `error` makes it a partial success and says what is missing."""

    result: msgspec.Raw | None = None
    result_file: FileInfo | None = None
    files: tuple[FileInfo, ...] = ()
    error: ErrorInfo | None = None
    progress: Progress | None = None
    remove_input: bool = False  # remove the uploads of the input, because no retry needs them
    # How long the attempt would take according to its progress halfway: low, middle and high. For the accuracy of `eta`.
    predicted: tuple[float, float, float] | None = None


class RetryClaim(msgspec.Struct, frozen=True):
    """A retry that the budget of its kind must allow. Otherwise the job waits in a list, at the latest until `due`."""

    kind: str
    budget: RetryBudget
    due: float
    first_attempts: int = 0  # of this process, which were not reported yet


class FailedForNow(Change, frozen=True, kw_only=True):
    """The attempt failed; there will be another one at `retry_at`. With `waits_for`, the job is in that waiting list, and
    starts at `due` if it was not released before.
    """

    error: ErrorInfo
    retry_at: float
    progress: Progress | None = None
    due: float | None = None  # None: `retry_at`
    waits_for: str | None = None
    budgeted: RetryClaim | None = None  # None: the retry needs no budget


class Delayed(FailedForNow, frozen=True, kw_only=True):
    """The attempt ended early because of something else than the handler, and does not count: the job waits."""


class Released(Change, frozen=True, kw_only=True):
    """A job that was in a waiting list starts at `due`."""

    fence: int
    due: float


class Failed(Change, frozen=True, kw_only=True):
    """The job failed finally: in an attempt, or before the first one."""

    error: ErrorInfo
    progress: Progress | None = None


class Lost(Change, frozen=True, kw_only=True):
    """The worker vanished. That does not count as a failure of the handler: the job runs again."""

    progress: Progress | None = None


class HandedBack(Change, frozen=True, kw_only=True):
    """The worker gives the job back, for example because it shuts down."""

    progress: Progress | None = None


class MarkedOverdue(Change, frozen=True, kw_only=True):
    """The attempt runs much longer than others of its kind; `message` says how much, for the log."""

    message: str


class PriorityChanged(Change, frozen=True, kw_only=True):
    """A caller has changed the priority of a job that waits."""

    priority: int


class CancelAsked(Change, frozen=True, kw_only=True):
    """A caller requested a cancel; the worker is notified."""


class Cancelled(Change, frozen=True, kw_only=True):
    progress: Progress | None = None


class Rerun(Change, frozen=True, kw_only=True):
    """A caller requested that a finished job runs again; finished steps are kept."""

    waiting: tuple[tuple[str, int], ...] = ()  # limits of waiting jobs in which it must fit


S = Status
_WAITING = (S.PENDING, S.RETRYING)
_RUNNING_STAYS = {S.PROCESSING: S.PROCESSING}
TRANSITIONS: dict[type[Change], dict[Status, Status]] = {
    Uploaded: {S.UPLOADING: S.PENDING},
    # PROCESSING only if it is parked and due again.
    Claimed: {S.PENDING: S.PROCESSING, S.RETRYING: S.PROCESSING, S.PROCESSING: S.PROCESSING},
    Reserved: {s: s for s in _WAITING},
    Begun: dict.fromkeys(_WAITING, S.PROCESSING),
    Emitted: _RUNNING_STAYS,
    StepStarted: _RUNNING_STAYS,
    StepKept: _RUNNING_STAYS,
    Spawned: _RUNNING_STAYS,
    Parked: _RUNNING_STAYS,
    ChildEnded: {s: s for s in Status},
    Succeeded: {S.PROCESSING: S.DONE},  # PARTIAL_SUCCESS when it carries an error
    FailedForNow: {S.PROCESSING: S.RETRYING},
    Delayed: {S.PROCESSING: S.RETRYING},
    Released: {S.RETRYING: S.RETRYING},
    Failed: {s: S.ERROR for s in S if s in LIVE},
    Lost: {S.PROCESSING: S.PENDING},
    HandedBack: {S.PROCESSING: S.PENDING, **{s: s for s in _WAITING}},
    MarkedOverdue: _RUNNING_STAYS,
    PriorityChanged: {s: s for s in (S.UPLOADING, *_WAITING)},
    # A waiting job only if it is reserved; otherwise it is cancelled at once.
    CancelAsked: {s: s for s in (S.PROCESSING, *_WAITING)},
    Cancelled: {s: S.CANCELLED for s in S if s in LIVE},
    Rerun: {S.ERROR: S.PENDING, S.CANCELLED: S.PENDING, S.PARTIAL_SUCCESS: S.PENDING},
}
# Made by the worker that holds the lease, or about it: refused without its owner and fence.
BY_WORKER = frozenset(
    {
        Begun,
        Emitted,
        StepStarted,
        StepKept,
        Spawned,
        Parked,
        Succeeded,
        FailedForNow,
        Delayed,
        Lost,
        HandedBack,
    }
)
# Changes that end an attempt. After a cancel was accepted, each of them ends the job as CANCELLED.
_ENDS_ATTEMPT = frozenset({Parked, Succeeded, FailedForNow, Delayed, Failed, Lost, HandedBack})


class Refused(Exception):
    """The change does not apply; the job is unchanged."""

    def __init__(self, job: Job, change: Change, reason: str) -> None:
        super().__init__(reason)
        self.job = job
        self.change = change
        self.reason = reason


class Stale(Refused):
    """Another attempt has taken over: the owner or the fence is no longer the job's."""


class WrongStatus(Refused):
    """The job's status does not allow the change."""


class UnknownChild(Refused):
    """The job would wait for a job that is not among its children, and so would wait forever."""


class WrongVersion(Refused):
    """The job has changed since the caller read it."""


def target(job: Job, change: Change) -> Status:
    """Return the status after `change`; Refused if the change does not apply."""
    if change.version is not None and change.version != job.version:
        raise WrongVersion(job, change, f"the job is at version {job.version}")
    kind = type(change)
    allowed = TRANSITIONS[kind]
    if job.status not in allowed:
        names = ", ".join(s.value for s in Status if s in allowed)
        raise WrongStatus(job, change, f"the job is {job.status.value}; this needs {names}")
    _check_attempt(job, change)
    if job.due is None and kind in (Claimed, Reserved):
        raise WrongStatus(job, change, "the job is not due")
    # The fence too: an older version leaves the run at 0 when the files of the job are uploaded.
    if kind is Rerun and job.run == 0 and job.fence == 0:
        raise WrongStatus(
            job,
            change,
            "the job has no file to run with, because the upload of its file was not complete when the job ended; submit a "
            "new job with the file",
        )
    if kind is CancelAsked and not job.held:
        raise WrongStatus(job, change, "no worker holds the job")
    if job.cancel_asked_at is not None and kind in _ENDS_ATTEMPT:
        return Status.CANCELLED
    if isinstance(change, Parked) and (unknown := _unknown_children(job, change)):
        raise UnknownChild(job, change, f"the job has no child {', '.join(unknown)}")
    if isinstance(change, Succeeded) and change.error is not None:
        return Status.PARTIAL_SUCCESS
    return allowed[job.status]


def _check_attempt(job: Job, change: Change) -> None:
    """Raise Stale if the change is about another attempt than the current one."""
    kind = type(change)
    if kind is Released:
        if change.fence != job.fence or job.held:
            raise Stale(job, change, "the job no longer waits")
    elif kind in BY_WORKER or change.fence is not None:
        if change.fence != job.fence:
            raise Stale(job, change, f"fence {change.fence} is not {job.fence}")
        if not job.held:
            raise Stale(job, change, "the attempt has given up its lease")
        if change.owner != job.owner:
            raise Stale(job, change, f"owner {change.owner} is not {job.owner}")
    if change.lease is not None and change.lease != job.lease_until:
        raise Stale(job, change, "the lease was renewed")


def advance(job: Job, change: Change, now: float) -> Job:
    """Return the job after the change. Pure; raises Refused if the change does not apply."""
    status = target(job, change)
    if status is Status.CANCELLED:
        change = Cancelled(job_id=job.id, progress=getattr(change, "progress", None))
    fields: dict[str, Any] = {"status": status, "version": job.version + 1, "updated_at": now}
    fields.update(_EFFECTS[type(change)](job, change, now))
    if status.terminal and not job.status.terminal:
        fields.update(_released(), finished_at=now, due=None, next_attempt_at=None, waiting_for=None)
        fields["expires_at"] = None if job.keep is None else now + job.keep
        # A step that was started and has no result has failed, even if its handler continued without it.
        end = Status.CANCELLED if status is Status.CANCELLED else Status.ERROR
        fields["steps"] = _steps_ended(job.steps, end, now)
    return replace(job, **fields)


def _released() -> dict[str, Any]:
    return {"owner": None, "lease_until": None, "overdue_at": None}


def _uploaded(job: Job, change: Uploaded, now: float) -> dict[str, Any]:
    return {"due": max(now, job.run_at or now), "run": 1}


def _claimed(job: Job, change: Claimed, now: float) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "fence": job.fence + 1,
        "owner": change.owner,
        "lease_until": change.lease_until,
        "lease_seconds": change.lease_seconds,
        "due": None,
        "next_attempt_at": None,
        "waiting_for": None,
    }
    if not job.parked:  # a parked parent continues its attempt
        fields.update(attempt=job.failures + 1, started_at=now, progress=None)
    return fields


def _reserved(job: Job, change: Reserved, now: float) -> dict[str, Any]:
    return {
        "fence": job.fence + 1,
        "owner": change.owner,
        "lease_until": change.lease_until,
        "lease_seconds": change.lease_seconds,
        "due": None,
    }


def _begun(job: Job, change: Begun, now: float) -> dict[str, Any]:
    return {
        "attempt": job.failures + 1,
        "started_at": change.started_at,
        "progress": None,
        "next_attempt_at": None,
    }


def _step_started(job: Job, change: StepStarted, now: float) -> dict[str, Any]:
    return {"steps": _with_step(job.steps, Step(change.name, Status.PROCESSING, now))}


def _step_kept(job: Job, change: StepKept, now: float) -> dict[str, Any]:
    return {
        "steps": _with_step(
            job.steps, Step(change.name, Status.DONE, _started_at(job, change.name), now)
        ),
        "files": _with_files(job.files, change.files),
    }


def _spawned(job: Job, change: Spawned, now: float) -> dict[str, Any]:
    return {
        # A new child replaces a deleted one with the same key.
        "children": (*(c for c in job.children if c.key != change.child.key), change.child),
        "files": _with_files(job.files, change.files),
    }


def _parked(job: Job, change: Parked, now: float) -> dict[str, Any]:
    parked = replace(job, waiting_for=change.waiting_for)
    return {
        **_released(),
        "waiting_for": change.waiting_for,
        "due": now if _all_ended(parked) else None,
        "progress": change.progress or job.progress,
        "files": _with_files(job.files, change.files),
    }


def _child_ended(job: Job, change: ChildEnded, now: float) -> dict[str, Any]:
    children = tuple(
        replace(c, status=change.status) if c.job_id == change.child_id else c for c in job.children
    )
    fields: dict[str, Any] = {"children": children}
    if job.parked and job.due is None and _all_ended(replace(job, children=children)):
        fields["due"] = now
    return fields


def _succeeded(job: Job, change: Succeeded, now: float) -> dict[str, Any]:
    return {
        "result": change.result,
        "result_file": change.result_file,
        "error": change.error,
        "files": _with_files(job.files, change.files),
        "progress": change.progress or job.progress,
    }


def _failed_for_now(job: Job, change: FailedForNow, now: float) -> dict[str, Any]:
    return {
        **_released(),
        "failures": job.failures + 1,
        "loss_record": loss_record(job, change.progress),
        "error": change.error,
        "due": change.retry_at if change.due is None else change.due,
        "next_attempt_at": change.retry_at,
        "progress": change.progress or job.progress,
        "steps": _steps_ended(job.steps, Status.ERROR, now),
    }


def _delayed(job: Job, change: Delayed, now: float) -> dict[str, Any]:
    return {
        **_failed_for_now(job, change, now),
        "failures": job.failures,
        "steps": _steps_ended(job.steps, Status.PENDING, None),
    }


def _release(job: Job, change: Released, now: float) -> dict[str, Any]:
    due = change.due if job.due is None else min(job.due, change.due)
    return {"due": due, "next_attempt_at": due}


def _failed(job: Job, change: Failed, now: float) -> dict[str, Any]:
    return {
        "failures": job.failures + (1 if job.running else 0),
        "error": change.error,
        "progress": change.progress or job.progress,
    }


def _lost(job: Job, change: Lost, now: float) -> dict[str, Any]:
    return {**_handed_back(job, change, now), "losses": job.losses + 1}


def _handed_back(job: Job, change: Lost | HandedBack, now: float) -> dict[str, Any]:
    return {
        **_released(),
        "due": now,
        "loss_record": loss_record(job, change.progress),
        "steps": _steps_ended(job.steps, Status.PENDING, None),
    }


def loss_record(job: Job, progress: Progress | None) -> LossRecord | None:
    """Return the record of losses after an attempt that ends with this progress. Counting restarts if the attempt has
    finished a new step or made more progress than every earlier one of the run.
    """
    if not job.running:  # the attempt had not started
        return job.loss_record
    known = job.loss_record or LossRecord()
    shown = progress or job.progress
    percent = (shown.percent if shown is not None else None) or 0.0
    steps = sum(step.status is Status.DONE for step in job.steps)
    if steps <= known.steps and percent <= known.percent:
        return job.loss_record
    return LossRecord(job.losses, max(steps, known.steps), max(percent, known.percent))


def _marked_overdue(job: Job, change: MarkedOverdue, now: float) -> dict[str, Any]:
    if job.overdue_at is not None:
        raise WrongStatus(job, change, "the job is already marked as overdue")
    return {"overdue_at": now}


def _priority_changed(job: Job, change: PriorityChanged, now: float) -> dict[str, Any]:
    return {"priority": change.priority}


def _cancel_asked(job: Job, change: CancelAsked, now: float) -> dict[str, Any]:
    return {"cancel_asked_at": job.cancel_asked_at or now}


def _cancelled(job: Job, change: Cancelled, now: float) -> dict[str, Any]:
    return {
        "cancel_asked_at": job.cancel_asked_at or now,
        "progress": change.progress or job.progress,
    }


def _rerun(job: Job, change: Rerun, now: float) -> dict[str, Any]:
    return {
        "run": job.run + 1,
        "attempt": 0,
        "failures": 0,
        "losses": 0,
        "loss_record": None,
        "due": now,
        "run_at": None,
        "deadline": None if job.deadline is not None and job.deadline <= now else job.deadline,
        "started_at": None,
        "finished_at": None,
        "expires_at": None,
        "cancel_asked_at": None,
        "result": None,
        "result_file": None,
        "error": None,
        "progress": None,
        "steps": tuple(s for s in job.steps if s.status is Status.DONE),
        # Children that did not succeed run again with their parent.
        "children": tuple(
            c if c.status is Status.DONE else replace(c, status=None) for c in job.children
        ),
    }


_EFFECTS: dict[type[Change], Any] = {
    Uploaded: _uploaded,
    Claimed: _claimed,
    Reserved: _reserved,
    Begun: _begun,
    Emitted: lambda job, change, now: {},
    StepStarted: _step_started,
    StepKept: _step_kept,
    Spawned: _spawned,
    Parked: _parked,
    ChildEnded: _child_ended,
    Succeeded: _succeeded,
    FailedForNow: _failed_for_now,
    Delayed: _delayed,
    Released: _release,
    Failed: _failed,
    Lost: _lost,
    HandedBack: _handed_back,
    MarkedOverdue: _marked_overdue,
    PriorityChanged: _priority_changed,
    CancelAsked: _cancel_asked,
    Cancelled: _cancelled,
    Rerun: _rerun,
}


def _with_step(steps: tuple[Step, ...], step: Step) -> tuple[Step, ...]:
    if any(s.name == step.name for s in steps):
        return tuple(step if s.name == step.name else s for s in steps)
    return (*steps, step)


def _started_at(job: Job, name: str) -> float | None:
    return next((step.started_at for step in job.steps if step.name == name), None)


def _steps_ended(steps: tuple[Step, ...], status: Status, at: float | None) -> tuple[Step, ...]:
    """The steps after the end of an attempt at this time; None: a step that was running has not started."""
    if not steps:
        return steps
    return tuple(
        Step(s.name, status, None if at is None else s.started_at, at)
        if s.status is Status.PROCESSING
        else s
        for s in steps
    )


def _with_files(files: tuple[FileInfo, ...], new: tuple[FileInfo, ...]) -> tuple[FileInfo, ...]:
    if not new:
        return files
    by_name = {f.name: f for f in files}
    by_name.update((f.name, f) for f in new)
    return tuple(by_name.values())


def _all_ended(job: Job) -> bool:
    unfinished = {c.job_id for c in job.children if c.status is None}
    return unfinished.isdisjoint(job.waiting_for or ())


def _unknown_children(job: Job, change: Parked) -> list[str]:
    known = {c.job_id for c in job.children}
    return [child_id for child_id in change.waiting_for if child_id not in known]


def cancel(job: Job, version: int | None = None) -> Change:
    """Return the change for a request to cancel: a waiting job ends now, a worker stops a running one."""
    if job.held:
        return CancelAsked(job_id=job.id, version=version)
    return Cancelled(job_id=job.id, version=version)


def ripples(before: Job, after: Job) -> list[tuple[str, str]]:
    """Return the effects of a change on parent and children, as (job id, "ended" | "cancel" | "rerun").

    The store applies them in the same transaction.
    """
    effects: list[tuple[str, str]] = []
    if after.status.terminal and not before.status.terminal:
        if after.parent is not None:
            effects.append((after.parent, "ended"))
        if after.status in (Status.ERROR, Status.CANCELLED):
            effects += [(c.job_id, "cancel") for c in after.children if c.status is None]
    if after.cancel_asked_at is not None and before.cancel_asked_at is None and after.held:
        effects += [(c.job_id, "cancel") for c in after.children if c.status is None]
    if after.run > before.run:
        effects += [(c.job_id, "rerun") for c in after.children if c.status is None]
    return effects


def diagram() -> str:
    """Return the state machine as a Mermaid diagram."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for change, moves in TRANSITIONS.items():
        if change is ChildEnded:
            continue  # changes no status
        for source, goal in moves.items():
            arrows.setdefault((source.value, goal.value), []).append(change.__name__)
            if change is Succeeded:
                partial = (source.value, Status.PARTIAL_SUCCESS.value)
                arrows.setdefault(partial, []).append("Succeeded (in part)")
    lines = ["stateDiagram-v2", "    [*] --> UPLOADING", "    [*] --> PENDING"]
    lines += [f"    {a} --> {b}: {', '.join(names)}" for (a, b), names in arrows.items()]
    lines += [f"    {s.value} --> [*]" for s in Status if s.terminal]
    return "\n".join(lines)
