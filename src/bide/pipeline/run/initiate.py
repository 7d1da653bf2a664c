"""Initiate: an export is submitted, so that it becomes exactly one job where the API can see to that.

The checkpoint says INITIATING before anything is sent. After a crash in between, an API that knows idempotency keys gives
the same job again; with any other the submission is repeated, for an export does no harm, and that is said.
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


async def initiate(desk: RunContext, wanted: PlannedExport, export: Export) -> Export:
    with desk.on_the_way():
        return await _initiate(desk, wanted, export)


async def _initiate(desk: RunContext, wanted: PlannedExport, export: Export) -> Export:
    api = desk.account.api
    keyed = knows_keys(api)
    again = wanted.dataset.table.resubmit or desk.resubmit
    if export.phase is Phase.INITIATING and not keyed:
        if not again:
            raise ExportStopped(
                "UNSURE",
                f"it may have been submitted before the last run ended, and {api.name} has no way to tell: look "
                "there, then run with --resubmit",
            )
        log.warning("%s may have been submitted before, and is submitted again", export.name)
    export = await desk.step(export, PhaseEvent.SEND)
    key = submission_key(desk.run_id, export) if keyed else None
    try:
        if keyed or again:
            job = await desk.retrying(api.url or "").run(
                lambda: desk.account.submit(wanted.kind, wanted.input, key)
            )
        else:
            job = await desk.account.submit(wanted.kind, wanted.input, None)
    except ServiceUnreachable as error:
        if keyed or again:
            raise explained(error) from error
        raise ExportStopped(
            "UNSURE", f"{error}. Look whether it has it, then run with --resubmit"
        ) from None
    except BadPoll as error:
        raise explained(refusal(error, api)) from error
    except ServiceError as error:
        raise explained(error) from error
    owner = desk.owner(job.ref, export.name)
    if owner != export.name:
        message = (
            f"{api.name} returned job {job.job_id}, which already belongs to export {owner}. Check the idempotency key and "
            "the input of both exports."
        )
        raise ExportRefused(ErrorInfo("DUPLICATE_JOB", message, retryable=True))
    desk.jobs[export.key] = job
    return await desk.step(export, PhaseEvent.ACCEPTED, ref=job.ref, submitted_at=job.submitted_at)


def knows_keys(api: Api) -> bool:
    """Whether the same submission with the same key is one job."""
    submit = api.form.submit
    return submit is not None and b"{key}" in msgspec.json.encode(
        (submit.headers, submit.query, submit.body, submit.path)
    )


def submission_key(run_id: str, export: Export) -> str:
    """The same for the same attempt, whichever process makes it."""
    told = f"{run_id} {export.key} {export.attempt}"
    return hashlib.sha256(told.encode()).hexdigest()[:32]
