"""Monitor: waits for the job of an export, with the scheduler of the account, until `timeout`.

It sends no request while other exports are being submitted: polling a job that has just started would delay a submission.
This pause is limited, because results may expire.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from bide.client.apis import GONE, NOT_FOUND
from bide.client.job import until_ended
from bide.core.errors import BideError, ErrorInfo
from bide.core.jobs.record import SUCCESSFUL
from bide.core.wire.http import JobStatus
from bide.pipeline.run.context import ExportRefused, ExportStopped, ExportUpdate, RunContext, explained
from bide.pipeline.run.exports import PlannedExport
from bide.pipeline.run.phase import Export, PhaseEvent

LONGEST_PAUSE = 300.0  # seconds


async def monitor(context: RunContext, planned: PlannedExport, export: Export) -> Export:
    job = context.job(export, planned.kind)
    job.expected = planned.dataset.table.expected

    def changed(record: JobStatus) -> None:
        progress = record.progress
        percent = progress.percent if progress is not None else None
        context.notify(
            ExportUpdate(
                export, percent, progress.message if progress is not None else None, moved=False
            )
        )

    timeout = planned.dataset.table.timeout
    age = context.timing.wall() - (export.submitted_at or context.timing.wall())
    scope = asyncio.timeout(max(0.0, timeout - age) / context.timing.speed)
    try:
        async with scope:
            await _submissions_done(context)
            record = await until_ended(context.account, job, changed)
    except TimeoutError:
        if not scope.expired():
            raise
        message = (
            f"job {job.job_id} has not ended within {timeout:g} s. Raise `timeout`, or run again later"
        )
        raise ExportStopped("TIMED_OUT", message) from None
    except BideError as error:
        raise explained(error) from error
    if record.status in SUCCESSFUL:
        return await context.step(export, PhaseEvent.ENDED)
    await context.account.explain(job)
    record = job.latest or record
    verdict = record.error or ErrorInfo(record.status, f"job {job.job_id} ended as {record.status}")
    raise ExportRefused(verdict, lost=verdict.code in (NOT_FOUND, GONE))


async def _submissions_done(context: RunContext) -> None:
    await asyncio.sleep(0)  # lets exports that start at the same time begin their submission
    if not context.submitting:
        return
    with suppress(TimeoutError):
        async with asyncio.timeout(LONGEST_PAUSE / context.timing.speed):
            await context.submitted.wait()
