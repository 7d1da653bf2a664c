"""Cancel, retry and delete a job.

A change names the version of the job that it was decided on, so that no claim can happen in between. If the version has
changed, the handler decides again; with If-Match it responds with 412.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable

from bide.core.errors import (
    Conflict,
    Gone,
    NotFound,
    QuotaExceeded,
    StorageUnavailable,
    VersionMismatch,
)
from bide.core.jobs.record import Job
from bide.core.jobs.state_machine import Refused, Rerun, WrongVersion, cancel
from bide.core.json_log import about_job
from bide.core.wire.http import JobStatus, etag_matches
from bide.server.http.request import HttpRequest, Response
from bide.server.http.routing import HttpOperation, ResponseSpec
from bide.server.http.status import IF_MATCH, JOB_ID, JobView, find, missing
from bide.server.limits import Waiting
from bide.server.store import Missing

log = logging.getLogger("bide.http")
MAX_ATTEMPTS = 5


async def _decide_on(request: HttpRequest) -> tuple[Job, bool]:
    """Return the job, and whether the caller requires this version. Raise VersionMismatch if If-Match does not match."""
    job = await find(request, request.args[0])
    condition = request.header(b"if-match")
    if condition is None or condition.strip() == "*":
        return job, False
    tag = JobView(request, job).tag
    if not etag_matches(condition, tag, weak=False):
        raise VersionMismatch(f"If-Match is {condition[:200]}, but the ETag of job {job.id} is {tag}")
    return job, True


def _settled(job_id: str, outcome: Job | Refused | Missing, required: bool) -> Job | None:
    """Return the changed job; None if its version changed and the caller must decide again."""
    if isinstance(outcome, Missing):
        raise missing(job_id, outcome)
    if isinstance(outcome, WrongVersion):
        if required:
            raise VersionMismatch(outcome.reason)
        return None
    if isinstance(outcome, Refused):
        raise Conflict(outcome.reason)
    return outcome


async def _one(applying: Awaitable[list[Job | Refused | Missing]]) -> Job | Refused | Missing:
    (outcome,) = await applying
    return outcome


async def cancel_job(request: HttpRequest) -> Response:
    store = request.components.store
    for _ in range(MAX_ATTEMPTS):
        job, required = await _decide_on(request)
        if job.status.terminal:
            raise Conflict(
                f"job {job.id} is already {job.status.value}; only unfinished jobs can be cancelled"
            )
        if job.running and job.cancel_asked_at is not None:
            return JobView(request, job).response(202)  # already requested
        outcome = await _one(store.apply([cancel(job, job.version)]))
        after = _settled(job.id, outcome, required)
        if after is not None:
            return JobView(request, after).response(200 if after.status.terminal else 202)
    raise Conflict(f"job {request.args[0]} changed {MAX_ATTEMPTS} times during the request; try again")


async def retry_job(request: HttpRequest) -> Response:
    components = request.components
    components.intake.check_open()
    job, required = await _decide_on(request)
    version = job.version if required else None

    async def rerun(waiting: Waiting) -> Job | Refused | Missing:
        change = Rerun(job_id=job.id, version=version, waiting=waiting)
        return await _one(components.store.apply([change]))

    outcome = await components.limits.admit_again(job.tenant, job.kind, rerun)
    after = _settled(job.id, outcome, required)
    assert after is not None  # without a version, a change cannot fail because of it
    components.work.hint(after.queue, after.kind)
    shown = JobView(request, after)
    return shown.response(202, shown.location())


async def delete_job(request: HttpRequest) -> Response:
    components = request.components
    job, required = await _decide_on(request)
    outcome = await components.store.delete(job.id, job.version if required else None)
    _settled(job.id, outcome, required)
    components.notify.notify(job.id)  # long polls respond with 410
    try:
        await components.blobs.remove(job.id)
    except StorageUnavailable as error:
        # The job is deleted in any case; the upkeep removes its orphaned files.
        log.warning(
            "cannot remove the files of deleted job %s; the upkeep retries: %s",
            job.id,
            error,
            extra=about_job(job),
        )
    return Response(204, [])


_PARAMETERS = (JOB_ID, IF_MATCH)
_PROBLEMS = (NotFound, Gone, Conflict, VersionMismatch)

OPERATIONS = [
    HttpOperation(
        "POST",
        "/jobs/{jobId}/cancel",
        cancel_job,
        "cancelJob",
        "Cancel a job",
        "jobs",
        description="A waiting job ends immediately. The service asks a running job to stop, then terminates it, then "
        "kills it.",
        parameters=_PARAMETERS,
        scope="control",
        responses=(
            ResponseSpec(200, "The job was waiting and is cancelled.", JobStatus),
            ResponseSpec(
                202,
                "The job is running, and the service has asked it to stop.",
                JobStatus,
                headers=("Retry-After",),
            ),
        ),
        problems=_PROBLEMS,
        example="-X POST $BASE/jobs/JOB_ID/cancel",
    ),
    HttpOperation(
        "POST",
        "/jobs/{jobId}/retry",
        retry_job,
        "retryJob",
        "Run a job again",
        "jobs",
        description="Only after ERROR, CANCELLED or PARTIAL_SUCCESS, and not while a child job is still being cancelled, "
        "nor if the job ended before its file was uploaded. Finished steps are kept. The job counts as a waiting one of its "
        "tenant.",
        parameters=_PARAMETERS,
        scope="control",
        responses=(
            ResponseSpec(202, "The job will run again.", JobStatus, headers=("Location", "Retry-After")),
        ),
        problems=(*_PROBLEMS, QuotaExceeded),
        example="-X POST $BASE/jobs/JOB_ID/retry",
    ),
    HttpOperation(
        "DELETE",
        "/jobs/{jobId}",
        delete_job,
        "deleteJob",
        "Delete a job and its files",
        "jobs",
        description="A running job must be cancelled first. After the deletion its URL responds with 410.",
        parameters=_PARAMETERS,
        scope="control",
        responses=(ResponseSpec(204, "The job is deleted."),),
        problems=_PROBLEMS,
        example="-X DELETE $BASE/jobs/JOB_ID",
    ),
]
