"""One credential at one API: submits its jobs, waits for them, cancels and downloads them, on one shared budget.

A result in an answer is returned as it is. A result at a URL of the API itself is fetched if it is JSON. A result that
is stored elsewhere is returned as its URL, and `download` fetches it.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from bide.client.apis import (
    GONE,
    NOT_FOUND,
    Answer,
    Api,
    BadPoll,
    Call,
    Credential,
    NotYet,
    Ref,
    Seen,
)
from bide.client.apis.lookups import MOST_PARTS
from bide.client.apis.reader import ALWAYS
from bide.client.apis.values import header
from bide.client.budgets.account_budget import AccountBudget, share
from bide.client.client_tracer import ClientTracer
from bide.client.http.download import FollowingPages, download, expectation, local_path
from bide.client.http.retrying import Retrying, RetryPolicy
from bide.client.http.sender import Content, refusal
from bide.client.http.signer import Signer
from bide.client.http.transport import LARGEST, Download, Transport
from bide.client.job_state import JobListener, JobState
from bide.client.ledger import Knowledge
from bide.client.ledger.session import LedgerSession
from bide.client.metrics import ApiUse, add_account, remove_account
from bide.client.options import LONGEST_WAIT, ClientOptions, check_polling
from bide.client.polling.kinds import TIMEOUTS
from bide.client.polling.knowledge import AccountKnowledge
from bide.client.polling.planned_job import FOREVER
from bide.client.polling.poller import Poller
from bide.client.timing import Timing
from bide.core.errors import BideError, ServiceError, SetupError
from bide.core.pacing.advice import Advice
from bide.core.pacing.budget import Budget, read_limit
from bide.core.pacing.meter import SLACK

log = logging.getLogger("bide.client")

T = TypeVar("T")
LEARN_EVERY = 10.0  # seconds between two writes of learned durations and budgets
REFUSED = (403, 404)  # statuses of an optional result that the API does not return
EXPIRED = (401, 403, 404, 410)  # statuses of a download URL that is no longer valid
LINES = ("jsonl", "ndjson", "json-seq", "jsonlines")  # one document per line: a file, not a value
LARGEST_PARTS = 256 * 1024 * 1024  # bytes of all parts of a result
TRIES = 8
ABSENT = {NOT_FOUND: (404, "not-found"), GONE: (410, "gone")}


class Account:
    def __init__(
        self,
        api: Api,
        transport: Transport,
        credential: Credential | None = None,
        options: ClientOptions | None = None,
        *,
        timing: Timing | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self.api = api
        self.options = options or ClientOptions()
        # Of a request that a caller waits for. The caller learns why it takes long.
        self.policy = RetryPolicy(tries=TRIES, warn_at=2)
        # The results and files of a bide service are requested until the caller's timeout.
        self._fetch_policy = RetryPolicy(tries=math.inf if api.is_bide else TRIES, warn_at=0)
        limit = self.options.get("limit")
        self.limit = (read_limit(limit) if isinstance(limit, str) else limit) or api.limit
        self._settings = check_polling(self.options)
        self._processes = self.options.get("processes") or 1
        if self._processes < 1:
            raise ValueError("`processes` must be 1 or more")
        self._transport = transport
        self._credential = credential
        self._timing = timing or Timing()
        self.session: LedgerSession | None = None
        if (ledger := self.options.get("ledger")) is not None:
            self.session = LedgerSession(ledger, api, self._timing.wall)
        self.knowledge: Knowledge | None = None  # open, and set before the first use; None: the ledger
        self._rng = rng or random.Random()
        self._signer = Signer(
            api, credential, transport, self._timing.wall, self.options.get("headers") or {}
        )
        self._submitted: deque[float] = deque()  # the times of the latest submissions
        self._kinds: dict[str, str] = {}  # the API's ids by the names that users give
        self._running: list[JobState] = []  # live jobs, if the API limits concurrent jobs
        self._submitting = 0  # submissions in progress, each with a slot
        self._slots = _SlotListener(asyncio.Event())
        self._opening = asyncio.Lock()
        self._poller: Poller | None = None
        self._learning: asyncio.Task[None] | None = None
        self.learned: AccountKnowledge | None = None
        self._account_budget: AccountBudget | None = None
        self.tracer: ClientTracer | None = None
        if (tracer := self.options.get("tracer")) is not None:
            transport.tracer = self.tracer = ClientTracer(tracer, api.name)

    async def open(self) -> Poller:
        """Open the account at its first use, because the poller belongs to the running event loop."""
        async with self._opening:
            if self._poller is not None:
                return self._poller
            knowledge = self.knowledge
            if self.session is not None:
                await self.session.open()
                knowledge = knowledge or self.session.ledger
            shared = None
            if (url := self.options.get("budget")) is not None:
                given = self.api, self._credential, self.options.get("headers") or {}
                shared = self._account_budget = await share(url, *given, self.limit, self._timing)
            if knowledge is None:
                budget = Budget(self.limit, rng=self._rng)
            else:
                salt, credential = knowledge.salt, self._credential
                account = credential.fingerprint(salt) if credential is not None else "-"
                self.learned = AccountKnowledge(
                    knowledge,
                    await knowledge.learned(),
                    self.api,
                    account,
                    self.limit,
                    self._timing.wall,
                )
                budget = self.learned.budget(self._rng, self._timing.now())
                self._learning = asyncio.create_task(self._learn_periodically(self.learned))
            options: dict[str, Any] = {
                "settings": self._settings,
                "timing": self._timing,
                "rng": self._rng,
                "ledger": self.session,
            }
            connection = self.api, self._transport, self._signer
            if self._processes == 1:
                common = budget if shared is None else shared.budget
                self._poller = Poller(*connection, common, **options)
            else:
                from bide.client.polling.processes.poller import start_process_poller

                options["account_budget"] = shared
                self._poller = start_process_poller(
                    self._processes, *connection, budget, self.limit, **options
                )
            add_account(self)
            return self._poller

    async def send(self, call: Call, only: str = "", content: Content | None = None) -> Answer:
        """Send one request on the account's budget and return its answer, whatever its status.

        `content` is a body of any size. With `only`, a body whose content type does not contain this text is not read.
        """
        poller = await self.open()
        return await poller.sender.send(call, only, content)

    async def open_download(self, call: Call) -> Download:
        """Send one request and return a success whose body is still to be read; else Throttled or ServiceError."""
        poller = await self.open()
        return await poller.sender.open(call)

    async def open_with_retries(self, call: Call) -> Download:
        """As `open_download`, until the API answers."""
        return await Retrying(self._fetch_policy, self._timing, self._rng).run(
            lambda: self.open_download(call)
        )

    async def pause(self, seconds: float | None) -> None:
        """Wait before a connection is opened again: `seconds`, or about two."""
        await self._timing.sleep(self._rng.uniform(1.0, 3.0) if seconds is None else seconds)

    async def close(self) -> None:
        try:
            remove_account(self, self._transport.requests, self._transport.refused)
            if self._poller is not None:
                await self._poller.close()
            if self._account_budget is not None:
                await self._account_budget.close()
            if self._learning is not None:
                self._learning.cancel()
            if self._poller is not None and self.learned is not None:
                await self.learned.save(self._poller.schedule, self._timing.now())
        finally:
            if self.session is not None:
                await self.session.close()

    async def _learn_periodically(self, learned: AccountKnowledge) -> None:
        while True:
            await asyncio.sleep(LEARN_EVERY)
            if self._poller is not None:
                await learned.save(self._poller.schedule, self._timing.now())

    @property
    def ledger_session(self) -> LedgerSession:
        """SetupError if the account has no ledger."""
        if self.session is None:
            raise SetupError("This client has no ledger. Pass one: ledger=FILE")
        return self.session

    # --- waiting

    @property
    def timeout(self) -> float | None:
        """The timeout in seconds of a wait that has none of its own."""
        given, size = self.options.get("timeout", "default"), self.options.get("size")
        if given != "default":
            return given
        return LONGEST_WAIT if size is None else TIMEOUTS[size]

    @property
    def default_timeout(self) -> bool:
        """Whether the caller has set no timeout: neither itself nor by a size."""
        return self.options.get("timeout", "default") == "default" and not self.options.get("size")

    def wall(self) -> float:
        """Seconds since the epoch."""
        return self._timing.wall()

    @property
    def api_name(self) -> str:
        return self.api.name

    def use(self) -> ApiUse:
        """What this account has used of the API so far, for metrics."""
        used = ApiUse(self._transport.requests, self._transport.refused)
        poller, now = self._poller, self._timing.now()
        if poller is not None:
            advice = self.advice()
            used.jobs = poller.schedule.waiting
            used.rate = poller.budget.rate(now)
            used.needed = None if advice is None else advice.needed
            used.wait = max(0.0, poller.budget.ready(now) - now)
        return used

    def advice(self) -> Advice | None:
        poller = self._poller
        if poller is None or not poller.schedule.waiting:
            return None
        return poller.schedule.advice(self._timing.now())

    @property
    def guesses(self) -> bool:
        """Whether no job of any waiting kind has ended yet, so that the advice is a guess."""
        kinds = self._poller.schedule.kinds.values() if self._poller is not None else ()
        return not any(kind.waiting and kind.plans.sketch.count for kind in kinds)

    def job(self, text: str, kind: str = "") -> JobState:
        """A job by its id or URL."""
        ref = self.api.references.ref(text)
        job = JobState(ref, kind, job_id=self.api.job_id(ref))
        job.size = self.options.get("size") or ""
        return job

    def watch(
        self, jobs: Sequence[JobState], listener: JobListener, timeout: float | None = None
    ) -> None:
        """Start to wait for jobs of an open account."""
        poller = self._poller
        assert poller is not None
        deadline = FOREVER
        if timeout is not None:
            deadline = self._timing.now() + timeout * self._timing.speed
        for job in jobs:
            if self.tracer is not None and job.context is None:
                job.context = self.tracer.current()
            if job.seen is not None and not job.over:
                listener.changed(job)
            size: Any = job.size or self.options.get("size")  # a job from the ledger has its own
            name, batch = job.kind if size is None else (job.kind, size), self.api.batch or 1
            if self.learned is not None and name not in poller.schedule.kinds:
                before = self.learned.kind(job.kind, size or "", batch)
                if before is not None:
                    poller.schedule.kinds[name] = before
            poller.watch(
                job,
                listener,
                kind=poller.schedule.kind(job.kind, batch, size),
                asked_at=job.asked_at,
                expected=job.expected or self.options.get("expected"),
                size=size,
                deadline=deadline,
                together=len(jobs),
            )

    def unwatch(self, job: JobState, listener: JobListener) -> None:
        if self._poller is not None:
            self._poller.unwatch(job, listener)

    # --- requests on behalf of a caller

    async def submit(
        self, kind: str, input: Any, key: str | None = None, call: Call | None = None
    ) -> JobState:
        """Submit one job; `call` is the request if the caller has made it. If too many jobs run, it waits for a slot.

        With an idempotency key the request is retried after any failure; without one only after a response that
        guarantees that the request had no effect, because a retry could create a second job.
        """
        if call is None:
            call = self.api.submissions.submit(await self.kind(kind), input, key)
        safe = key is not None

        async def send() -> tuple[Ref, Seen | None, bool] | ServiceError:
            await self._wait_for_submit_limit()
            answer = self._raise_to_retry(await poller.sender.send(call), safe)
            try:
                return *self.api.submitted(call, answer, key), answer.replayed
            except ServiceError as error:  # no retry would change it
                return error

        poller = await self.open()
        await self._wait_for_slot()
        try:
            accepted = await Retrying(self.policy, self._timing, self._rng).run(send, safe)
            if isinstance(accepted, ServiceError):
                raise accepted
            ref, seen, replayed = accepted
            for following in self.api.submissions.then(ref, kind, input):
                after = await self.send_with_retries(following, safe=False)
                if after.status >= 400:
                    raise self.api.reader.problem(after)
            job = JobState(ref, kind, self._timing.wall(), self.api.job_id(ref))
            job.seen = seen
            job.context = None if self.tracer is None else self.tracer.current()
            job.replayed = replayed
            job.size = self.options.get("size") or ""
            job.requests = 1
            job.etag = seen.etag if seen is not None else None
            if self.session is not None:
                await self.session.add([job])
                if job.ended:
                    await self.session.ended(job)
            if self.api.concurrent is not None:
                self._running.append(job)
        except BadPoll as error:
            raise refusal(error, self.api) from None
        finally:
            self._submitting -= 1
            self._slots.freed.set()
        return job

    async def kind(self, name: str) -> str:
        """The API's id of a kind that the user names in another way, as the description says. It is looked up once."""
        lookup = self.api.lookups.kind
        if lookup is None or (call := lookup.call(name)) is None:
            return name
        if name not in self._kinds:
            answer = await self.send_with_retries(call)
            if answer.status >= 400:
                raise self.api.reader.problem(answer)
            found = lookup.read(answer)
            if found is None:
                raise answer.unreadable(f"the response does not name the id of {name!r}")
            self._kinds[name] = found
        return self._kinds[name]

    async def _wait_for_slot(self) -> None:
        """Reserve a slot. If the API limits concurrent jobs, it waits until one of this account's jobs has ended."""
        most = self.api.concurrent
        while most is not None:
            self._running = [job for job in self._running if not job.over]
            if len(self._running) + self._submitting < most:
                break
            for job in self._running:
                if self._slots not in job.listeners:
                    # The job is polled until it ends, even if the caller does not wait for it.
                    self.watch([job], self._slots)
            self._slots.freed.clear()
            await self._slots.freed.wait()
        self._submitting += 1

    async def _wait_for_submit_limit(self) -> None:
        """Wait until the API's limit for submissions permits one more."""
        limit = self.api.submit_limit
        while limit is not None:
            now = self._timing.now()
            while self._submitted and self._submitted[0] <= now - limit.per - SLACK:
                self._submitted.popleft()
            if len(self._submitted) < limit.requests:
                self._submitted.append(now)
                return
            await self._timing.sleep(self._submitted[0] + limit.per + SLACK - now + 0.01)

    async def refresh(self, job: JobState) -> None:
        """Request the status of the job now."""
        job.requests += 1
        self._read(job, await self.send(self.api.calls.ask(job.ref, job.etag)))
        error = self.not_found_error(job)
        if error is not None:
            raise error

    def _read(self, job: JobState, answer: Answer) -> None:
        age = ALWAYS if job.submitted_at is None else self._timing.wall() - job.submitted_at
        try:
            seen = self.api.read(job.ref, answer, age)
        except NotYet:
            job.seen = job.seen or Seen(state="unknown")  # the API may not show a new job yet
            return
        except BadPoll as error:
            raise refusal(error, self.api, answer) from None
        if not seen.unchanged:
            job.take(self._signer.hide_in_error(seen))
            job.etag = seen.etag

    def not_found_error(self, job: JobState) -> ServiceError | None:
        """The error of a bide service that does not know this job; None if it does, and for any other API."""
        error = job.seen.error if job.seen is not None else None
        if not self.api.is_bide or error is None or error.code not in ABSENT:
            return None
        status, code = ABSENT[error.code]
        return ServiceError(status, {"code": code, "detail": error.message}, self.api.url or "")

    async def cancel(self, job: JobState) -> None:
        """Cancel the job. At a third party's API it requests the status first and does not cancel an ended job.

        Some APIs change the outcome of an ended job when it is cancelled, or delete its result.
        """
        if self.api.calls.cancel(job.ref) is None:
            raise BideError(f"{self.api.name} cannot cancel a job")
        if self.api.is_bide:
            await self._change(job, self.api.calls.cancel(job.ref))
            job.cancelling = True
            return
        if not job.over:
            job.requests += 1
            self._read(job, await self.send_with_retries(self.api.calls.ask(job.ref, job.etag)))
        if job.ended:
            return
        call = self.api.calls.cancel(job.ref, job.seen.message if job.seen is not None else None)
        assert call is not None
        job.requests += 1
        answer = await self.send_with_retries(call)
        try:
            outcome = self.api.cancelled(answer)
        except BadPoll as error:
            raise refusal(error, self.api, answer) from None
        job.cancelling = job.cancelling or outcome == "asked"
        await self.refresh(job)

    async def retry(self, job: JobState) -> None:
        """Run an ended job again."""
        await self._change(job, self.api.retry(job.ref))

    async def delete(self, job: JobState) -> None:
        await self._change(job, self.api.delete(job.ref))

    async def _change(self, job: JobState, call: Call | None) -> None:
        """Send the request once: a retry could report the effect of the first request as a conflict."""
        if call is None:
            raise BideError(
                f"{self.api.name} cannot run a job again or delete it. Submit a new job instead"
            )
        job.requests += 1
        answer = await self.send_with_retries(call, safe=False)
        if answer.status >= 400:
            raise self.api.reader.problem(answer)
        if answer.body:
            job.error = None
            self._read(job, answer)

    async def result(self, job: JobState) -> Any:
        """The result of a successful job."""
        seen = job.seen
        assert seen is not None
        if seen.result is not None or seen.result_url is None:
            return seen.result
        call = self.api.calls.result(job.ref, seen.result_url)
        if not call.authorized:
            return seen.result_url
        if seen.record is not None:
            seen.record.result = await self._large_result(job, call)
            job.seen = msgspec.structs.replace(seen, result=seen.record.result, result_url=None)
            return job.seen.result
        job.requests += 1
        answer = await self.send_with_retries(call, only="json")
        if (
            answer.status in REFUSED
            and self.api.form.result is not None
            and self.api.form.result.optional
        ):
            return None
        if answer.status >= 400:
            raise self.api.reader.problem(answer)
        kind = header(answer.headers, "Content-Type") or ""
        if any(lines in kind.lower() for lines in LINES):
            return seen.result_url  # its first line could be read as the whole document
        try:
            value = msgspec.json.decode(answer.body)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return seen.result_url
        pages = [value]
        if self._paged:
            if not await self._add_pages(job, call, answer, pages):
                return seen.result_url
            value = _joined(pages)
        if self.api.lookups.parts is not None:
            value = await self._parts(job, pages)
        job.seen = msgspec.structs.replace(seen, result=value)
        return value

    async def _parts(self, job: JobState, pages: Sequence[Any]) -> dict[str, Any]:
        """The parts of a result by key; parts with the same key are a list."""
        parts = self.api.lookups.parts
        assert parts is not None
        items = [item for page in pages for item in parts.listed(job.ref, page)]
        missing = max(len(items), *(parts.total(job.ref, page) for page in pages)) - len(items)
        missing += max(0, len(items) - MOST_PARTS)
        found: dict[str, list[Any]] = {}
        size, named = 0, parts.of(job.ref, items[:MOST_PARTS])
        for number, part in enumerate(named):
            answer = await self._page(job, part.call)
            size += len(answer.body)
            if size > LARGEST_PARTS:
                missing += len(named) - number
                break
            found.setdefault(part.key, []).append(parts.read(job.ref, answer))
        if missing > 0:
            log.warning(
                "The result of job %s is incomplete: it has %d more parts",
                job.ref.id,
                missing,
                extra={"api": self.api.name, "job_id": job.ref.id},
            )
        return {key: values if len(values) > 1 else values[0] for key, values in found.items()}

    async def explain(self, job: JobState) -> None:
        """Request the cause of a failure, if the description says how. Without an answer the error stays as it is."""
        seen = job.seen
        if seen is None or seen.state != "failed" or seen.error is None or job.explained:
            return
        if seen.error.code in ABSENT:
            return
        job.explained, body, known = True, None, {}
        try:
            for lookup in self.api.lookups.failures:
                if (call := lookup.call(job.ref, body)) is None:
                    break
                body = (await self._page(job, call)).read(Any)
                known.update(lookup.read(job.ref, body))
        except BideError as error:
            log.info(
                "The cause of the failure of job %s is not known: %s",
                job.job_id,
                error,
                extra={"api": self.api.name, "job_id": job.job_id},
            )
        if known:
            error_info = msgspec.structs.replace(seen.error, **known)
            job.seen = self._signer.hide_in_error(msgspec.structs.replace(seen, error=error_info))

    async def _large_result(self, job: JobState, call: Call) -> Any:
        """The result of a bide job that is not part of its status; None if the job has none."""

        async def fetch() -> Any:
            job.requests += 1
            answer = await self.send(call)
            return None if answer.status == 409 else answer.raise_for_status().read(Any)

        return await Retrying(self._fetch_policy, self._timing, self._rng).run(fetch)

    @property
    def _paged(self) -> bool:
        return self.api.form.result is not None and self.api.form.result.next is not None

    async def _add_pages(self, job: JobState, call: Call, answer: Answer, pages: list[Any]) -> bool:
        """Add all pages after the first, or those with as many parts as are fetched.

        False if the pages are too large for one value; `download` can still fetch them.
        """
        size, rule, parts = len(answer.body), self.api.calls.next_page(), self.api.lookups.parts
        assert rule is not None
        listed = 0
        while (url := rule.following(call.url, answer)) is not None:
            if parts is not None:
                listed += len(parts.listed(job.ref, pages[-1]))
                if listed >= MOST_PARTS:
                    break
            call = self.api.calls.fetch(url)
            answer = await self._page(job, call)
            size += len(answer.body)
            if size > LARGEST:
                return False
            pages.append(answer.read(Any))
        return True

    async def _page(self, job: JobState, call: Call) -> Answer:
        job.requests += 1
        answer = await self.send_with_retries(call)
        if answer.status >= 400:
            raise self.api.reader.problem(answer)
        return answer

    def address(self, job: JobState, name: str) -> Call:
        """The request for a file of a job; BideError if the job has no file of that name."""
        files = self._files(job.seen)
        if name not in files:
            known = ", ".join(files) or "none"
            raise BideError(f"job {job.job_id} has no file {name!r}; it has: {known}")
        return self.api.calls.fetch(files[name])

    def files(self, job: JobState) -> tuple[str, ...]:
        """The names that `download` takes: the files of a job, and `result` if that is at a URL."""
        return tuple(self._files(job.seen))

    def _files(self, seen: Seen | None) -> dict[str, str]:
        files = {file.name: file.url for file in seen.files} if seen is not None else {}
        if (
            seen is not None
            and seen.record is None
            and seen.result_url is not None
            and self.api.calls.downloads_result
        ):
            files.setdefault("result", seen.result_url)
        return files

    async def download(self, job: JobState, name: str, path: Path) -> Path:
        """Stream a file of a job, or its result, to `path`."""
        first = self.address(job, name)
        try:
            return await self._download(job, name, path, first)
        except ServiceError as error:
            if error.status not in EXPIRED:
                raise
            await self.refresh(job)  # many download URLs expire after about an hour
            again = self.address(job, name)
            if again.url == first.url:
                raise
        return await self._download(job, name, path, again)

    async def _download(self, job: JobState, name: str, path: Path, call: Call) -> Path:
        async def open(call: Call) -> Download:
            job.requests += 1
            return await self.open_download(call)

        seen = job.seen
        assert seen is not None
        rule = self.api.calls.next_page() if call.url == seen.result_url else None
        pages = None
        if (
            rule is not None
            and self.api.form.result is not None
            and self.api.form.result.next is not None
        ):
            pages = FollowingPages(rule, self.api.calls.fetch, self.api.form.result.next.skip)
        found = next((file for file in seen.files if file.name == name), None)
        target = await asyncio.to_thread(local_path, path, name)
        done = await download(
            open,
            call,
            target,
            Retrying(self._fetch_policy, self._timing, self._rng),
            pages=pages,
            **expectation(found),
        )
        return done.path

    async def send_with_retries(self, call: Call, safe: bool = True, only: str = "") -> Answer:
        """Send a request until it has an answer that no retry would change. Without `safe` it is retried only after an
        answer that guarantees that the request had no effect.
        """

        async def send() -> Answer:
            return self._raise_to_retry(await poller.sender.send(call, only), safe)

        poller = await self.open()
        return await Retrying(self.policy, self._timing, self._rng).run(send, safe)

    def _raise_to_retry(self, answer: Answer, safe: bool) -> Answer:
        """Raise the problem of an answer that a retry may change."""
        if answer.status >= 400 and not self.api.reader.crowded(answer):
            error = self.api.reader.problem(answer)
            if self.policy.retries(error, safe):
                raise error
        return answer


@dataclass(eq=False)
class _SlotListener:
    """Sets `freed` when one of the running jobs ends."""

    freed: asyncio.Event
    wants_changes = False

    def changed(self, job: JobState) -> None:
        pass

    def ended(self, job: JobState) -> None:
        self.freed.set()


def _joined(values: list[Any]) -> Any:
    """One list if all pages are lists, else a list of the pages."""
    if all(isinstance(value, list) for value in values):
        return [item for value in values for item in value]
    return values
