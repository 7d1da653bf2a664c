"""Client: AsyncClient for code without `await`, on one background event loop per client.

Each method runs the coroutine of the same name on the loop and waits for it. Callbacks (`on_change`) are called on the
loop's thread. A client that is garbage collected is closed first.
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from datetime import datetime
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from bide.client.apis import Api
from bide.client.client import AsyncClient
from bide.client.events import JobEvent, JobOutput
from bide.client.job import JobHandle, as_completed, bars
from bide.client.options import ClientOptions, OnChange, Timeout, WaitOptions
from bide.client.service import EventOptions, JobFilter, Jobs, ListOptions, Records
from bide.client.submission import JobSubmission, SubmitOptions
from bide.core.errors import BideError, ServiceError
from bide.core.pacing.advice import Advice
from bide.core.wire.http import JobStatus

T = TypeVar("T")


class Loop:
    """An event loop on a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="bide-client", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        if self._loop.is_closed():
            work.close()
            raise BideError("the client is closed")
        future = self.start(work)
        try:
            return future.result()
        except RuntimeError as error:
            # Ctrl-C within the future's lock: Python raises an error about the lock, with the interrupt as its context.
            if isinstance(error.__context__, KeyboardInterrupt):
                raise KeyboardInterrupt from None
            raise
        finally:
            future.cancel()  # after Ctrl-C the work must not continue

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def drain(self, source: AsyncIterator[T]) -> Iterator[T]:
        end = object()
        # A step that Ctrl-C ended must be cleaned up before the source is closed.
        one_at_a_time = asyncio.Lock()
        running: asyncio.Task[Any] | None = None

        async def step() -> Any:
            nonlocal running
            running = asyncio.current_task()
            async with one_at_a_time:
                return await anext(source, end)

        async def close() -> None:
            if running is not None:  # Ctrl-C may come before the step is awaited
                running.cancel()
            async with one_at_a_time:
                if hasattr(source, "aclose"):
                    await source.aclose()

        try:
            while (item := self.run(step())) is not end:
                yield item
        finally:
            self.run(close())

    def stop(self, last: Coroutine[Any, Any, None]) -> None:
        if self._loop.is_closed():
            last.close()
            return
        if threading.current_thread() is self._thread:
            # A callback dropped the last reference: the thread cannot wait for itself.
            task = self._loop.create_task(last)
            task.add_done_callback(lambda _: self._loop.stop())
            return
        self.run(last)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class BlockingJob:
    """A JobHandle without `await`."""

    def __init__(self, client: Client, handle: JobHandle) -> None:
        self._client = client  # a client that is garbage collected closes its connections
        self._loop = client._loop
        self._handle = handle

    def __repr__(self) -> str:
        return repr(self._handle)

    @property
    def id(self) -> str:
        return self._handle.id

    @property
    def latest(self) -> JobStatus | None:
        return self._handle.latest

    @property
    def requests(self) -> int:
        return self._handle.requests

    @property
    def replayed(self) -> bool:
        return self._handle.replayed

    @property
    def cancelling(self) -> bool:
        return self._handle.cancelling

    @property
    def files(self) -> tuple[str, ...]:
        return self._handle.files

    def status(self) -> JobStatus:
        return self._loop.run(self._handle.status())

    def stream(self, after: str | None = None) -> Iterator[JobOutput]:
        """Yield what the handler emits: see JobHandle.stream."""
        return self._loop.drain(self._handle.stream(after))

    def result(
        self,
        timeout: Timeout = "default",
        progress: Any = False,
        on_change: OnChange | None = None,
        *,
        cancel_on_timeout: bool = False,
    ) -> Any:
        """Wait until the job has ended and return its result: see JobHandle.result."""
        return self._loop.run(
            self._handle.result(timeout, progress, on_change, cancel_on_timeout=cancel_on_timeout)
        )

    def cancel(self) -> JobStatus:
        return self._loop.run(self._handle.cancel())

    def retry(self) -> JobStatus:
        return self._loop.run(self._handle.retry())

    def delete(self) -> None:
        self._loop.run(self._handle.delete())

    def download(self, name: str, path: str | os.PathLike[str]) -> Path:
        return self._loop.run(self._handle.download(name, path))


class Client:
    """One service or one account at another API, and one pool of connections to it: see AsyncClient."""

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        *,
        api: str | Api | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        self._client = AsyncClient(url, key, api=api, **options)
        self._loop = Loop()
        self._end = weakref.finalize(self, _close, self._loop, self._client)

    def __repr__(self) -> str:
        return repr(self._client).replace("AsyncClient", "Client", 1)

    @property
    def url(self) -> str:
        return self._client.url

    @property
    def api(self) -> str:
        return self._client.api

    @property
    def requests(self) -> int:
        return self._client.requests

    @property
    def refused(self) -> int:
        return self._client.refused

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._end()

    def submit(self, kind: str, input: Any = None, **options: Unpack[SubmitOptions]) -> BlockingJob:
        """Submit one job; when this returns, the service has it on disk. Options: see SubmitOptions."""
        return self._job(self._loop.run(self._client.submit(kind, input, **options)))

    def submit_many(
        self, jobs: Iterable[JobSubmission], *, idempotency_key: str | None = None
    ) -> list_of[BlockingJob | ServiceError]:
        """Submit many jobs in few requests. Return for each, in order, its handle or the error that rejected it."""
        outcomes = self._loop.run(self._client.submit_many(jobs, idempotency_key=idempotency_key))
        return [one if isinstance(one, ServiceError) else self._job(one) for one in outcomes]

    def job(self, job_id: str, kind: str = "") -> BlockingJob:
        return self._job(self._client.job(job_id, kind))

    def advice(self) -> Advice | None:
        """Whether the budget suffices for the waiting jobs; None if none wait, or their durations are unknown."""
        return self._client.advice()

    def resume(self, *jobs: BlockingJob) -> Sequence[BlockingJob]:
        """Add jobs to the ledger and return the jobs to wait for: see AsyncClient.resume."""
        given = {id(job._handle): job for job in jobs}
        handles = self._loop.run(self._client.resume(*(job._handle for job in given.values())))
        return [given.get(id(handle)) or self._job(handle) for handle in handles]

    def unacknowledged(self) -> Sequence[BlockingJob]:
        """The jobs in the ledger that `acknowledge` was not called for: see AsyncClient.unacknowledged."""
        return [self._job(handle) for handle in self._loop.run(self._client.unacknowledged())]

    def acknowledge(self, *jobs: BlockingJob) -> None:
        """Mark ended jobs as processed: `unacknowledged` and `resume` leave them out."""
        self._loop.run(self._client.acknowledge(*(job._handle for job in jobs)))

    def list(self, **options: Unpack[ListOptions]) -> Jobs:
        """Jobs that match all of the filters, newest first; `limit=None` returns all of them."""
        return self._loop.run(self._client.list(**options))

    def bulk(
        self,
        action: str,
        *,
        priority: int | None = None,
        confirm: int | None = None,
        idempotency_key: str | None = None,
        **filter: Unpack[JobFilter],
    ) -> BlockingJob:
        """Start a bulk action: `cancel`, `retry`, `delete`, or `priority` with a `priority`, on all jobs that match. Return
        the job that runs it; its result has the counts. `delete` needs `confirm`, the number from `bulk_count`.
        """
        starting = self._client.bulk(
            action,
            priority=priority,
            confirm=confirm,
            idempotency_key=idempotency_key,
            **filter,
        )
        return self._job(self._loop.run(starting))

    def bulk_count(
        self, action: str, *, priority: int | None = None, **filter: Unpack[JobFilter]
    ) -> int:
        """The number of jobs on which a bulk action would act now. Changes nothing."""
        return self._loop.run(self._client.bulk_count(action, priority=priority, **filter))

    def statuses(self, job_ids: Sequence[str]) -> dict[str, JobStatus]:
        return self._loop.run(self._client.statuses(job_ids))

    def log(
        self, job_id: str, *, level: str | None = None, follow: bool = False
    ) -> Iterator[dict[str, Any]]:
        """Yield the lines of a job's log: see AsyncClient.log."""
        return self._loop.drain(self._client.log(job_id, level=level, follow=follow))

    def events(
        self,
        job: str | BlockingJob | None = None,
        **options: Unpack[EventOptions],
    ) -> Iterator[JobEvent]:
        """Yield events of a job or of all jobs: see AsyncClient.events."""
        job_id = job.id if isinstance(job, BlockingJob) else job
        return self._loop.drain(self._client.events(job_id, **options))

    def cancel(self, job_id: str) -> JobStatus:
        return self._loop.run(self._client.cancel(job_id))

    def retry(self, job_id: str) -> JobStatus:
        return self._loop.run(self._client.retry(job_id))

    def delete(self, job_id: str) -> None:
        self._loop.run(self._client.delete(job_id))

    def queues(self) -> Records:
        return self._loop.run(self._client.queues())

    def kinds(self) -> Records:
        return self._loop.run(self._client.kinds())

    def workers(self) -> Records:
        return self._loop.run(self._client.workers())

    def pause_queue(self, queue: str) -> None:
        self._loop.run(self._client.pause_queue(queue))

    def resume_queue(self, queue: str) -> None:
        self._loop.run(self._client.resume_queue(queue))

    def webhooks(self) -> Records:
        return self._loop.run(self._client.webhooks())

    def create_webhook(
        self,
        url: str,
        *,
        events: Sequence[str] = (),
        kinds: Sequence[str] = (),
        labels: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        return self._loop.run(
            self._client.create_webhook(url, events=events, kinds=kinds, labels=labels)
        )

    def update_webhook(self, webhook_id: str, **fields: Any) -> dict[str, Any]:
        return self._loop.run(self._client.update_webhook(webhook_id, **fields))

    def test_webhook(self, webhook_id: str) -> dict[str, Any]:
        return self._loop.run(self._client.test_webhook(webhook_id))

    def replay_webhook(
        self,
        webhook_id: str,
        begin: datetime | str,
        end: datetime | str | None = None,
        *,
        only: str = "failed",
    ) -> dict[str, Any]:
        return self._loop.run(self._client.replay_webhook(webhook_id, begin, end, only=only))

    def delete_webhook(self, webhook_id: str) -> None:
        self._loop.run(self._client.delete_webhook(webhook_id))

    def keys(self) -> Records:
        return self._loop.run(self._client.keys())

    def create_key(
        self,
        *,
        name: str = "",
        scopes: Sequence[str] = (),
        tenant: str | None = None,
        expires_at: datetime | str | None = None,
    ) -> dict[str, Any]:
        return self._loop.run(
            self._client.create_key(name=name, scopes=scopes, tenant=tenant, expires_at=expires_at)
        )

    def rotate_key(self, key_id: str, *, overlap: float = 86400.0) -> dict[str, Any]:
        return self._loop.run(self._client.rotate_key(key_id, overlap=overlap))

    def revoke_key(self, key_id: str) -> None:
        self._loop.run(self._client.revoke_key(key_id))

    def audit(
        self,
        *,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        subject: str | None = None,
        tenant: str | None = None,
        operation: str | None = None,
        limit: int | None = 100,
    ) -> Records:
        """The mutating calls of all tenants: see AsyncClient.audit."""
        return self._loop.run(
            self._client.audit(
                since=since,
                until=until,
                subject=subject,
                tenant=tenant,
                operation=operation,
                limit=limit,
            )
        )

    def as_completed(
        self,
        jobs: Iterable[BlockingJob],
        **options: Unpack[WaitOptions],
    ) -> Iterator[BlockingJob]:
        """Yield each job when it ends: see AsyncClient.as_completed. Each client waits for its jobs on its own loop."""
        known = {id(job._handle): job for job in jobs}
        groups: dict[Loop, list_of[JobHandle]] = {}
        for job in known.values():
            groups.setdefault(job._loop, []).append(job._handle)
        handles = [job._handle for job in known.values()]
        with bars(handles, options.get("progress", False)) as show:
            options["progress"] = show  # one display for all loops
            waits = {loop: as_completed(group, **options) for loop, group in groups.items()}
            for handle in merged(waits):
                yield known[id(handle)]

    def wait_all(
        self,
        jobs: Iterable[BlockingJob],
        **options: Unpack[WaitOptions],
    ) -> Sequence[BlockingJob]:
        """Wait until every job has ended; return the jobs in the given order."""
        given = list_of(jobs)
        for _ in self.as_completed(given, **options):
            pass
        return given

    def _job(self, handle: JobHandle) -> BlockingJob:
        return BlockingJob(self, handle)


list_of = list  # Client.list hides the builtin in its class


def merged(waits: Mapping[Loop, AsyncIterator[JobHandle]]) -> Iterator[JobHandle]:
    """The jobs of several loops, in the order in which they end."""
    if len(waits) <= 1:
        for loop, wait in waits.items():
            yield from loop.drain(wait)
        return
    ended: SimpleQueue[JobHandle | BaseException | None] = SimpleQueue()

    async def forward(wait: AsyncIterator[JobHandle]) -> None:
        try:
            async for handle in wait:
                ended.put(handle)
            ended.put(None)
        except Exception as error:
            ended.put(error)

    futures = [loop.start(forward(wait)) for loop, wait in waits.items()]
    left = len(futures)
    try:
        while left:
            found = ended.get()
            if isinstance(found, BaseException):
                raise found
            if found is None:
                left -= 1
            else:
                yield found
    finally:
        for future in futures:
            future.cancel()


def _close(loop: Loop, client: AsyncClient) -> None:
    loop.stop(client.close())
