"""Monitor: an export's job is waited for by the account's one scheduler, whatever it takes, until its deadline.

While others are on their way to the API it is not asked about: every request for a job that has hardly begun would hold up a
job that has not. But not for ever, for what is made may expire.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from bide.client.apis import GONE, NOT_FOUND
from bide.client.followed import Followed
from bide.core.errors import BideError, ErrorInfo
from bide.core.record import SUCCESSFUL
from bide.core.wire import WireJob
from bide.pipeline.run.context import ExportRefused, ExportStopped, ExportUpdate, RunContext, explained
from bide.pipeline.run.exports import PlannedExport
from bide.pipeline.run.phase import Export, PhaseEvent

LONGEST_HOLD = 300.0  # seconds


async def monitor(desk: RunContext, wanted: PlannedExport, export: Export) -> Export:
    job = desk.job(export, wanted.kind)

    def changed(record: WireJob) -> None:
        progress = record.progress
        percent = progress.percent if progress is not None else None
        desk.tell(
            ExportUpdate(
                export, percent, progress.message if progress is not None else None, moved=False
            )
        )

    timeout = wanted.dataset.table.timeout
    age = desk.timing.wall() - (export.submitted_at or desk.timing.wall())
    scope = asyncio.timeout(max(0.0, timeout - age) / desk.timing.speed)
    try:
        async with scope:
            await _after_the_others(desk)
            record = await Followed(desk.account, job).until_end(changed)
    except TimeoutError:
        if not scope.expired():
            raise
        message = (
            f"job {job.job_id} has not ended within {timeout:g} s; raise `timeout`, or run again later"
        )
        raise ExportStopped("TIMED_OUT", message) from None
    except BideError as error:
        raise explained(error) from error
    if record.status in SUCCESSFUL:
        return await desk.step(export, PhaseEvent.ENDED)
    verdict = record.error or ErrorInfo(record.status, f"job {job.job_id} ended as {record.status}")
    raise ExportRefused(verdict, lost=verdict.code in (NOT_FOUND, GONE))


async def _after_the_others(desk: RunContext) -> None:
    await asyncio.sleep(0)  # those that begin together with this one set out first
    if not desk.submitting:
        return
    with suppress(TimeoutError):
        async with asyncio.timeout(LONGEST_HOLD / desk.timing.speed):
            await desk.submitted.wait()
