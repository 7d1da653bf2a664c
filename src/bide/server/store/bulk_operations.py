"""The operation of bulk actions inside a transaction: act on a page of jobs, and store how far the action has come.

1. The changes of the jobs and the new state of the action are one transaction. So after a crash the action continues with
   the first job on which it has not acted.
2. An attempt that has lost its lease changes nothing, because the fence of the action is checked in the same transaction.
3. A job is changed only if it still matches when it is read in the transaction.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from bide.core.jobs.record import Job
from bide.core.jobs.state_machine import (
    Emitted,
    PriorityChanged,
    Refused,
    Rerun,
    WrongStatus,
    cancel,
    target,
)
from bide.server.registry import is_reserved
from bide.server.store import (
    BULK_STEP,
    MOST_REFUSALS,
    BulkPage,
    BulkProgress,
    BulkRefusal,
    BulkState,
    Missing,
    operations,
)
from bide.server.store.query_threads import release
from bide.server.store.transaction import Transaction, encode

_read_state = msgspec.json.Decoder(BulkState)
_ALL = 1 << 62  # bytes of step results


def act(
    tx: Transaction, page: BulkPage, *, keep_events: bool = False
) -> BulkProgress | Refused | Missing:
    job = tx.job(page.job_id)
    if job is None:
        return operations.gone(tx, page.job_id)
    # A change of the worker that leaves the job as it is: it only checks the attempt.
    attempt = Emitted(job_id=job.id, owner=page.owner, fence=page.fence)
    try:
        target(job, attempt)
    except Refused as refusal:
        return refusal
    if job.cancel_asked_at is not None:
        return WrongStatus(job, attempt, "the cancel of the bulk action was requested")
    stored = read_state(tx.steps(job.id, _ALL).get(BULK_STEP))
    if stored != page.state and stored is not None:
        return BulkProgress(stored)
    state, changed = page.state, []
    refusals = list(state.refusals)
    counts = {"changed": state.changed, "refused": state.refused, "skipped": state.skipped}
    for job_id in page.ids:
        release()
        found = tx.job(job_id)
        if job_id == job.id or (found is not None and found.tenant != job.tenant):
            continue
        if found is not None and page.kind is None and is_reserved(found.kind):
            continue
        outcome = None if found is None else _outcome(tx, found, page, keep_events)
        if isinstance(outcome, str):
            counts["refused"] += 1
            if len(refusals) < MOST_REFUSALS:
                refusals.append(BulkRefusal(job_id, outcome))
        elif outcome is not None:
            counts["changed"] += 1
            changed.append(job_id)
        else:
            counts["skipped"] += 1
    cursor = page.ids[-1] if page.ids else state.cursor
    state = replace(state, cursor=cursor, refusals=tuple(refusals), **counts)
    tx.keep_step(job, BULK_STEP, msgspec.Raw(encode(state)))
    return BulkProgress(state, tuple(changed))


def read_state(stored: msgspec.Raw | bytes | None) -> BulkState | None:
    return None if stored is None else _read_state.decode(stored)


def _matches(job: Job, page: BulkPage) -> bool:
    """Whether the job has kept the fields by which it was found that can change."""
    if job.status not in page.status:
        return False
    return page.code is None or (job.error is not None and job.error.code == page.code)


def _outcome(tx: Transaction, job: Job, page: BulkPage, keep_events: bool) -> Job | str | None:
    """Return the changed job, or why it is refused; None if it needs no change, or no longer matches."""
    if not _matches(job, page):
        return None
    after = _act_on(tx, job, page, keep_events)
    if isinstance(after, Refused):
        return after.reason
    return after if isinstance(after, Job) else None


def _act_on(
    tx: Transaction, job: Job, page: BulkPage, keep_events: bool
) -> Job | Refused | Missing | None:
    """Return the changed job; None if it needs no change."""
    match page.action:
        case "cancel":
            return None if job.cancel_asked_at is not None else operations.apply(tx, cancel(job))
        case "retry":
            waiting = page.waiting.get(job.kind, page.waiting.get("", ()))
            return operations.apply(tx, Rerun(job_id=job.id, waiting=waiting))
        case "delete":
            return operations.delete(tx, job.id, None, keep_events=keep_events)
        case "priority":
            if job.priority == page.priority:
                return None
            return operations.apply(tx, PriorityChanged(job_id=job.id, priority=page.priority))
