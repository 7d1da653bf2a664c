"""Cancel, retry and delete: what a person may do to a job.

A wish is carried out on the job as it was read, or decided again: the change names the version that it was decided on,
so that no claim slips in between. With If-Match it is refused instead.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable

from bide.core.errors import Conflict, Gone, NotFound, StorageUnavailable, VersionMismatch
from bide.core.job import Refused, Rerun, WrongVersion, cancel
from bide.core.record import Job
from bide.core.wire import WireJob, etag_matches
from bide.server.http.exchange import Answer, Request
from bide.server.http.operations import Operation, Reply
from bide.server.http.status import IF_MATCH, JOB_ID, Shown, find, missing
from bide.server.store import Missing

log = logging.getLogger("bide.http")
TRIES = 5


async def _decide_on(request: Request) -> tuple[Job, bool]:
    """The job as it is now, and whether the caller insists on that; VersionMismatch when it has changed already."""
    job = await find(request.parts, request.args[0])
    condition = request.header(b"if-match")
    if condition is None or condition.strip() == "*":
        return job, False
    tag = Shown(request, job).tag
    if not etag_matches(condition, tag, weak=False):
        raise VersionMismatch(f"the job's ETag is {tag} now")
    return job, True


def _settled(job_id: str, outcome: Job | Refused | Missing, insists: bool) -> Job | None:
    """None when the job changed in between and the wish is to be decided again."""
    if isinstance(outcome, Missing):
        raise missing(job_id, outcome)
    if isinstance(outcome, WrongVersion):
        if insists:
            raise VersionMismatch(outcome.reason)
        return None
    if isinstance(outcome, Refused):
        raise Conflict(outcome.reason)
    return outcome


async def _one(applying: Awaitable[list[Job | Refused | Missing]]) -> Job | Refused | Missing:
    (outcome,) = await applying
    return outcome


async def cancel_job(request: Request) -> Answer:
    store = request.parts.store
    for _ in range(TRIES):
        job, insists = await _decide_on(request)
        if job.status.terminal:
            raise Conflict(f"the job is {job.status.value} already; only a live one can be cancelled")
        if job.running and job.cancel_asked_at is not None:
            return Shown(request, job).answer(202)  # it was told before
        outcome = await _one(store.apply([cancel(job, job.version)]))
        after = _settled(job.id, outcome, insists)
        if after is not None:
            return Shown(request, after).answer(200 if after.status.terminal else 202)
    raise Conflict("the job kept changing; try again")


async def retry_job(request: Request) -> Answer:
    parts = request.parts
    job, insists = await _decide_on(request)
    wish = Rerun(job_id=job.id, version=job.version if insists else None)
    after = _settled(job.id, await _one(parts.store.apply([wish])), insists)
    assert after is not None  # only a wish with a version can find another one
    parts.engine.hint(after.queue, after.kind)
    shown = Shown(request, after)
    return shown.answer(202, shown.location())


async def delete_job(request: Request) -> Answer:
    parts = request.parts
    job, insists = await _decide_on(request)
    outcome = await parts.store.delete(job.id, job.version if insists else None)
    _settled(job.id, outcome, insists)
    parts.notify.notify(job.id)  # whoever waits for it hears that it is gone
    try:
        await parts.blobs.remove(job.id)
    except (
        StorageUnavailable
    ) as error:  # it is deleted all the same: its files belong to nobody and are swept
        log.warning("the files of the deleted job %s stay for now: %s", job.id, error)
    return Answer(204, [])


_PARAMETERS = (JOB_ID, IF_MATCH)
_PROBLEMS = (NotFound, Gone, Conflict, VersionMismatch)

OPERATIONS = [
    Operation(
        "POST",
        "/jobs/{jobId}/cancel",
        cancel_job,
        "cancelJob",
        "Cancel a job",
        "jobs",
        description="A waiting job ends at once. A running one is told, then terminated, then killed.",
        parameters=_PARAMETERS,
        replies=(
            Reply(200, "It was waiting, and is cancelled.", WireJob),
            Reply(202, "It runs, and was told to stop.", WireJob, headers=("Retry-After",)),
        ),
        problems=_PROBLEMS,
        example="-X POST $BASE/jobs/JOB_ID/cancel",
    ),
    Operation(
        "POST",
        "/jobs/{jobId}/retry",
        retry_job,
        "retryJob",
        "Run a job again",
        "jobs",
        description="Only after ERROR, CANCELLED or PARTIAL_SUCCESS. Finished steps are kept.",
        parameters=_PARAMETERS,
        replies=(Reply(202, "It will run again.", WireJob, headers=("Location", "Retry-After")),),
        problems=_PROBLEMS,
        example="-X POST $BASE/jobs/JOB_ID/retry",
    ),
    Operation(
        "DELETE",
        "/jobs/{jobId}",
        delete_job,
        "deleteJob",
        "Delete a job and its files",
        "jobs",
        description="Not while it runs: cancel it first. Afterwards it answers 410.",
        parameters=_PARAMETERS,
        replies=(Reply(204, "It is deleted."),),
        problems=_PROBLEMS,
        example="-X DELETE $BASE/jobs/JOB_ID",
    ),
]
