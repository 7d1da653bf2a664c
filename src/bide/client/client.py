"""AsyncClient and JobHandle: submit jobs, wait for them, see what there is.

    async with AsyncClient() as client:
        job = await client.submit("transcode", {"height": 480})
        print(await job.result(timeout=600, progress=True))

A failed job raises JobFailed with its structured error; a failed poll never does. Few jobs of a bide service are waited
for by a long poll each; more of them, and jobs of any other API, by one scheduler on one shared budget (account.py).
"""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

import msgspec

from bide.client import DEFAULT_URL
from bide.client.account import Account, Terms
from bide.client.apis import Answer, Api, load
from bide.client.apis.bide import own_api
from bide.client.apis.values import without_credentials
from bide.client.followed import Followed
from bide.client.http.addresses import check_address, split_credentials
from bide.client.http.service import Params, ServiceRequests
from bide.client.http.transport import Transport
from bide.client.job import JobHandle, cancel_all
from bide.client.ledger.outbox import outbox_of
from bide.client.ledger.session import Keeper
from bide.client.ledger.sqlite import SqliteLedger
from bide.client.options import ClientOptions, WaitOptions
from bide.client.polling.completions import Gathering
from bide.client.submission import (
    Submission,
    SubmitOptions,
    batches,
    check_names,
    key_header,
    render_submission,
    submission_headers,
)
from bide.client.timing import Timing
from bide.client.tracked import Tracked
from bide.client.uploads.file_submission import FileSubmission, open_sources
from bide.client.uploads.submitting import Sending
from bide.client.waiting import AT_ONCE, OnChange, Pace, Watch
from bide.core.advice import Advice
from bide.core.budget import Limit, read_limit
from bide.core.errors import ServiceError, SetupError, WaitTimeout
from bide.core.pacing import PRICE
from bide.core.record import FAILED, Status
from bide.core.wire import JobStatus, encode, quote, read_job

if TYPE_CHECKING:
    from bide.client.progress import Show

PAGE = 100
NO_LIMIT = Limit(math.inf)

Records = list[dict[str, Any]]
Jobs = list[JobStatus]


class AsyncClient:
    """One service, or one account at a third party's API, and one pool of connections to it.

    `url` is BIDE_URL by default, else this machine's service. `api` names another API, or is the path of a description;
    `url` is then where it is, unless the description says so, and `key` the credential, unless the environment has it.
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
        """`pace` and `timing` are the clocks of long polls and of the scheduler: for tests and rehearsals."""
        check_names("a client", options, ClientOptions)
        self._pace = pace or Pace()
        self._ledger = options.get("ledger")
        self._opened: SqliteLedger | None = None
        self._gatherings: set[Gathering] = set()
        limit = options.get("limit")
        terms = Terms(
            limit=read_limit(limit) if isinstance(limit, str) else limit,
            price=options.get("price") or PRICE,
            expected=options.get("expected"),
            size=options.get("size"),
            headers=options.get("headers") or {},
            processes=options.get("processes") or 1,
            budget=options.get("budget"),
        )
        if terms.processes < 1:
            raise ValueError("`processes` must be 1 or more")
        self._own = api is None or api == "bide"
        if api is None or api == "bide":
            url = url or os.environ.get("BIDE_URL") or DEFAULT_URL
            check_address(url)
            address, proof = split_credentials(url.rstrip("/"))
            described: Api = own_api(address)
            credential = None
            headers = {**proof, **({"Authorization": f"Bearer {key}"} if key else {}), **terms.headers}
            terms = replace(terms, limit=terms.limit or NO_LIMIT, headers=headers)
        else:
            described = load(api, url) if isinstance(api, str) else api
            url = described.url or ""
            credential = described.credential(key)
        self._transport = Transport()
        self._service = ServiceRequests(url, self.account)
        self._account = Account(described, self._transport, credential, terms, timing=timing)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({without_credentials(self.url)!r})"

    @property
    def url(self) -> str:
        return self._service.url

    @property
    def api(self) -> str:
        """The name of the API that it speaks to."""
        return self._account.api.name

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
        try:
            for gathering in list_of(self._gatherings):  # of loops that were left by `break`
                await gathering.close()
            await self._account.close()
        finally:
            await self._transport.close()
            if self._opened is not None:
                await self._opened.close()

    async def account(self) -> Account:
        """What the client waits with; its ledger, where there is one, is open then."""
        if self._ledger is not None and self._account.ledger is None:
            if isinstance(self._ledger, str | os.PathLike):
                self._opened = SqliteLedger(Path(self._ledger))
                await self._opened.open()
                self._account.ledger = self._opened
            else:
                self._account.ledger = self._ledger
        return self._account

    async def submit(self, kind: str, input: Any = None, **options: Unpack[SubmitOptions]) -> JobHandle:
        """Sends one job; once this returns, the service has it on disk. Options: see SubmitOptions."""
        check_names("submit", options, SubmitOptions)
        if not self._own:
            return await self._submit_elsewhere(kind, input, options)
        if options.get("file") is not None or options.get("files"):
            return await self._submit_files(kind, input, options)
        body = render_submission(kind, input, options)
        headers = submission_headers(options)
        hold = options.get("wait") or 0.0
        answer = await self._service.send("POST", "/jobs", json=body, headers=headers, hold=hold)
        return self._handle(answer.read(JobStatus), answer.headers.get("ETag"))

    async def _submit_files(self, kind: str, input: Any, options: SubmitOptions) -> JobHandle:
        account = await self.account()
        outbox = outbox_of(account.ledger)
        with ExitStack() as stack:
            asked = FileSubmission(
                kind, input, options, await asyncio.to_thread(open_sources, options, stack)
            )
            show = stack.enter_context(_upload_bar(asked, options.get("progress", True)))
            sending = Sending(self._service, self._pace, account.wall, outbox, asked, show)
            answer = await sending.submit()
        handle = self._handle(answer.read(JobStatus), answer.headers.get("ETag"))
        if outbox is not None:
            await account.keep([handle._tracked()])
        return handle

    async def _submit_elsewhere(self, kind: str, input: Any, options: Mapping[str, Any]) -> JobHandle:
        key = options.get("idempotency_key")
        if options.get("file") is not None or options.get("files"):
            raise SetupError(
                f"{self.api} takes no file from this client: put it where that API can fetch it, and its address into "
                "the input"
            )
        more = [
            name for name, value in options.items() if value is not None and name != "idempotency_key"
        ]
        if more:
            raise SetupError(f"{self.api} knows nothing of {', '.join(more)}: put it into the input")
        account = await self.account()
        return self._follow(account, await account.submit(kind, input, key))

    async def submit_many(
        self, jobs: Iterable[Submission], *, idempotency_key: str | None = None
    ) -> list[JobHandle | ServiceError]:
        """Sends many jobs in few requests: for each, in order, its handle or why it was refused.

        With an idempotency key the same list can be sent again: jobs that were accepted are found, not repeated.
        """
        outcomes: list[JobHandle | ServiceError] = []
        if not self._own:
            for number, job in enumerate(jobs):
                key = f"{idempotency_key}-{number}" if idempotency_key else None
                outcomes.append(await self._one_of_many(job, key))
            return outcomes
        for batch in batches(jobs):
            done = len(outcomes)
            key = f"{idempotency_key}/{done}" if idempotency_key and done else idempotency_key
            answer = await self._service.send(
                "POST", "/jobs/batch", json={"jobs": batch}, headers=key_header(key)
            )
            outcomes.extend(self._outcome(entry) for entry in _records(answer, "jobs"))
        return outcomes

    async def _one_of_many(self, job: Submission, key: str | None) -> JobHandle | ServiceError:
        check_names("a job of submit_many", job, Submission)
        options = {name: value for name, value in job.items() if name not in ("kind", "input")}
        try:
            given = {**options, "idempotency_key": key}
            return await self._submit_elsewhere(job["kind"], job.get("input"), given)
        except ServiceError as error:
            return error

    def job(self, job_id: str, kind: str = "") -> JobHandle:
        """A handle on a job whose id is known, or its address at another API; asks nothing yet."""
        if self._own:
            return JobHandle(self, Watch(self._service, job_id, self._pace))
        return self._follow(self._account, self._account.job(job_id, kind))

    def _follow(self, account: Account, job: Tracked) -> JobHandle:
        return JobHandle(self, Followed(account, job))

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
        self._only_own("list jobs")
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
            answer = await self._service.send("GET", "/jobs", params=[*params, *here])
            page = answer.read(dict[str, Any])
            found.extend(_jobs(page.get("jobs", []), answer))
            cursor = page.get("next")
            if not cursor:
                break
        return found

    async def statuses(self, job_ids: Sequence[str]) -> dict[str, JobStatus]:
        """Many jobs at once, a hundred a request; those that the service does not know are left out."""
        self._only_own("tell of many jobs at once")
        found: dict[str, JobStatus] = {}
        for start in range(0, len(job_ids), PAGE):
            params = [("id", job_id) for job_id in job_ids[start : start + PAGE]]
            answer = await self._service.send("GET", "/jobs", params=params)
            found.update((job.job_id, job) for job in _jobs(_records(answer, "jobs"), answer))
        return found

    async def cancel(self, job_id: str) -> JobStatus:
        return await self.job(job_id).cancel()

    async def retry(self, job_id: str) -> JobStatus:
        return await self.job(job_id).retry()

    async def delete(self, job_id: str) -> None:
        await self.job(job_id).delete()

    def _only_own(self, what: str) -> None:
        if not self._own:
            raise SetupError(f"{self.api} is not a bide service, and cannot {what} for this client")

    async def queues(self) -> Records:
        self._only_own("list queues")
        return _records(await self._service.send("GET", "/queues"), "queues")

    async def kinds(self) -> Records:
        self._only_own("list kinds")
        return _records(await self._service.send("GET", "/kinds"), "kinds")

    async def workers(self) -> Records:
        self._only_own("list workers")
        return _records(await self._service.send("GET", "/workers"), "workers")

    async def pause(self, queue: str) -> None:
        """Jobs of the queue that run go on; no other starts until `resume`."""
        self._only_own("pause a queue")
        await self._service.send("POST", f"/queues/{quote(queue)}/pause")

    async def resume(self, queue: str) -> None:
        self._only_own("resume a queue")
        await self._service.send("POST", f"/queues/{quote(queue)}/resume")

    async def as_completed(
        self,
        jobs: Iterable[JobHandle],
        *,
        timeout: float | None = None,
        progress: Any = False,
        on_change: OnChange | None = None,
        cancel_on_timeout: bool = False,
    ) -> AsyncIterator[JobHandle]:
        """Each job as it ends; `result()` of it then needs no more waiting. WaitTimeout when time runs out.

        A job that the service does not know comes out too: its `result()` says so. Callbacks hear of changes of
        status and progress.
        """
        handles = list_of(dict.fromkeys(jobs))
        if timeout is None:
            timeout = self._account.timeout
        until = None if timeout is None else asyncio.get_running_loop().time() + timeout
        with _bars(handles, progress) as show:
            gathering = Gathering(on_change, show)
            self._gatherings.add(gathering)
            try:
                await self._gather(gathering, handles, timeout)
                for _ in handles:
                    left = None if until is None else max(0.0, until - asyncio.get_running_loop().time())
                    handle = await gathering.next(left)
                    if handle is None:
                        assert timeout is not None
                        if cancel_on_timeout:
                            await cancel_all([one for one in handles if not one._over()])
                        raise WaitTimeout(_some(gathering.left), timeout)
                    yield handle
            finally:
                self._gatherings.discard(gathering)
                await gathering.close()

    async def _gather(
        self, gathering: Gathering, handles: Sequence[JobHandle], timeout: float | None
    ) -> None:
        """Each client waits for its own."""
        groups: dict[AsyncClient, list_of[JobHandle]] = {}
        for handle in handles:
            groups.setdefault(handle._client, []).append(handle)
        for client, group in groups.items():
            free = client._account.terms.limit == NO_LIMIT and client._ledger is None
            if client._own and free and len(group) <= AT_ONCE:
                gathering.hold(group)
            else:
                account = await client.account()
                deadline = None if timeout is None else account.moment(timeout)
                await gathering.follow(account, [(h._tracked(), h) for h in group], deadline)

    async def wait_all(
        self,
        jobs: Iterable[JobHandle],
        **options: Unpack[WaitOptions],
    ) -> Sequence[JobHandle]:
        """Until every job has ended; the handles in the order they were given, each with its `latest`."""
        handles = list_of(jobs)
        async for _ in self.as_completed(handles, **options):
            pass
        return handles

    def advice(self) -> Advice | None:
        """Whether the budget carries what is waited for; None when nothing is, or nothing is known of it."""
        return self._account.advice()

    async def untold(self) -> Sequence[JobHandle]:
        """What the ledger has of this API and `told` was not called for: what goes on, and what has ended meanwhile."""
        keeper = await self._keeper()
        return [self._from_ledger(job) for job, entry in await keeper.jobs() if not entry.told]

    async def told(self, *jobs: JobHandle) -> None:
        """These have ended and what was to be done about it is done: `untold` leaves them out from now on."""
        keeper = await self._keeper()
        await keeper.told([job._tracked() for job in jobs if job._over()])
        outbox = outbox_of(self._account.ledger)
        for job in jobs:
            if outbox is not None and job.latest is not None and job.latest.status in FAILED:
                await outbox.forget(self.url, job.id)  # the same submission is another try from now on

    async def _keeper(self) -> Keeper:
        account = await self.account()
        await account.open()
        if account.keeper is None:
            raise SetupError("this client has no ledger: give it one, ledger=FILE")
        return account.keeper

    def _from_ledger(self, job: Tracked) -> JobHandle:
        if not self._own:
            return self._follow(self._account, job)
        handle, record = self.job(job.ref.id), job.record()
        if record is not None:
            handle._hear(record, job)
        return handle

    def _handle(self, job: JobStatus, etag: str | None = None) -> JobHandle:
        watch = Watch(self._service, job.job_id, self._pace)
        watch.know(job, etag)
        return JobHandle(self, watch)

    def _outcome(self, entry: dict[str, Any]) -> JobHandle | ServiceError:
        if "jobId" in entry:
            return self._handle(read_job(encode(entry)))
        return ServiceError(int(entry.get("status", 500)), entry)


list_of = list  # AsyncClient.list hides the builtin inside its class


def _bars(handles: Sequence[JobHandle], wanted: Any) -> AbstractContextManager[Show | None]:
    if wanted is None or wanted is False:
        return nullcontext()
    if hasattr(wanted, "update"):
        from bide.client.progress import TheirBar

        return nullcontext(TheirBar(wanted, len(handles)).show)
    from bide.client.progress import bars

    return bars([handle._place for handle in handles])


def _upload_bar(asked: FileSubmission, wanted: Any) -> AbstractContextManager[Callable[[int], object]]:
    if wanted is None or wanted is False:
        return nullcontext(lambda sent: None)
    from bide.client.progress import upload_bar

    return upload_bar(", ".join(source.name for source in asked.sources.values()), asked.size, wanted)


def _some(ids: Sequence[str], most: int = 5) -> str:
    more = f" and {len(ids) - most} more" if len(ids) > most else ""
    return ", ".join(ids[:most]) + more


def _records(answer: Answer, name: str) -> Records:
    records: Records = answer.read(dict[str, Any]).get(name, [])
    return records


def _jobs(records: Any, answer: Answer) -> Jobs:
    try:
        return msgspec.convert(records, Jobs)
    except msgspec.ValidationError as error:
        raise answer.unreadable(f"The response is not a list of jobs: {error}") from None
