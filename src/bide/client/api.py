"""AsyncClient and JobHandle: submit jobs, wait for them, see what there is.

    async with AsyncClient() as client:
        job = await client.submit("transcode", {"height": 480})
        print(await job.result(timeout=600, progress=True))

A failed job raises JobFailed with its structured error; a failed poll never does.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import TracebackType
from typing import Any, Self, Unpack

import msgspec

from bide.client import DEFAULT_URL
from bide.client.results import download
from bide.client.submission import (
    Submission,
    SubmitOptions,
    batches,
    check_names,
    key_header,
    render_submission,
    submission_headers,
)
from bide.client.transport import Answer, Params, Transport, unreadable, without_credentials
from bide.client.waiting import Crowd, OnChange, Pace, Watch
from bide.core.errors import JobFailed, ServiceError, WaitTimeout
from bide.core.record import SUCCESSFUL, Status
from bide.core.wire import WireJob, encode, quote, read_job

PAGE = 100

Records = list[dict[str, Any]]
Jobs = list[WireJob]


class JobHandle:
    """One job of a service. `latest` is what was last heard of it, None before the first answer."""

    def __init__(self, client: AsyncClient, job_id: str) -> None:
        self._client = client
        self._watch = Watch(client._transport, job_id, client._pace)

    def __repr__(self) -> str:
        status = self.latest.status if self.latest is not None else "not asked yet"
        return f"<job {self.id} {status}>"

    @property
    def id(self) -> str:
        return self._watch.job_id

    @property
    def latest(self) -> WireJob | None:
        return self._watch.latest

    @property
    def requests(self) -> int:
        """How many requests this job has taken."""
        return self._watch.requests

    async def status(self) -> WireJob:
        """The job as it is now: one request, cheap when nothing has changed."""
        return await self._watch.look()

    async def result(
        self,
        timeout: float | None = None,
        progress: bool = False,
        on_change: OnChange | None = None,
    ) -> Any:
        """Waits until the job has ended and returns its result.

        JobFailed when it failed or was cancelled, WaitTimeout when `timeout` seconds were not enough. A partial
        success returns its result; what went wrong is in `latest.error`. `progress` shows a bar in a terminal.
        """
        scope = asyncio.timeout(timeout)
        bars = _bars([self], progress)
        try:
            async with scope:
                with bars as show:
                    job = await self._watch.until_end(_both(show, on_change))
                if job.status in SUCCESSFUL:
                    return await self._watch.result()
        except TimeoutError:
            if scope.expired() and timeout is not None:
                raise WaitTimeout(self.id, timeout) from None
            raise
        raise JobFailed(self.id, job.status, job.error, job)

    async def cancel(self) -> WireJob:
        return self._watch.take(await self._watch.send("POST", f"{self._watch.path}/cancel"))

    async def retry(self) -> WireJob:
        """Runs the job again; steps that had finished are kept."""
        return self._watch.take(await self._watch.send("POST", f"{self._watch.path}/retry"))

    async def delete(self) -> None:
        await self._watch.send("DELETE", self._watch.path)

    async def download(self, name: str, path: str | os.PathLike[str]) -> Path:
        """Streams one of the job's files to `path`, or into that folder; where it is now."""
        if self.latest is None:
            await self.status()
        return await download(self._client._transport, self._watch, name, Path(path))


class AsyncClient:
    """One service and one pool of connections to it. `url` is BIDE_URL by default, else this machine's service."""

    def __init__(
        self, url: str | None = None, key: str | None = None, *, pace: Pace | None = None
    ) -> None:
        self._transport = Transport(url or os.environ.get("BIDE_URL") or DEFAULT_URL, key)
        self._pace = pace or Pace()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({without_credentials(self.url)!r})"

    @property
    def url(self) -> str:
        return self._transport.url

    @property
    def requests(self) -> int:
        """How many requests this client has sent."""
        return self._transport.requests

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._transport.close()

    async def submit(self, kind: str, input: Any = None, **options: Unpack[SubmitOptions]) -> JobHandle:
        """Sends one job; once this returns, the service has it on disk. Options: see SubmitOptions."""
        check_names("submit", options, SubmitOptions)
        body = render_submission(kind, input, options)
        headers = submission_headers(options)
        hold = options.get("wait") or 0.0
        answer = await self._transport.send("POST", "/jobs", json=body, headers=headers, hold=hold)
        return self._handle(answer.read(WireJob), answer.headers.get("ETag"))

    async def submit_many(
        self, jobs: Iterable[Submission], *, idempotency_key: str | None = None
    ) -> list[JobHandle | ServiceError]:
        """Sends many jobs in few requests: for each, in order, its handle or why it was refused.

        With an idempotency key the same list can be sent again: jobs that were accepted are found, not repeated.
        """
        outcomes: list[JobHandle | ServiceError] = []
        for batch in batches(jobs):
            done = len(outcomes)
            key = f"{idempotency_key}/{done}" if idempotency_key and done else idempotency_key
            answer = await self._transport.send(
                "POST", "/jobs/batch", json={"jobs": batch}, headers=key_header(key)
            )
            outcomes.extend(self._outcome(entry) for entry in _records(answer, "jobs"))
        return outcomes

    def job(self, job_id: str) -> JobHandle:
        """A handle on a job whose id is known; asks nothing yet."""
        return JobHandle(self, job_id)

    async def list(
        self,
        *,
        status: str | Sequence[str] = (),
        kind: str | None = None,
        queue: str | None = None,
        label: tuple[str, str] | None = None,
        limit: int | None = PAGE,
    ) -> Jobs:
        """Jobs that fit all of what is given, newest first; `limit=None` for every one."""
        statuses = [status] if isinstance(status, str) else status
        given = {"kind": kind, "queue": queue, "label": ":".join(label) if label else None}
        params = [
            *(("status", Status(one).value) for one in statuses),
            *((name, value) for name, value in given.items() if value is not None),
        ]
        return await self._pages(params, limit)

    async def _pages(self, params: Params, limit: int | None) -> Jobs:
        found: Jobs = []
        cursor: str | None = None
        while limit is None or len(found) < limit:
            here = [("limit", str(PAGE if limit is None else min(PAGE, limit - len(found))))]
            if cursor:
                here.append(("cursor", cursor))
            answer = await self._transport.send("GET", "/jobs", params=[*params, *here])
            page = answer.read(dict[str, Any])
            found.extend(_jobs(page.get("jobs", []), answer))
            cursor = page.get("next")
            if not cursor:
                break
        return found

    async def statuses(self, job_ids: Sequence[str]) -> dict[str, WireJob]:
        """Many jobs at once, a hundred a request; those that the service does not know are left out."""
        found: dict[str, WireJob] = {}
        for start in range(0, len(job_ids), PAGE):
            params = [("id", job_id) for job_id in job_ids[start : start + PAGE]]
            answer = await self._transport.send("GET", "/jobs", params=params)
            found.update((job.job_id, job) for job in _jobs(_records(answer, "jobs"), answer))
        return found

    async def cancel(self, job_id: str) -> WireJob:
        return await self.job(job_id).cancel()

    async def retry(self, job_id: str) -> WireJob:
        return await self.job(job_id).retry()

    async def delete(self, job_id: str) -> None:
        await self.job(job_id).delete()

    async def queues(self) -> Records:
        return _records(await self._transport.send("GET", "/queues"), "queues")

    async def kinds(self) -> Records:
        return _records(await self._transport.send("GET", "/kinds"), "kinds")

    async def workers(self) -> Records:
        return _records(await self._transport.send("GET", "/workers"), "workers")

    async def pause(self, queue: str) -> None:
        """Jobs of the queue that run go on; no other starts until `resume`."""
        await self._transport.send("POST", f"/queues/{quote(queue)}/pause")

    async def resume(self, queue: str) -> None:
        await self._transport.send("POST", f"/queues/{quote(queue)}/resume")

    async def as_completed(
        self,
        jobs: Iterable[JobHandle],
        *,
        timeout: float | None = None,
        progress: bool = False,
        on_change: OnChange | None = None,
    ) -> AsyncIterator[JobHandle]:
        """Each job as it ends; `result()` of it then needs no more waiting. WaitTimeout when time runs out.

        A job that the service does not know comes out too: its `result()` says so.
        """
        handles = list_of(jobs)
        crowd = Crowd(len(handles))
        with _bars(handles, progress) as show:
            heard = _both(show, on_change)
            tasks = {asyncio.create_task(_end(handle, heard, crowd)): handle for handle in handles}
            pending = set(tasks)
            until = None if timeout is None else asyncio.get_running_loop().time() + timeout
            try:
                while pending:
                    left = None if until is None else max(0.0, until - asyncio.get_running_loop().time())
                    done, pending = await asyncio.wait(
                        pending, timeout=left, return_when=asyncio.FIRST_COMPLETED
                    )
                    for task in done:
                        task.result()
                        yield tasks[task]
                    if not done and timeout is not None:
                        raise WaitTimeout(_some([tasks[task].id for task in pending]), timeout)
            finally:
                for task in pending:
                    task.cancel()
                await asyncio.gather(*pending, return_exceptions=True)

    async def wait_all(
        self,
        jobs: Iterable[JobHandle],
        *,
        timeout: float | None = None,
        progress: bool = False,
        on_change: OnChange | None = None,
    ) -> Sequence[JobHandle]:
        """Until every job has ended; the handles in the order they were given, each with its `latest`."""
        handles = list_of(jobs)
        async for _ in self.as_completed(
            handles, timeout=timeout, progress=progress, on_change=on_change
        ):
            pass
        return handles

    def _handle(self, job: WireJob, etag: str | None = None) -> JobHandle:
        handle = JobHandle(self, job.job_id)
        handle._watch.know(job, etag)
        return handle

    def _outcome(self, entry: dict[str, Any]) -> JobHandle | ServiceError:
        if "jobId" in entry:
            return self._handle(read_job(encode(entry)))
        return ServiceError(int(entry.get("status", 500)), entry)


list_of = list  # AsyncClient.list hides the builtin inside its class


async def _end(handle: JobHandle, on_change: OnChange | None, crowd: Crowd) -> None:
    """A refusal (an unknown job, a wrong key) ends the wait for this job alone."""
    try:
        await handle._watch.until_end(on_change, crowd)
    except ServiceError:
        return


def _bars(handles: Sequence[JobHandle], wanted: bool) -> AbstractContextManager[OnChange | None]:
    if not wanted:
        return nullcontext()
    from bide.client.bars import bars

    return bars([handle.id for handle in handles])


def _some(ids: Sequence[str], most: int = 5) -> str:
    more = f" and {len(ids) - most} more" if len(ids) > most else ""
    return ", ".join(ids[:most]) + more


def _both(first: OnChange | None, second: OnChange | None) -> OnChange | None:
    if first is None or second is None:
        return first or second

    def tell(job: WireJob) -> None:
        first(job)
        second(job)

    return tell


def _records(answer: Answer, name: str) -> Records:
    records: Records = answer.read(dict[str, Any]).get(name, [])
    return records


def _jobs(records: Any, answer: Answer) -> Jobs:
    try:
        return msgspec.convert(records, Jobs)
    except msgspec.ValidationError as error:
        raise unreadable(
            answer.status, f"the answer is not a list of jobs: {error}", answer.url
        ) from None
