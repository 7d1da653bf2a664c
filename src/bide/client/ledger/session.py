"""The ledger of an account: stores the state of its jobs, and restores it in another process.

A restored job that has ended is not polled again.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import cast

import msgspec

from bide.client.apis import Api, Ref, Seen
from bide.client.apis.bide import ENDINGS
from bide.client.apis.values import without_credentials
from bide.client.job_state import JobState
from bide.client.ledger import ApiAddress, Ledger, LedgerRow
from bide.client.ledger.sqlite import SqliteLedger
from bide.core.clock import read_instant


class LedgerSession:
    """The rows of one API. A ledger that is given by its path is opened and closed here, any other by the caller. `wall`
    returns epoch seconds.
    """

    def __init__(
        self, ledger: str | os.PathLike[str] | Ledger, api: Api, wall: Callable[[], float]
    ) -> None:
        self._own = SqliteLedger(Path(ledger)) if isinstance(ledger, str | os.PathLike) else None
        self.ledger: Ledger = self._own or cast(Ledger, ledger)
        self._opening = asyncio.Lock()
        self._open = self._own is None
        self._api = api
        self._wall = wall

    @cached_property
    def _place(self) -> ApiAddress:
        return ApiAddress(self._api.name, without_credentials(self._api.url or ""))

    async def open(self) -> None:
        """`add`, `unacknowledged` and `acknowledge` do this, too."""
        async with self._opening:
            if self._own is not None and not self._open:
                await self._own.open()
                self._open = True

    async def close(self) -> None:
        if self._own is not None:
            await self._own.close()

    async def add(self, jobs: Sequence[JobState]) -> list[LedgerRow]:
        """Store jobs, and restore those that the ledger knows."""
        await self.open()
        known = await self.ledger.add([self._row(job) for job in jobs])
        for job, row in zip(jobs, known, strict=True):
            self._restore(job, row)
        return known

    async def unacknowledged(self) -> list[JobState]:
        """The jobs of this API, live or ended, whose outcome is not acknowledged."""
        await self.open()
        jobs = []
        for row in await self.ledger.rows(self._place):
            if not row.acknowledged:
                ref = row.ref or self._api.references.ref(row.job_id)
                job = JobState(ref, row.kind, row.submitted_at, row.job_id)
                self._restore(job, row)
                jobs.append(job)
        return jobs

    def noted(self, job: JobState) -> None:
        self.ledger.note(self._row(job))

    async def ended(self, job: JobState) -> None:
        await self.ledger.end(self._row(job))

    async def acknowledge(self, jobs: Sequence[JobState]) -> None:
        await self.open()
        await self.ledger.acknowledge([(*self._place, job.job_id) for job in jobs])

    def _row(self, job: JobState) -> LedgerRow:
        api, base = self._place
        row = LedgerRow(
            api=api,
            base=base,
            job_id=job.job_id,
            ref=None if job.ref == Ref(job.job_id) else job.ref,
            kind=job.kind,
            size=job.size,
            submitted_at=job.submitted_at,
            since=self._wall(),
            asked_at=None if job.seen is None else self._wall(),
            etag=job.etag,
            requests=job.requests,
        )
        status, seen = job.latest, job.seen
        if status is not None and seen is not None:
            row.status, row.progress, row.error = status.status, status.progress, status.error
            if status.status.terminal:
                row.finished_at = read_instant(status.finished_at) if status.finished_at else None
                # The outputs are stored, because another process may report the end.
                row.result_url, row.files = seen.result_url, seen.files
                if seen.result is not None:
                    row.result = msgspec.Raw(msgspec.json.encode(seen.result))
        return row

    def _restore(self, job: JobState, row: LedgerRow) -> None:
        job.stored, job.acknowledged = True, row.acknowledged
        job.requests = max(job.requests, row.requests)
        job.size = job.size or row.size
        job.kind = job.kind or row.kind
        if row.submitted_at is not None:
            job.submitted_at = row.submitted_at
        if row.status is None or (job.seen is not None and not row.ended):
            return  # an answer to this process is newer
        if job.seen is not None and job.seen.terminal:
            return  # and contains more
        job.asked_at, job.since = row.asked_at, row.since
        job.etag = job.etag or row.etag
        progress = row.progress
        counts = None
        if progress is not None and progress.done is not None:
            counts = progress.done, progress.total
        result = None if row.result is None else msgspec.json.decode(row.result)
        percent = progress.percent if progress is not None else None
        job.seen = Seen(
            state=ENDINGS.get(row.status, "live"),
            word=row.status,
            progress=None if percent is None else percent / 100.0,
            counts=counts,
            message=progress.message if progress is not None else None,
            finished_at=row.finished_at,
            error=row.error,
            result=result,
            result_url=row.result_url,
            files=row.files,
        )
