"""JobHandle: one job, at a bide service or at another API, in the same words."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bide.client.apis import Ref
from bide.client.followed import Followed
from bide.client.options import WaitOptions
from bide.client.tracked import Tracked
from bide.client.waiting import OnChange, Watch
from bide.core.errors import BideError, JobFailed, ServiceError, WaitTimeout
from bide.core.record import SUCCESSFUL
from bide.core.wire import JobStatus

if TYPE_CHECKING:
    from bide.client.client import AsyncClient

CANCEL_WITHIN = 10.0  # seconds for all that are cancelled when a wait times out


class JobHandle:
    """One job. `latest` is what was last heard of it, None before the first answer."""

    def __init__(self, client: AsyncClient, watch: Watch | Followed) -> None:
        self._client = client
        self._watch = watch
        self._refusal: ServiceError | None = None  # what ended the wait for it, if not its end

    def __repr__(self) -> str:
        status = self.latest.status if self.latest is not None else "not asked yet"
        return f"<job {self.id} {status}>"

    @property
    def id(self) -> str:
        return self._watch.job_id

    @property
    def ref(self) -> Ref:
        """How the API is asked about it."""
        return self._tracked().ref

    @property
    def latest(self) -> JobStatus | None:
        return self._watch.latest

    @property
    def requests(self) -> int:
        """How many requests this job has taken."""
        return self._watch.requests

    @property
    def _place(self) -> tuple[int, str]:
        """Different for jobs of two clients, which may have the same id."""
        return id(self._client), self.id

    @property
    def files(self) -> tuple[str, ...]:
        """What `download` can fetch: its files, and `result` where another API has that at an address."""
        return self._watch.files

    async def status(self) -> JobStatus:
        """The job as it is now: one request, cheap when nothing has changed."""
        return await self._watch.look()

    async def result(
        self,
        timeout: float | None = None,
        progress: Any = False,
        on_change: OnChange | None = None,
        *,
        cancel_on_timeout: bool = False,
    ) -> Any:
        """Waits until the job has ended and returns its result.

        JobFailed when it failed or was cancelled, WaitTimeout when `timeout` seconds were not enough; the job goes on
        then, unless `cancel_on_timeout`. A partial success returns its result; what went wrong is in `latest.error`.
        `progress` shows a bar in a terminal, or moves the tqdm bar that is given.
        """
        if timeout is None:
            timeout = self._client._account.timeout
        until = None if timeout is None else asyncio.get_running_loop().time() + timeout
        if not self._over() and self._refusal is None:
            options = WaitOptions(
                timeout=timeout,
                progress=progress,
                on_change=on_change,
                cancel_on_timeout=cancel_on_timeout,
            )
            await self._client.wait_all([self], **options)
        scope = asyncio.timeout_at(until)
        try:
            async with scope:
                return await self._outcome()
        except TimeoutError:
            if not scope.expired() or timeout is None:
                raise
            raise WaitTimeout(self.id, timeout) from None

    async def _outcome(self) -> Any:
        """Of a job that has been waited for; what kept it from ending is raised."""
        if self._refusal is not None:
            refusal, self._refusal = self._refusal, None
            raise refusal
        job = await self._watch.until_end()
        if job.status in SUCCESSFUL:
            return await self._watch.result()
        raise JobFailed(self.id, job.status, job.error, job)

    async def cancel(self) -> JobStatus:
        """Cancels the job. One of another API that has ended is left as it is: `cancelling` says whether it was sent."""
        return await self._watch.cancel()

    @property
    def cancelling(self) -> bool:
        """Whether the service has taken a cancel that this handle sent."""
        return self._watch.cancelling

    async def retry(self) -> JobStatus:
        """Runs the job again; steps that had finished are kept."""
        return await self._watch.retry()

    async def delete(self) -> None:
        await self._watch.delete()

    async def download(self, name: str, path: str | os.PathLike[str]) -> Path:
        """Streams one of the job's files to `path`, or into that folder; where it is now."""
        return await self._watch.download(name, Path(path))

    def _over(self) -> bool:
        return self.latest is not None and self.latest.status.terminal

    def _tracked(self) -> Tracked:
        if isinstance(self._watch, Followed):
            return self._watch.job
        return Tracked(Ref(self.id))

    def _hear(self, record: JobStatus, job: Tracked) -> None:
        """What a poller has heard of it."""
        if isinstance(self._watch, Watch):
            self._watch.requests = max(self._watch.requests, job.requests)
            if record is not self._watch.latest:
                self._watch.know(record)


async def cancel_all(handles: Sequence[JobHandle]) -> None:
    """What can be cancelled; what cannot has ended meanwhile, or never will be. A dead service holds up nobody."""

    async def cancel(handle: JobHandle) -> None:
        with suppress(BideError):
            await handle.cancel()

    with suppress(TimeoutError):
        async with asyncio.timeout(CANCEL_WITHIN):
            await asyncio.gather(*map(cancel, handles))
