"""One job of an account, in the words that a handle uses: what Watch is for a job of a bide service."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, NoReturn

from bide.client.account import Account
from bide.client.tracked import Tracked
from bide.client.waiting import OnChange
from bide.core.errors import BideError
from bide.core.wire import JobStatus


class Followed:
    def __init__(self, account: Account, job: Tracked) -> None:
        self.account = account
        self.job = job

    @property
    def job_id(self) -> str:
        return self.job.job_id

    @property
    def latest(self) -> JobStatus | None:
        return self.job.record()

    @property
    def requests(self) -> int:
        return self.job.requests

    @property
    def cancelling(self) -> bool:
        return self.job.cancelling

    @property
    def files(self) -> tuple[str, ...]:
        return self.account.files(self.job)

    async def look(self) -> JobStatus:
        if self.job.seen is None or not self.job.seen.terminal:
            await self.account.look(self.job)
        return self._known()

    async def until_end(self, on_change: OnChange | None = None) -> JobStatus:
        if not self.job.over:
            ear = _Ear(on_change)
            await self.account.keep([self.job])
            self.account.watch(self.job, ear)
            try:
                await ear.heard
            finally:
                self.account.unwatch(self.job, ear)
        error, self.job.error = self.job.error, None  # told; another wait asks again
        if error is not None:
            raise error
        return self._known()

    async def result(self) -> Any:
        return await self.account.result(self.job)

    async def cancel(self) -> JobStatus:
        await self.account.cancel(self.job)
        return await self.look()

    async def download(self, name: str, path: Path) -> Path:
        if self.job.seen is None:
            await self.look()
        return await self.account.download(self.job, name, path)

    async def retry(self) -> JobStatus:
        self._cannot("run a job again")

    async def delete(self) -> None:
        self._cannot("delete a job")

    def _cannot(self, what: str) -> NoReturn:
        raise BideError(f"{self.account.api.name} has no way to {what}: submit another one")

    def _known(self) -> JobStatus:
        record = self.job.record()
        assert record is not None
        return record


class _Ear:
    """Hears of one job."""

    def __init__(self, on_change: OnChange | None) -> None:
        self.heard: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._on_change = on_change

    def changed(self, job: Tracked) -> None:
        record = job.record()
        if self._on_change is None or record is None:
            return
        try:
            self._on_change(record)
        except Exception as error:  # a fault of who waits is theirs, and not the poller's
            if not self.heard.done():
                self.heard.set_exception(error)

    def ended(self, job: Tracked) -> None:
        self.changed(job)
        if not self.heard.done():
            self.heard.set_result(None)
