"""Operations of a bide service only: lists of jobs, queues, kinds, workers, batches of submissions, and files."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from datetime import UTC, datetime
from typing import Any, TypedDict, Unpack

import msgspec

from bide.client.account import Account
from bide.client.apis import Answer
from bide.client.apis.bide import BideApi
from bide.client.events import EventReader, JobEvent
from bide.client.http.service import ServiceRequests
from bide.client.job import JobHandle
from bide.client.ledger.outbox import outbox_of
from bide.client.submission import (
    JobSubmission,
    SubmitOptions,
    batches,
    check_names,
    submission_headers,
)
from bide.client.uploads.file_submission import FileSubmission, open_sources
from bide.client.uploads.upload_session import Pace, UploadSession
from bide.core.errors import ServiceError, SetupError
from bide.core.jobs.record import Status
from bide.core.wire.http import JobStatus, encode, quote, read_job

PAGE = 100
LOG_HOLD = 30.0  # seconds that a service holds the request for new lines of a log

Records = list[dict[str, Any]]
Jobs = list[JobStatus]


class JobFilter(TypedDict, total=False):
    """The filters of a list and of a bulk action. A job must match all of them."""

    status: str | Sequence[str]
    kind: str | None
    queue: str | None
    label: tuple[str, str] | None
    code: str | None
    created_after: datetime | str | None
    created_before: datetime | str | None
    q: str | None


class ListOptions(JobFilter, total=False):
    """The options of `list`."""

    order: str | None  # `newest` first (default), `oldest` or `longest`
    limit: int | None  # PAGE jobs by default; None: all


class EventOptions(TypedDict, total=False):
    """The options of `events`."""

    after: str | None  # the id of an event: only events after it
    kind: str | Sequence[str]
    queue: str | Sequence[str]
    label: tuple[str, str] | None
    type: str | Sequence[str]
    follow: bool  # by default True; False: only the events that the service has now


class ServiceOperations:
    """The operations of AsyncClient that need a bide service: at another API each raises SetupError."""

    _account: Account
    _service: ServiceRequests
    _pace: Pace | None

    async def list(self, **options: Unpack[ListOptions]) -> Jobs:
        """Jobs that match all of the filters, newest first; `limit=None` returns all of them."""
        check_names("list", options, ListOptions)
        params = _params({**_filter(options), "order": options.get("order") or ()})
        limit = options.get("limit", PAGE)
        found: Jobs = []
        cursor: str | None = None
        while limit is None or len(found) < limit:
            here = [("limit", str(PAGE if limit is None else min(PAGE, limit - len(found))))]
            if cursor:
                here.append(("cursor", cursor))
            answer = await self._request("list jobs", "GET", "/jobs", params=[*params, *here])
            page = answer.read(dict[str, Any])
            found.extend(_jobs(page.get("jobs", []), answer))
            cursor = page.get("next")
            if not cursor:
                break
        return found

    async def bulk(
        self,
        action: str,
        *,
        priority: int | None = None,
        confirm: int | None = None,
        idempotency_key: str | None = None,
        **filter: Unpack[JobFilter],
    ) -> JobHandle:
        """Start a bulk action: `cancel`, `retry`, `delete`, or `priority` with a `priority`, on all jobs that match. Return
        the job that runs it; its result has the counts. `delete` needs `confirm`, the number from `bulk_count`.
        """
        self._api("start bulk actions")
        body = _bulk(action, priority, filter, confirm=confirm)
        # With a key, a repeated request does not start the action twice.
        headers = submission_headers(idempotency_key or secrets.token_hex(16))
        call = self._service.call("POST", "/bulk", json=body, headers=headers)
        answer = (await self._account.send_with_retries(call)).raise_for_status()
        (handle,) = await self._known_jobs([answer.read(JobStatus)], answer.headers)
        return handle

    async def bulk_count(
        self, action: str, *, priority: int | None = None, **filter: Unpack[JobFilter]
    ) -> int:
        """The number of jobs on which a bulk action would act now. Changes nothing."""
        body = _bulk(action, priority, filter, dryRun=True)
        answer = await self._request("count jobs", "POST", "/bulk", json=body)
        return int(answer.read(dict[str, Any])["count"])

    async def statuses(self, job_ids: Sequence[str]) -> dict[str, JobStatus]:
        """Many jobs, a hundred per request. Jobs that the service does not know are left out."""
        found: dict[str, JobStatus] = {}
        for start in range(0, len(job_ids), PAGE):
            params = [("id", job_id) for job_id in job_ids[start : start + PAGE]]
            answer = await self._request("list jobs", "GET", "/jobs", params=params)
            found.update((job.job_id, job) for job in _jobs(_records(answer, "jobs"), answer))
        return found

    async def log(
        self, job_id: str, *, level: str | None = None, follow: bool = False
    ) -> AsyncGenerator[dict[str, Any]]:
        """Yield the lines of a job's log, oldest first: `level` and above. With `follow` also new lines, until the job
        has ended.
        """
        params = [("level", level)] if level is not None else []
        path, hold, after = f"/jobs/{quote(job_id)}/log", 0.0, ""
        while True:
            here = [*params, ("after", after)] if after else params
            answer = await self._request(
                "read a log",
                "GET",
                path,
                params=here,
                headers={"Prefer": f"wait={hold:.0f}"} if hold else None,
                hold=hold,
            )
            page = answer.read(dict[str, Any])
            for line in page["log"]:
                yield line
            if page["ended"] or not (follow or page["log"]):
                return
            after, hold = page["next"], LOG_HOLD if follow else 0.0

    def events(
        self,
        job: str | JobHandle | None = None,
        **options: Unpack[EventOptions],
    ) -> AsyncGenerator[JobEvent]:
        """Yield the events of a job until it has ended, or those of all jobs that match the filters. The first event is a
        `snapshot`; with `after`, the id of an event, the events after it follow. An interrupted stream is resumed. With
        `follow=False` the iterator ends after the events that the service has now.
        """
        check_names("events", options, EventOptions)
        label = options.get("label")
        params = _params(
            {
                "kind": options.get("kind", ()),
                "queue": options.get("queue", ()),
                "type": options.get("type", ()),
                "label": ":".join(label) if label else (),
            }
        )
        job_id = job.id if isinstance(job, JobHandle) else job
        reader = EventReader(self._account, job_id, params, options.get("after"))
        return reader.events(options.get("follow", True))

    async def queues(self) -> Records:
        return _records(await self._request("list queues", "GET", "/queues"), "queues")

    async def kinds(self) -> Records:
        return _records(await self._request("list kinds", "GET", "/kinds"), "kinds")

    async def workers(self) -> Records:
        return _records(await self._request("list workers", "GET", "/workers"), "workers")

    async def pause_queue(self, queue: str) -> None:
        """Running jobs of the queue continue; no other job starts until `resume_queue`."""
        await self._request("pause a queue", "POST", f"/queues/{quote(queue)}/pause")

    async def resume_queue(self, queue: str) -> None:
        await self._request("resume a queue", "POST", f"/queues/{quote(queue)}/resume")

    async def webhooks(self) -> Records:
        return _records(await self._request("list webhooks", "GET", "/webhooks"), "webhooks")

    async def create_webhook(
        self,
        url: str,
        *,
        events: Sequence[str] = (),
        kinds: Sequence[str] = (),
        labels: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """The new webhook with its `secret`, which no later response contains. `events`: `terminal` if there are none."""
        body: dict[str, Any] = {"url": url, "kinds": kinds, "labels": labels or {}}
        if events:
            body["events"] = events
        return await self._object("create a webhook", "POST", "/webhooks", json=body)

    async def update_webhook(self, webhook_id: str, **fields: Any) -> dict[str, Any]:
        """Change `url`, `events`, `kinds`, `labels` or `enabled`."""
        path = f"/webhooks/{quote(webhook_id)}"
        return await self._object("change a webhook", "PATCH", path, json=fields)

    async def test_webhook(self, webhook_id: str) -> dict[str, Any]:
        """Send a test message now. The delivery has the response of the endpoint."""
        path = f"/webhooks/{quote(webhook_id)}/test"
        return await self._object("test a webhook", "POST", path)

    async def replay_webhook(
        self,
        webhook_id: str,
        begin: datetime | str,
        end: datetime | str | None = None,
        *,
        only: str = "failed",
    ) -> dict[str, Any]:
        """Deliver the events of a range of time again: those that were not accepted, or `all`."""
        body = {"from": _instant(begin), "to": _instant(end), "only": only}
        path = f"/webhooks/{quote(webhook_id)}/replay"
        return await self._object("replay a webhook", "POST", path, json=body)

    async def delete_webhook(self, webhook_id: str) -> None:
        await self._request("delete a webhook", "DELETE", f"/webhooks/{quote(webhook_id)}")

    async def keys(self) -> Records:
        """The API keys of all tenants, without their secrets. This and the other operations on keys need `admin`."""
        return _records(await self._request("list keys", "GET", "/keys"), "keys")

    async def create_key(
        self,
        *,
        name: str = "",
        scopes: Sequence[str] = (),
        tenant: str | None = None,
        expires_at: datetime | str | None = None,
    ) -> dict[str, Any]:
        """The new API key: `key` is what callers send, and no later response contains it."""
        body: dict[str, Any] = {"name": name, "tenant": tenant, "expiresAt": _instant(expires_at)}
        if scopes:
            body["scopes"] = scopes
        return await self._object("create a key", "POST", "/keys", json=body)

    async def rotate_key(self, key_id: str, *, overlap: float = 86400.0) -> dict[str, Any]:
        """The API key with a new secret. The previous one stays valid for `overlap` seconds."""
        path = f"/keys/{quote(key_id)}/rotate"
        return await self._object("rotate a key", "POST", path, json={"overlap": overlap})

    async def revoke_key(self, key_id: str) -> None:
        await self._request("revoke a key", "DELETE", f"/keys/{quote(key_id)}")

    async def audit(
        self,
        *,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        subject: str | None = None,
        tenant: str | None = None,
        operation: str | None = None,
        limit: int | None = PAGE,
    ) -> Records:
        """The mutating calls of all tenants, newest first; `limit=None` returns all of them. It needs the scope `admin`."""
        given = {
            "since": _instant(since),
            "until": _instant(until),
            "subject": subject,
            "tenant": tenant,
            "operation": operation,
        }
        params = {name: value for name, value in given.items() if value is not None}
        found: Records = []
        while limit is None or len(found) < limit:
            params["limit"] = str(PAGE if limit is None else min(PAGE, limit - len(found)))
            page = await self._object("read the audit log", "GET", "/audit", params=params)
            found.extend(page.get("entries", []))
            if page.get("next") is None:
                break
            params["cursor"] = page["next"]
        return found

    async def _object(self, what: str, method: str, path: str, **options: Any) -> dict[str, Any]:
        answer: dict[str, Any] = (await self._request(what, method, path, **options)).read(
            dict[str, Any]
        )
        return answer

    async def _submit_batches(
        self, jobs: Iterable[JobSubmission], idempotency_key: str | None
    ) -> Sequence[JobHandle | ServiceError]:
        outcomes: list_of[JobHandle | ServiceError] = []
        for batch in batches(jobs):
            done = len(outcomes)
            key = f"{idempotency_key}/{done}" if idempotency_key and done else idempotency_key
            call = self._service.call(
                "POST", "/jobs/batch", json={"jobs": batch}, headers=submission_headers(key)
            )
            answer = await self._account.send_with_retries(call, safe=key is not None)
            answer.raise_for_status()
            found = [_outcome(entry) for entry in _records(answer, "jobs")]
            accepted = [one for one in found if isinstance(one, JobStatus)]
            handles = iter(await self._known_jobs(accepted))
            outcomes.extend(next(handles) if isinstance(one, JobStatus) else one for one in found)
        return outcomes

    async def _submit_files(self, kind: str, input: Any, options: SubmitOptions) -> JobHandle:
        account = self._account
        if not account.api.is_bide:
            raise SetupError(
                f"{account.api.name} accepts no files from this client: store the file where that API can fetch it, and "
                "put its URL into the input"
            )
        outbox = None
        if account.session is not None:
            await account.session.open()
            outbox = outbox_of(account.session.ledger)
        with ExitStack() as stack:
            submission = FileSubmission(
                kind, input, options, await asyncio.to_thread(open_sources, options, stack)
            )
            show = stack.enter_context(_upload_bar(submission, options.get("progress", True)))
            pace = self._pace or Pace()
            sending = UploadSession(self._service, pace, account.wall, outbox, submission, show)
            answer = await sending.submit()
        (handle,) = await self._known_jobs([answer.read(JobStatus)], answer.headers)
        handle._state.replayed = sending.replayed or answer.replayed
        return handle

    async def _known_jobs(
        self, jobs: Sequence[JobStatus], headers: Mapping[str, str] | None = None
    ) -> list_of[JobHandle]:
        """Return handles on jobs that the service has just described."""
        api, account = self._api("describe a job"), self._account
        states = []
        for job in jobs:
            state = account.job(job.job_id, job.kind)
            state.submitted_at = account.wall()
            state.seen = api.seen(job, headers)
            state.replayed = job.replayed is True
            state.etag = state.seen.etag
            states.append(state)
        if states and account.session is not None:
            await account.session.add(states)
        return [JobHandle(account, state) for state in states]

    async def _request(self, what: str, method: str, path: str, **options: Any) -> Answer:
        self._api(what)
        return await self._service.send(method, path, **options)

    def _api(self, what: str) -> BideApi:
        api = self._account.api
        if not isinstance(api, BideApi):
            raise SetupError(f"{api.name} is not a bide service: the client cannot {what} there")
        return api


def _bulk(action: str, priority: int | None, filter: JobFilter, **fields: int | None) -> dict[str, Any]:
    check_names("a bulk action", filter, JobFilter)
    return {"action": action, "filter": _filter(filter), "priority": priority, **fields}


def _filter(filter: JobFilter) -> dict[str, str | Sequence[str]]:
    """The filters that are set, by their names on the wire."""
    label, status = filter.get("label"), filter.get("status", ())
    given = {
        "status": [Status(one).value for one in ([status] if isinstance(status, str) else status)],
        "kind": filter.get("kind"),
        "queue": filter.get("queue"),
        "label": ":".join(label) if label else None,
        "code": filter.get("code"),
        "createdAfter": _instant(filter.get("created_after")),
        "createdBefore": _instant(filter.get("created_before")),
        "q": filter.get("q"),
    }
    return {name: value for name, value in given.items() if value is not None and value != []}


def _params(given: Mapping[str, str | Sequence[str]]) -> list_of[tuple[str, str]]:
    """Query parameters: one per value."""
    return [
        (name, one)
        for name, values in given.items()
        for one in ([values] if isinstance(values, str) else values)
    ]


def _instant(at: datetime | str | None) -> str | None:
    return at.astimezone(UTC).isoformat() if isinstance(at, datetime) else at


list_of = list  # ServiceOperations.list hides the builtin in its class


def _outcome(entry: dict[str, Any]) -> JobStatus | ServiceError:
    if "jobId" in entry:
        return read_job(encode(entry))
    return ServiceError(int(entry.get("status", 500)), entry)


def _records(answer: Answer, name: str) -> Records:
    records: Records = answer.read(dict[str, Any]).get(name, [])
    return records


def _jobs(records: Any, answer: Answer) -> Jobs:
    try:
        return msgspec.convert(records, Jobs)
    except msgspec.ValidationError as error:
        raise answer.unreadable(f"The response is not a list of jobs: {error}") from None


def _upload_bar(
    submission: FileSubmission, wanted: Any
) -> AbstractContextManager[Callable[[int], object]]:
    if wanted is None or wanted is False:
        return nullcontext(lambda sent: None)
    from bide.client.progress import upload_bar

    return upload_bar(
        ", ".join(source.name for source in submission.sources.values()), submission.size, wanted
    )
