"""AsyncClient: submit jobs and wait for them, at a bide service or at another job API.

    async with AsyncClient() as client:
        job = await client.submit("transcode", {"height": 480})
        print(await job.result(timeout=600, progress=True))

This module has the operations of all APIs; service.py has those of a bide service only.
"""

from __future__ import annotations

import math
import os
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, Unpack

from bide.client import DEFAULT_URL
from bide.client.account import Account
from bide.client.apis import Api, Credential, load
from bide.client.apis.bide import bide_api
from bide.client.apis.values import without_credentials
from bide.client.http.addresses import check_address, split_credentials
from bide.client.http.service import ServiceRequests
from bide.client.http.transport import Transport
from bide.client.job import JobHandle, as_completed
from bide.client.ledger.outbox import outbox_of
from bide.client.options import ClientOptions, WaitOptions
from bide.client.service import ServiceOperations
from bide.client.submission import (
    JobSubmission,
    SubmitOptions,
    check_names,
    submission_call,
)
from bide.client.timing import Timing
from bide.client.uploads.upload_session import Pace
from bide.core.errors import ServiceError
from bide.core.jobs.record import FAILED
from bide.core.pacing.advice import Advice
from bide.core.pacing.budget import Limit
from bide.core.wire.http import JobStatus

NO_LIMIT = Limit(math.inf)


class AsyncClient(ServiceOperations):
    """One service, or one account at another API, and one pool of connections to it.

    `url` is BIDE_URL by default, else the service on this machine. `api` is the name of another API, or the path of its
    description; `url` is then its address if the description has none, and `key` the credential if the environment has
    none.
    """

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        *,
        api: str | Api | None = None,
        pace: Pace | None = None,
        timing: Timing | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        """`pace` and `timing` are the clocks of uploads and of polling, for tests."""
        check_names("a client", options, ClientOptions)
        self._pace = pace
        if api is None or api == "bide":
            at = _service(url, key, options)
        else:
            described = load(api, url) if isinstance(api, str) else api
            at = _Endpoint(described.url or "", described, described.credential(key), ClientOptions())
        self._transport = Transport(service=at.api.is_bide)
        options = ClientOptions(**{**options, **at.options})
        self._account = Account(at.api, self._transport, at.credential, options, timing=timing)
        self._service = ServiceRequests(at.url, self._account)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({without_credentials(self.url)!r})"

    @property
    def url(self) -> str:
        return self._service.url

    @property
    def api(self) -> str:
        """The name of the API."""
        return self._account.api.name

    @property
    def requests(self) -> int:
        """How many requests this client has sent."""
        return self._transport.requests

    @property
    def refused(self) -> int:
        """How many of them the API rejected because there were too many."""
        return self._transport.refused

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        try:
            await self._account.close()
        finally:
            await self._transport.close()

    @property
    def account(self) -> Account:
        """The account that sends all requests."""
        return self._account

    # --- jobs

    async def submit(self, kind: str, input: Any = None, **options: Unpack[SubmitOptions]) -> JobHandle:
        """Submit one job; when this returns, the service has it on disk. Options: see SubmitOptions."""
        check_names("submit", options, SubmitOptions)
        if options.get("file") is not None or options.get("files"):
            return await self._submit_files(kind, input, options)
        call = submission_call(self._account.api, await self._account.kind(kind), input, options)
        state = await self._account.submit(kind, input, options.get("idempotency_key"), call)
        return JobHandle(self._account, state)

    async def submit_many(
        self, jobs: Iterable[JobSubmission], *, idempotency_key: str | None = None
    ) -> Sequence[JobHandle | ServiceError]:
        """Submit many jobs in few requests. Return for each, in order, its handle or the error that rejected it.

        With an idempotency key the client retries a failed request, and the same list can be submitted again: accepted
        jobs are returned, not repeated.
        """
        if self._account.api.is_bide:
            return await self._submit_batches(jobs, idempotency_key)
        outcomes: list_of[JobHandle | ServiceError] = []
        for number, job in enumerate(jobs):
            check_names("a job of submit_many", job, JobSubmission)
            given: Any = {name: value for name, value in job.items() if name not in ("kind", "input")}
            if idempotency_key:
                given["idempotency_key"] = f"{idempotency_key}-{number}"
            try:
                outcomes.append(await self.submit(job["kind"], job.get("input"), **given))
            except ServiceError as error:
                outcomes.append(error)
        return outcomes

    def job(self, job_id: str, kind: str = "") -> JobHandle:
        """Return a handle on a job by its id, or by its URL at another API. Send no request."""
        return JobHandle(self._account, self._account.job(job_id, kind))

    async def cancel(self, job_id: str) -> JobStatus:
        return await self.job(job_id).cancel()

    async def retry(self, job_id: str) -> JobStatus:
        return await self.job(job_id).retry()

    async def delete(self, job_id: str) -> None:
        await self.job(job_id).delete()

    # --- waiting

    def as_completed(
        self, jobs: Iterable[JobHandle], **options: Unpack[WaitOptions]
    ) -> AsyncIterator[JobHandle]:
        """Yield each job when it ends; its `result()` then needs no more waiting. Raise WaitTimeout at the timeout.

        A job that the service does not know is yielded, too: its `result()` raises the error.
        """
        return as_completed(jobs, **options)

    async def wait_all(
        self, jobs: Iterable[JobHandle], **options: Unpack[WaitOptions]
    ) -> Sequence[JobHandle]:
        """Wait until every job has ended; return the handles in the given order, each with its `latest`."""
        handles = list_of(jobs)
        async for _ in as_completed(handles, **options):
            pass
        return handles

    def advice(self) -> Advice | None:
        """Whether the budget suffices for the waiting jobs; None if none wait, or their durations are unknown."""
        return self._account.advice()

    # --- the ledger

    async def resume(self, *jobs: JobHandle) -> Sequence[JobHandle]:
        """Add jobs to the ledger and return the jobs to wait for: these and all unacknowledged ones of this API.

        Given jobs that were acknowledged before are left out.
        """
        session = self._account.ledger_session
        found = {
            state.job_id: JobHandle(self._account, state) for state in await session.unacknowledged()
        }
        await session.add([job._state for job in jobs])
        wanted = {job.id: job for job in jobs if not job._state.acknowledged}
        return list_of((found | wanted).values())

    async def unacknowledged(self) -> Sequence[JobHandle]:
        """The jobs of this API in the ledger, live or ended, that `acknowledge` was not called for."""
        session = self._account.ledger_session
        return [JobHandle(self._account, state) for state in await session.unacknowledged()]

    async def acknowledge(self, *jobs: JobHandle) -> None:
        """Mark ended jobs as processed: `unacknowledged` and `resume` leave them out. Live jobs are ignored."""
        session = self._account.ledger_session
        await session.acknowledge([job._state for job in jobs if job._state.ended])
        outbox = outbox_of(session.ledger)
        for job in jobs:
            if outbox is not None and job.latest is not None and job.latest.status in FAILED:
                # The same submission creates a new job from now on.
                await outbox.forget(self.url, job.id)


list_of = list  # AsyncClient.list hides the builtin in its class


@dataclass(frozen=True)
class _Endpoint:
    """Where a client sends its requests, and with which credential."""

    url: str
    api: Api
    credential: Credential | None
    options: ClientOptions


def _service(url: str | None, key: str | None, options: ClientOptions) -> _Endpoint:
    """A bide service has no limit unless the caller sets one. The key is a header like those of the caller."""
    url = url or os.environ.get("BIDE_URL") or DEFAULT_URL
    check_address(url)
    address, proof = split_credentials(url.rstrip("/"))
    given = options.get("headers") or {}
    headers = {**proof, **({"Authorization": f"Bearer {key}"} if key else {}), **given}
    changed = ClientOptions(limit=options.get("limit") or NO_LIMIT, headers=headers)
    return _Endpoint(url, bide_api(address), None, changed)
