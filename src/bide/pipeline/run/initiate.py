"""Initiate: submits an export. It becomes exactly one job if the API supports idempotency keys.

The checkpoint says INITIATING before the submission is sent. After a crash, an API with idempotency keys returns the same
job again. Without them the submission is repeated with a warning, because a second export does no harm.
"""

from __future__ import annotations

import hashlib
import logging

import msgspec

from bide.client.apis import Api, BadPoll
from bide.client.http.sender import refusal
from bide.core.errors import ErrorInfo, ServiceError, ServiceUnreachable
from bide.pipeline.run.context import ExportRefused, ExportStopped, RunContext, explained
from bide.pipeline.run.exports import PlannedExport
from bide.pipeline.run.phase import Export, Phase, PhaseEvent

log = logging.getLogger("bide.pipeline")


async def initiate(context: RunContext, planned: PlannedExport, export: Export) -> Export:
    with context.submission():
        return await _initiate(context, planned, export)


async def _initiate(context: RunContext, planned: PlannedExport, export: Export) -> Export:
    api = context.account.api
    keyed = knows_keys(api)
    again = planned.dataset.table.resubmit or context.resubmit
    if export.phase is Phase.INITIATING and not keyed:
        if not again:
            raise ExportStopped(
                "UNSURE",
                f"the last run may have submitted it, and {api.name} has no idempotency keys. Check whether it has "
                "the job, then run with --resubmit",
            )
        log.warning("%s may have been submitted before a crash; it is submitted again", export.name)
    export = await context.step(export, PhaseEvent.SEND)
    key = submission_key(context.run_id, export) if keyed else None
    try:
        if keyed or again:
            job = await context.retrying(api.url or "").run(
                lambda: context.account.submit(planned.kind, planned.input, key)
            )
        else:
            job = await context.account.submit(planned.kind, planned.input, None)
    except ServiceUnreachable as error:
        if keyed or again:
            raise explained(error) from error
        raise ExportStopped(
            "UNSURE", f"{error}. Check whether {api.name} has the job, then run with --resubmit"
        ) from None
    except BadPoll as error:
        raise explained(refusal(error, api)) from error
    except ServiceError as error:
        raise explained(error) from error
    owner = context.claim(job.ref, export.name)
    if owner != export.name:
        message = (
            f"{api.name} returned job {job.job_id}, which already belongs to export {owner}. Check the idempotency key and "
            "the input of both exports."
        )
        raise ExportRefused(ErrorInfo("DUPLICATE_JOB", message, retryable=True))
    context.jobs[export.key] = job
    return await context.step(export, PhaseEvent.ACCEPTED, ref=job.ref, submitted_at=job.submitted_at)


def knows_keys(api: Api) -> bool:
    """Whether the API supports idempotency keys."""
    submit = api.form.submit
    return submit is not None and b"{key}" in msgspec.json.encode(
        (submit.headers, submit.query, submit.body, submit.path)
    )


def submission_key(run_id: str, export: Export) -> str:
    """The idempotency key of an attempt, the same in every process."""
    attempt = f"{run_id} {export.key} {export.attempt}"
    return hashlib.sha256(attempt.encode()).hexdigest()[:32]
