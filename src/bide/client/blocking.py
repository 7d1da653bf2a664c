"""Client: AsyncClient for code without `await`, on one background loop.

Nothing is done twice here: each method runs the coroutine of the same name on the loop and waits for it. Callbacks
(`on_change`) are called on the loop's thread. A client that was not closed is closed when it is let go.
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from bide.client.apis import Api
from bide.client.client import PAGE, AsyncClient, Jobs, Records
from bide.client.job import JobHandle
from bide.client.options import ClientOptions, WaitOptions
from bide.client.submission import Submission, SubmitOptions
from bide.client.waiting import OnChange
from bide.core.advice import Advice
from bide.core.errors import BideError, ServiceError
from bide.core.wire import JobStatus

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
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except RuntimeError as error:
            # Ctrl-C within the future's lock: Python reports the lock, and the interrupt only as the reason.
            if isinstance(error.__context__, KeyboardInterrupt):
                raise KeyboardInterrupt from None
            raise
        finally:
            future.cancel()  # Ctrl-C while waiting: the work must not go on unseen

    def drain(self, source: AsyncIterator[T]) -> Iterator[T]:
        end = object()
        one_at_a_time = asyncio.Lock()  # a step that Ctrl-C ended tidies up before the source is closed
        running: asyncio.Task[Any] | None = None

        async def step() -> Any:
            nonlocal running
            running = asyncio.current_task()
            async with one_at_a_time:
                return await anext(source, end)

        async def close() -> None:
            if running is not None:  # Ctrl-C may have come before anybody waited for it
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
        if (
            threading.current_thread() is self._thread
        ):  # let go by a callback: nobody is left to wait for
            task = self._loop.create_task(last)
            task.add_done_callback(lambda _: self._loop.stop())
            return
        self.run(last)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Job:
    """A JobHandle without `await`."""

    def __init__(self, client: Client, handle: JobHandle) -> None:
        self._client = client  # kept, for a client that is let go closes its connections
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
    def cancelling(self) -> bool:
        return self._handle.cancelling

    @property
    def files(self) -> tuple[str, ...]:
        return self._handle.files

    def status(self) -> JobStatus:
        return self._loop.run(self._handle.status())

    def result(
        self,
        timeout: float | None = None,
        progress: Any = False,
        on_change: OnChange | None = None,
        *,
        cancel_on_timeout: bool = False,
    ) -> Any:
        """Waits until the job has ended and returns its result: see JobHandle.result."""
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

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._end()

    def submit(self, kind: str, input: Any = None, **options: Unpack[SubmitOptions]) -> Job:
        """Sends one job; once this returns, the service has it on disk. Options: see SubmitOptions."""
        return self._job(self._loop.run(self._client.submit(kind, input, **options)))

    def submit_many(
        self, jobs: Iterable[Submission], *, idempotency_key: str | None = None
    ) -> list_of[Job | ServiceError]:
        """Sends many jobs in few requests: for each, in order, its handle or why it was refused."""
        outcomes = self._loop.run(self._client.submit_many(jobs, idempotency_key=idempotency_key))
        return [one if isinstance(one, ServiceError) else self._job(one) for one in outcomes]

    def job(self, job_id: str, kind: str = "") -> Job:
        return self._job(self._client.job(job_id, kind))

    def advice(self) -> Advice | None:
        """Whether the budget carries what is waited for; None when nothing is, or nothing is known of it."""
        return self._client.advice()

    def untold(self) -> Sequence[Job]:
        """What the ledger has of this API and `told` was not called for: see AsyncClient.untold."""
        return [self._job(handle) for handle in self._loop.run(self._client.untold())]

    def told(self, *jobs: Job) -> None:
        """These have ended and what was to be done about it is done: `untold` leaves them out from now on."""
        self._loop.run(self._client.told(*(job._handle for job in jobs)))

    def list(
        self,
        *,
        status: str | Sequence[str] = (),
        kind: str | None = None,
        queue: str | None = None,
        label: tuple[str, str] | None = None,
        limit: int | None = PAGE,
    ) -> Jobs:
        """Jobs that fit all of what is given, newest first; `limit=None` for every one."""
        return self._loop.run(
            self._client.list(status=status, kind=kind, queue=queue, label=label, limit=limit)
        )

    def statuses(self, job_ids: Sequence[str]) -> dict[str, JobStatus]:
        return self._loop.run(self._client.statuses(job_ids))

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

    def pause(self, queue: str) -> None:
        self._loop.run(self._client.pause(queue))

    def resume(self, queue: str) -> None:
        self._loop.run(self._client.resume(queue))

    def as_completed(
        self,
        jobs: Iterable[Job],
        **options: Unpack[WaitOptions],
    ) -> Iterator[Job]:
        """Each job as it ends: see AsyncClient.as_completed."""
        known = {id(job._handle): job for job in jobs}
        handles = [job._handle for job in known.values()]
        for handle in self._loop.drain(self._client.as_completed(handles, **options)):
            yield known[id(handle)]

    def wait_all(
        self,
        jobs: Iterable[Job],
        **options: Unpack[WaitOptions],
    ) -> Sequence[Job]:
        """Until every job has ended; the jobs in the order they were given."""
        given = list_of(jobs)
        for _ in self.as_completed(given, **options):
            pass
        return given

    def _job(self, handle: JobHandle) -> Job:
        return Job(self, handle)


list_of = list  # Client.list hides the builtin inside its class


def _close(loop: Loop, client: AsyncClient) -> None:
    loop.stop(client.close())
