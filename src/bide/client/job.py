"""JobHandle: one job at a bide service or at another API, and waiting for many of them.

A failed job raises JobFailed with its structured error; a failed poll never does. Each job is polled by the account
that it belongs to.
"""

from __future__ import annotations

import asyncio
import math
import os
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import AbstractContextManager, aclosing, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bide.client.account import Account
from bide.client.apis import Ref
from bide.client.events import JobOutput, read_output
from bide.client.job_state import JobState
from bide.client.options import OnChange, Timeout
from bide.core.errors import BideError, JobFailed, WaitTimeout
from bide.core.jobs.record import SUCCESSFUL
from bide.core.wire.http import JobStatus

if TYPE_CHECKING:
    from bide.client.progress import Show

CANCEL_WITHIN = 10.0  # seconds for all jobs that are cancelled at a timeout


class JobHandle:
    """One job. `latest` is its last known status, None before the first answer."""

    def __init__(self, account: Account, state: JobState) -> None:
        self._account = account
        self._state = state

    def __repr__(self) -> str:
        return f"<job {self.id} {self._state.status or 'not asked yet'}>"

    @property
    def id(self) -> str:
        return self._state.job_id

    @property
    def ref(self) -> Ref:
        """How the job is addressed at the API."""
        return self._state.ref

    @property
    def latest(self) -> JobStatus | None:
        return self._state.latest

    @property
    def requests(self) -> int:
        """How many requests were sent for this job."""
        return self._state.requests

    @property
    def files(self) -> tuple[str, ...]:
        """The names that `download` takes: its files, and `result` if another API has that at a URL."""
        return self._account.files(self._state)

    @property
    def replayed(self) -> bool:
        """Whether the service returned the job of an earlier submission with the same idempotency key or content. A retry
        after a lost response counts, too.
        """
        return self._state.replayed

    @property
    def cancelling(self) -> bool:
        """Whether the service has accepted a cancel of this handle."""
        return self._state.cancelling

    def stream(self, after: str | None = None) -> AsyncGenerator[JobOutput]:
        """Yield what the handler emits (`ctx.emit`), from the first chunk or after the chunk with this id, until the job
        has ended. An interrupted stream is resumed.
        """
        return read_output(self._account, self.id, after)

    async def status(self) -> JobStatus:
        """The current status: one request, cheap if nothing has changed.

        An ended job of another API cannot change, so it costs no request.
        """
        if self._account.api.is_bide or not self._state.ended:
            await self._account.refresh(self._state)
        return self._known()

    async def result(
        self,
        timeout: Timeout = "default",
        progress: Any = False,
        on_change: OnChange | None = None,
        *,
        cancel_on_timeout: bool = False,
    ) -> Any:
        """Wait until the job has ended and return its result.

        Raise JobFailed if it failed or was cancelled, and WaitTimeout after `timeout` seconds; the job then continues,
        unless `cancel_on_timeout` is set. None: no timeout. A partial success returns its result, and `latest.error` has
        the errors. `progress` shows a bar in a terminal, or moves the given tqdm bar.
        """
        default = timeout == "default" and self._account.default_timeout
        if timeout == "default":
            timeout = self._account.timeout
        until = None if timeout is None else asyncio.get_running_loop().time() + timeout
        while not self._state.over:
            left = None if until is None else max(0.0, until - asyncio.get_running_loop().time())
            ended = as_completed(
                [self],
                timeout="default" if default else left,
                progress=progress,
                on_change=on_change,
                cancel_on_timeout=cancel_on_timeout,
            )
            try:
                async with aclosing(ended):
                    await anext(ended)
            except WaitTimeout:
                raise WaitTimeout(self.id, timeout or 0.0, default) from None
        # An error that ended the wait early is raised once.
        error = self._state.error or self._account.not_found_error(self._state)
        self._state.error = None
        if error is not None:
            raise error
        if self._known().status not in SUCCESSFUL:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(until):
                    await self._account.explain(self._state)
            status = self._known()
            raise JobFailed(self.id, status.status, status.error, status)
        scope = asyncio.timeout_at(until)
        try:
            async with scope:
                return await self._account.result(self._state)
        except TimeoutError:
            if not scope.expired() or timeout is None:
                raise
            raise WaitTimeout(self.id, timeout, default) from None

    async def cancel(self) -> JobStatus:
        """Cancel the job. An ended job of another API is not changed: `cancelling` is True if a cancel was sent."""
        await self._account.cancel(self._state)
        return self._known()

    async def retry(self) -> JobStatus:
        """Run the job again; finished steps are kept."""
        await self._account.retry(self._state)
        return self._known()

    async def delete(self) -> None:
        await self._account.delete(self._state)

    async def download(self, name: str, path: str | os.PathLike[str]) -> Path:
        """Stream one of the job's files to `path`, or into that folder, and return its path."""
        if self._state.seen is None:
            await self._account.refresh(self._state)
        return await self._account.download(self._state, name, Path(path))

    def _known(self) -> JobStatus:
        latest = self._state.latest
        assert latest is not None
        return latest


class Completions:
    """A queue of jobs that have ended: a listener of many jobs. `on_change` is called at each change of a job, and at its
    end."""

    def __init__(self, on_change: Callable[[JobState], object] | None) -> None:
        self.wants_changes = on_change is not None
        self._on_change = on_change
        self._ended: deque[JobState] = deque()
        self._wake = asyncio.Event()
        self._fault: Exception | None = None  # of `on_change`: it is raised to the caller

    async def next(self, timeout: float | None) -> JobState | None:
        """The next job that has ended; None at the timeout."""
        while not self._ended or self._fault is not None:
            if self._fault is not None:
                raise self._fault
            self._wake.clear()
            try:
                async with asyncio.timeout(timeout):
                    await self._wake.wait()
            except TimeoutError:
                return None
        return self._ended.popleft()

    def changed(self, job: JobState) -> None:
        if self._on_change is None or self._fault is not None:
            return
        try:
            self._on_change(job)
        except Exception as error:  # an error of the caller's function must not stop the poller
            self._fault = error
            self._wake.set()

    def ended(self, job: JobState) -> None:
        if self._on_change is not None:
            self.changed(job)
        self._ended.append(job)
        self._wake.set()


async def as_completed(
    jobs: Iterable[JobHandle],
    *,
    timeout: Timeout = "default",
    progress: Any = False,
    on_change: OnChange | None = None,
    cancel_on_timeout: bool = False,
) -> AsyncGenerator[JobHandle]:
    """Yield each job when it ends; its `result()` then needs no more waiting.

    The jobs may belong to several clients. By default, each client's own timeout applies to its jobs.
    """
    by_state = {handle._state: handle for handle in jobs}
    now = asyncio.get_running_loop().time()
    states: dict[Account, list[JobState]] = {}
    for state, handle in by_state.items():
        states.setdefault(handle._account, []).append(state)
    limits = {account: account.timeout if timeout == "default" else timeout for account in states}
    left = {account: len(jobs) for account, jobs in states.items()}
    with bars(list(by_state.values()), progress) as show:

        def changed(job: JobState) -> None:
            status = job.latest
            if status is not None:
                if show is not None:
                    show(status, by_state[job])
                if on_change is not None:
                    on_change(status)

        completions = Completions(changed if show is not None or on_change is not None else None)
        try:
            for account, limit in limits.items():
                await account.open()
                new = [state for state in states[account] if not state.stored]
                if account.session is not None and new:
                    await account.session.add(new)
                # The default maximum is so long that no poll needs to be in time for it.
                default = timeout == "default" and account.default_timeout
                account.watch(states[account], completions, None if default else limit)
            while by_state:
                limit = min(
                    (limits[one] for one in left), key=lambda one: math.inf if one is None else one
                )
                wait = (
                    None if limit is None else max(0.0, now + limit - asyncio.get_running_loop().time())
                )
                ended = await completions.next(wait)
                if ended is None:
                    if cancel_on_timeout:
                        await cancel_all([one for one in by_state.values() if not one._state.ended])
                    names = _some([handle.id for handle in by_state.values()])
                    default = timeout == "default" and all(one.default_timeout for one in left)
                    raise WaitTimeout(names, limit or 0.0, default)
                handle = by_state.pop(ended)
                left[handle._account] -= 1
                if not left[handle._account]:
                    del left[handle._account]
                yield handle
        finally:
            for state, handle in by_state.items():
                handle._account.unwatch(state, completions)


async def until_ended(account: Account, state: JobState, on_change: OnChange) -> JobStatus:
    """Wait until a job has ended and return its status; an error that ends the wait early is raised."""
    ended = as_completed([JobHandle(account, state)], timeout=None, on_change=on_change)
    async with aclosing(ended):
        await anext(ended)
    error, state.error = state.error, None
    if error is not None:
        raise error
    assert state.latest is not None
    return state.latest


async def cancel_all(handles: Sequence[JobHandle]) -> None:
    """Cancel jobs within CANCEL_WITHIN seconds. Errors are ignored: the job has ended, or its service is down."""

    async def cancel(handle: JobHandle) -> None:
        with suppress(BideError):
            await handle.cancel()

    with suppress(TimeoutError):
        async with asyncio.timeout(CANCEL_WITHIN):
            await asyncio.gather(*map(cancel, handles))


def bars(handles: Sequence[JobHandle], wanted: Any) -> AbstractContextManager[Show | None]:
    """`wanted` is the option `progress`, or a function that updates bars of the caller."""
    if wanted is None or wanted is False:
        return nullcontext()
    if callable(wanted):
        return nullcontext(wanted)
    if hasattr(wanted, "update"):
        from bide.client.progress import CallersBar

        return nullcontext(CallersBar(wanted, len(handles)).show)
    from bide.client.progress import bars

    return bars(handles, wanted)


def _some(ids: Sequence[str], most: int = 5) -> str:
    more = f" and {len(ids) - most} more" if len(ids) > most else ""
    return ", ".join(ids[:most]) + more
