"""Many jobs waited for at once, and handed out as they end; no task of its own for each."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from bide.client.account import Account
from bide.client.tracked import Tracked
from bide.client.waiting import OnChange
from bide.core.errors import ServiceError
from bide.core.wire import JobStatus

if TYPE_CHECKING:
    from bide.client.job import JobHandle
    from bide.client.progress import Show


class Gathering:
    def __init__(self, on_change: OnChange | None, show: Show | None = None) -> None:
        self._on_change = on_change
        self._show = show
        self._ended: deque[JobHandle] = deque()
        self._news = asyncio.Event()
        self._followed: dict[Tracked, tuple[Account, JobHandle]] = {}
        self._tasks: dict[asyncio.Task[None], JobHandle] = {}
        self._fault: BaseException | None = None  # of a callback: it is raised to who waits

    @property
    def left(self) -> list[str]:
        """Ids of those that have not ended, those that were not handed out included."""
        handles = [handle for _, handle in self._followed.values()]
        return [handle.id for handle in (*handles, *self._tasks.values(), *self._ended)]

    def hold(self, handles: Sequence[JobHandle]) -> None:
        """By one long poll each: for few."""
        for handle in handles:
            watched = self._show is not None or self._on_change is not None
            tell = partial(self._tell, handle) if watched else None
            task = asyncio.create_task(_end(handle, tell))
            self._tasks[task] = handle
            task.add_done_callback(self._held)

    async def follow(
        self, account: Account, jobs: Sequence[tuple[Tracked, JobHandle]], deadline: float | None
    ) -> None:
        """By an account's poller: for any number."""
        await account.keep([job for job, _ in jobs])
        for job, handle in jobs:
            self._followed[job] = (account, handle)
            if job.seen is not None:
                self.changed(job)
        for job, _ in jobs:
            account.watch(job, self, deadline)

    async def next(self, timeout: float | None) -> JobHandle | None:
        """The next that has ended; None when time runs out."""
        while not self._ended or self._fault is not None:
            if self._fault is not None:
                raise self._fault
            self._news.clear()
            try:
                async with asyncio.timeout(timeout):
                    await self._news.wait()
            except TimeoutError:
                return None
        return self._ended.popleft()

    async def close(self) -> None:
        for job, (account, _) in self._followed.items():
            account.unwatch(job, self)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def changed(self, job: Tracked) -> None:
        """Listener: it goes on."""
        handle = self._followed[job][1]
        record = job.record()
        if record is not None:
            handle._hear(record, job)
            if self._fault is None:
                try:
                    self._tell(handle, record)
                except Exception as error:
                    self._fail(error)

    def _tell(self, handle: JobHandle, record: JobStatus) -> None:
        if self._show is not None:
            self._show(record, handle._place)
        if self._on_change is not None:
            self._on_change(record)

    def ended(self, job: Tracked) -> None:
        """Listener: it is over."""
        self.changed(job)
        _, handle = self._followed.pop(job)
        if isinstance(job.error, ServiceError) and handle._tracked() is not job:
            handle._refusal = job.error  # this job is forgotten, and the handle has to know
        self._ended.append(handle)
        self._news.set()

    def _held(self, task: asyncio.Task[None]) -> None:
        handle = self._tasks.pop(task, None)
        if handle is not None and not task.cancelled():
            error = task.exception()
            if error is not None:
                self._fail(error)
            self._ended.append(handle)
            self._news.set()

    def _fail(self, error: BaseException) -> None:
        self._fault = self._fault or error
        self._news.set()


async def _end(handle: JobHandle, on_change: OnChange | None) -> None:
    """A refusal (an unknown job, a wrong key) ends the wait for this job alone."""
    try:
        await handle._watch.until_end(on_change)
    except ServiceError as error:
        handle._refusal = error
