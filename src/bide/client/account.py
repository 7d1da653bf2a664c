"""One credential at one API: its jobs are submitted, waited for, cancelled and fetched on one shared budget.

A result is what the answer holds, or, when it is at the API's own address and JSON, what is there; a result that is
elsewhere, such as a film in somebody's storage, is told as its address and fetched by `download`.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from bide.client.apis import (
    Answer,
    Api,
    BadPoll,
    Call,
    Credential,
    NotYet,
    Ref,
    Seen,
)
from bide.client.apis.reading import ALWAYS
from bide.client.apis.values import header
from bide.client.budgets.sharing import Sharing, share
from bide.client.http.content import Content
from bide.client.http.download import FollowingPages, download, expectation, local_path
from bide.client.http.retrying import Retrying, RetryPolicy
from bide.client.http.sender import refusal
from bide.client.http.signer import Signer
from bide.client.http.transport import LARGEST, Download, Transport
from bide.client.ledger import Knowledge, Ledger
from bide.client.ledger.session import Keeper, LearnedSession
from bide.client.polling.kinds import TIMEOUTS, Kind, Size
from bide.client.polling.planned_job import FOREVER
from bide.client.polling.poller import Poller
from bide.client.timing import Timing
from bide.client.tracked import Listener, Tracked
from bide.core.advice import Advice
from bide.core.budget import Budget, Limit
from bide.core.errors import BideError, ServiceError
from bide.core.meter import SLACK
from bide.core.pacing import PRICE

log = logging.getLogger("bide.client")

T = TypeVar("T")
LEARN_EVERY = 10.0  # seconds between two writings of what was learned
EXPIRED = (401, 403, 404, 410)  # of an address that an answer gave
LINES = ("jsonl", "ndjson", "json-seq", "jsonlines")  # one document a line: a file, however long
TRIES = 8


@dataclass(frozen=True)
class Terms:
    """How jobs of an account are waited for."""

    limit: Limit | None = None  # None: what the description says, else what the API tells
    price: float = PRICE
    expected: float | None = None
    size: Size | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    processes: int = 1  # that the polling is spread over
    tries: int = TRIES  # of a request that somebody waits for
    budget: str | None = None  # where machines share it: redis://…, postgresql://…


class Account:
    def __init__(
        self,
        api: Api,
        transport: Transport,
        credential: Credential | None = None,
        terms: Terms | None = None,
        *,
        timing: Timing | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self.api = api
        self.terms = terms or Terms()
        self.limit = self.terms.limit or api.limit
        self._transport = transport
        self._credential = credential
        # Both are open, and set before the first use.
        self.ledger: Ledger | None = None
        self.knowledge: Knowledge | None = None  # None: the ledger
        self._timing = timing or Timing()
        self._rng = rng or random.Random()
        self._signer = Signer(api, credential, transport, self._timing.wall, self.terms.headers)
        self._kinds: dict[tuple[str, str], Kind] = {}
        self._submitted: deque[float] = deque()  # the moments of the latest submissions
        self._running: list[Tracked] = []  # that count where the API limits jobs
        self._places = 0  # taken by submissions that are under way
        self._ear = _Ear(asyncio.Event())
        self._opening = asyncio.Lock()
        self._poller: Poller | None = None
        self._learning: asyncio.Task[None] | None = None
        self.learned: LearnedSession | None = None
        self.keeper: Keeper | None = None
        self._sharing: Sharing | None = None

    async def open(self) -> None:
        """Called by the first use, because the poller belongs to the running event loop."""
        if self._poller is None:
            async with self._opening:
                if self._poller is None:
                    await self._open()

    async def send(self, call: Call, only: str = "", content: Content | None = None) -> Answer:
        """Sends one request on the account's budget and returns its answer, whatever its status.

        `content` is a body of any size. With `only`, a body whose content type does not contain this text is not read.
        """
        await self.open()
        assert self._poller is not None
        return await self._poller.sender.send(call, only, content)

    async def open_download(self, call: Call) -> Download:
        """Sends one request and returns a success whose body is still to be read; else Throttled or ServiceError."""
        await self.open()
        assert self._poller is not None
        return await self._poller.sender.open(call)

    async def _open(self) -> None:
        sharing = self._sharing = await self._share()
        budget = Budget(self.limit, rng=self._rng)
        if (knowledge := self.knowledge or self.ledger) is not None:
            salt, credential = knowledge.salt, self._credential
            account = credential.fingerprint(salt) if credential is not None else "-"
            self.learned = LearnedSession(knowledge, self.api, account, self._timing.wall)
            await self.learned.load()
            budget = self.learned.budget(self.limit, self._rng, self._timing.now())
            self._learning = asyncio.create_task(self._learn_on(self.learned))
        if self.ledger is not None:
            self.keeper = Keeper(self.ledger, self.api, self._timing.wall)
            await self.keeper.rename()
        options: dict[str, Any] = {
            "price": self.terms.price,
            "timing": self._timing,
            "rng": self._rng,
            "keeper": self.keeper,
        }
        who = self.api, self._transport, self._signer
        if self.terms.processes == 1:
            self._poller = Poller(*who, budget if sharing is None else sharing.budget, **options)
        else:
            from bide.client.polling.processes.poller import start_process_poller

            options["sharing"] = sharing
            self._poller = start_process_poller(
                self.terms.processes, *who, budget, self.limit, **options
            )

    async def _share(self) -> Sharing | None:
        if self.terms.budget is None:
            return None
        who = self.api, self._credential, self.terms.headers
        return await share(self.terms.budget, *who, self.limit, self._timing)

    async def close(self) -> None:
        poller = self._poller
        if poller is None:
            return
        await poller.close()
        if self._sharing is not None:
            await self._sharing.close()
        if self._learning is not None and self.learned is not None:
            self._learning.cancel()
            await self._learn(self.learned)

    async def _learn_on(self, learned: LearnedSession) -> None:
        while True:
            await asyncio.sleep(LEARN_EVERY)
            await self._learn(learned)

    async def _learn(self, learned: LearnedSession) -> None:
        if self._poller is None:
            return
        try:
            await learned.learn(self._poller.schedule, self.limit, self._timing.now())
        except Exception as error:
            # A full disk: waiting goes on, and begins with less knowledge the next time.
            log.error("what was learned is not in the ledger: %s", error)

    # --- waiting

    @property
    def timeout(self) -> float | None:
        """How long to wait where the caller does not say."""
        return None if self.terms.size is None else TIMEOUTS[self.terms.size]

    def wall(self) -> float:
        """Seconds since the epoch."""
        return self._timing.wall()

    def moment(self, seconds: float) -> float:
        """So many seconds from now, in this account's time."""
        return self._timing.now() + seconds * self._timing.speed

    def advice(self) -> Advice | None:
        poller = self._poller
        if poller is None or not poller.schedule.waiting:
            return None
        return poller.schedule.advice(self._timing.now())

    @property
    def guesses(self) -> bool:
        """Whether no job that is waited for is of a kind of which one has been seen to end."""
        kinds = self._poller.schedule.kinds.values() if self._poller is not None else ()
        return not any(kind.waiting and kind.plans.sketch.count for kind in kinds)

    def job(self, text: str, kind: str = "") -> Tracked:
        """From an id or a URL."""
        ref = self.api.references.ref(text)
        job = Tracked(ref, kind, job_id=self.api.job_id(ref))
        job.size = self.terms.size or ""
        return job

    async def keep(self, jobs: Sequence[Tracked]) -> None:
        """Puts them into the ledger, where there is one."""
        await self.open()
        if self.keeper is not None:
            await self.keeper.add(jobs)

    def watch(self, job: Tracked, listener: Listener, deadline: float | None = None) -> None:
        """After `keep`. `deadline` is a moment of this account's time."""
        poller = self._poller
        assert poller is not None
        size: Any = job.size or self.terms.size  # of a job from the ledger, that under which it was sent
        poller.watch(
            job,
            listener,
            kind=self._kind(poller, job, size),
            asked_at=job.asked_at,
            expected=self.terms.expected,
            size=size,
            deadline=FOREVER if deadline is None else deadline,
        )

    def unwatch(self, job: Tracked, listener: Listener) -> None:
        if self._poller is not None:
            self._poller.unwatch(job, listener)

    def _kind(self, poller: Poller, job: Tracked, size: Size | None) -> Kind:
        name = (job.kind, size or "")
        kind = self._kinds.get(name)
        if kind is None:
            batch = self.api.batch or 1
            if self.learned is not None:
                before = self.learned.kind(job.kind, size or "", batch)
                if before is not None:
                    poller.schedule.kinds[job.kind if size is None else (job.kind, size)] = before
            kind = self._kinds[name] = poller.schedule.kind(job.kind, batch, size)
        return kind

    # --- requests that somebody waits for

    async def submit(self, kind: str, input: Any, key: str | None = None) -> Tracked:
        """Sends one job. A refusal because too many run is waited out; one for another reason is raised."""
        call = self.api.submissions.submit(kind, input, key)
        await self._may_run()
        try:
            answer, ref = await self._send_in(call, key)
            for following in self.api.submissions.then(ref, kind, input):
                after = await self._persist(following, safe=False)
                if after.status >= 400:
                    raise after.problem()
            job = Tracked(ref, kind, self._timing.wall(), self.api.job_id(ref))
            job.seen = self.api.first(ref, answer)
            job.size = self.terms.size or ""
            job.requests = 1
            await self.keep([job])
            if self.api.concurrent is not None:
                self._running.append(job)
        finally:
            self._places -= 1
            self._ear.heard.set()
        return job

    async def _send_in(self, call: Call, key: str | None) -> tuple[Answer, Ref]:
        async def send() -> tuple[Answer, Ref]:
            await self._may_submit()
            answer = await self._persist(call, safe=key is not None)
            return answer, self.api.submissions.accepted(call, answer, key)

        try:
            # `_persist` has retried failures: only a refusal because of a limit is retried here.
            return await self._retrying(tries=1).run(send)
        except BadPoll as error:
            raise refusal(error, self.api) from None

    async def _may_run(self) -> None:
        """Takes a place. Where an API says how many jobs it takes at once: when one of ours has ended."""
        most = self.api.concurrent
        while most is not None:
            self._running = [job for job in self._running if not job.over]
            if len(self._running) + self._places < most:
                break
            for job in self._running:
                if (
                    self._ear not in job.listeners
                ):  # from now on until it ends, whether or not anybody waits for it
                    self.watch(job, self._ear)
            self._ear.heard.clear()
            await self._ear.heard.wait()
        self._places += 1

    async def _may_submit(self) -> None:
        """Where an API has a limit for submissions alone: no more than that in any stretch of its length."""
        limit = self.api.submit_limit
        while limit is not None:
            now = self._timing.now()
            while self._submitted and self._submitted[0] <= now - limit.per - SLACK:
                self._submitted.popleft()
            if len(self._submitted) < limit.requests:
                self._submitted.append(now)
                return
            await self._timing.sleep(self._submitted[0] + limit.per + SLACK - now + 0.01)

    async def look(self, job: Tracked) -> None:
        """One question now."""
        job.requests += 1
        self._read(job, await self.send(self.api.calls.ask(job.ref, job.etag)))

    def _read(self, job: Tracked, answer: Answer) -> None:
        age = ALWAYS if job.submitted_at is None else self._timing.wall() - job.submitted_at
        try:
            seen = self.api.read(job.ref, answer, age)
        except NotYet:
            job.seen = job.seen or Seen(state="unknown")  # it was submitted a moment ago
            return
        except BadPoll as error:
            raise refusal(error, self.api) from None
        if not seen.unchanged:
            job.take(seen)
            job.etag = seen.etag

    async def cancel(self, job: Tracked) -> None:
        """Asks about the job first and leaves one alone that has ended.

        At some APIs a cancel changes the outcome of such a job, or deletes its result.
        """
        if self.api.calls.cancel(job.ref) is None:
            raise BideError(f"{self.api.name} cannot cancel a job")
        if not job.over:
            job.requests += 1
            self._read(job, await self._persist(self.api.calls.ask(job.ref, job.etag)))
        if job.seen is not None and job.seen.terminal:
            return
        call = self.api.calls.cancel(job.ref, job.seen.message if job.seen is not None else None)
        assert call is not None
        job.requests += 1
        answer = await self._persist(call)
        try:
            outcome = self.api.cancelled(answer)
        except BadPoll as error:
            raise refusal(error, self.api) from None
        job.cancelling = job.cancelling or outcome == "asked"

    async def result(self, job: Tracked) -> Any:
        """Of a job that has ended well."""
        seen = job.seen
        assert seen is not None
        call = self.api.calls.result(seen)
        if call is None or not call.authorized:
            return seen.result if call is None else seen.result_url
        job.requests += 1
        answer = await self._persist(call, only="json")
        if answer.status >= 400:
            raise answer.problem()
        kind = header(answer.headers, "Content-Type") or ""
        if any(lines in kind.lower() for lines in LINES):  # one line of it would pass for a document
            return seen.result_url
        try:
            value = msgspec.json.decode(answer.body)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return seen.result_url
        if self._paged:
            value = await self._all_pages(job, call, answer, value)
            if value is None:
                return seen.result_url
        job.seen = msgspec.structs.replace(seen, result=value)
        return value

    @property
    def _paged(self) -> bool:
        return self.api.form.result is not None and self.api.form.result.next is not None

    async def _all_pages(self, job: Tracked, call: Call, answer: Answer, first: Any) -> Any:
        """None when they are too much for one value: they can still be downloaded."""
        values, size = [first], len(answer.body)
        rule = self.api.calls.next_page()
        assert rule is not None
        while (url := rule.following(call.url, answer)) is not None:
            call = self.api.calls.fetch(url)
            answer = await self._page(job, call)
            size += len(answer.body)
            if size > LARGEST:
                return None
            values.append(answer.read(Any))
        return _joined(values)

    async def _page(self, job: Tracked, call: Call) -> Answer:
        job.requests += 1
        answer = await self._persist(call)
        if answer.status >= 400:
            raise answer.problem()
        return answer

    def address(self, job: Tracked, name: str) -> Call:
        """Where a file of a job is; BideError when there is none of that name."""
        files = _files(job.seen)
        if name not in files:
            known = ", ".join(files) or "none"
            raise BideError(f"job {job.job_id} has no file {name!r}; there are: {known}")
        return self.api.calls.fetch(files[name])

    def files(self, job: Tracked) -> tuple[str, ...]:
        """What of a job can be fetched: its files, and its result where that is at an address."""
        return tuple(_files(job.seen))

    async def download(self, job: Tracked, name: str, path: Path) -> Path:
        """Streams a file of a job, or its result, to `path`."""
        first = self.address(job, name)
        try:
            return await self._download(job, name, path, first)
        except ServiceError as error:
            if error.status not in EXPIRED:
                raise
            await self.look(job)  # many addresses are good for an hour or so
            again = self.address(job, name)
            if again.url == first.url:
                raise
        return await self._download(job, name, path, again)

    async def _download(self, job: Tracked, name: str, path: Path, call: Call) -> Path:
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
        done = await download(open, call, target, self._retrying(), pages=pages, **expectation(found))
        return done.path

    async def _persist(self, call: Call, safe: bool = True, only: str = "") -> Answer:
        """Sends a request until it has an answer that no retry would change. Without `safe` it is only repeated after an
        answer which says that nothing was done."""

        async def send() -> Answer:
            answer = await self.send(call, only)
            if answer.status < 400 or self.api.reader.crowded(answer):
                return answer
            error = answer.problem()
            if RetryPolicy().retries(error, safe):
                raise error
            return answer

        return await self._retrying().run(send, safe)

    def _retrying(self, tries: int | None = None) -> Retrying:
        policy = RetryPolicy(tries=tries or self.terms.tries, warn_at=0)
        return Retrying(policy, self._timing, self._rng)


@dataclass(eq=False)
class _Ear:
    """Hears that one of several jobs has ended."""

    heard: asyncio.Event

    def changed(self, job: Tracked) -> None:
        pass

    def ended(self, job: Tracked) -> None:
        self.heard.set()


def _files(seen: Seen | None) -> dict[str, str]:
    files = {file.name: file.url for file in seen.files} if seen is not None else {}
    if seen is not None and seen.result_url is not None:
        files.setdefault("result", seen.result_url)
    return files


def _joined(values: list[Any]) -> Any:
    """One list if all pages are lists, else a list of the pages."""
    if all(isinstance(value, list) for value in values):
        return [item for value in values for item in value]
    return values
