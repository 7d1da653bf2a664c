"""Requests of one credential: signed, on one budget, behind a circuit breaker, and redirected.

1. The credential goes only to the API's own origin and to hosts that its description names, after any redirect.
2. A request that is not a GET or HEAD is not sent to any other origin.
3. Every answer of the API reaches the budget and the breaker. Downloads from other hosts do not count.
4. Submissions to a bide service have a budget of their own besides, which learns from its RateLimit headers. So a limit of
   submissions does not slow polls down. The first submission is sent alone, because its response shows the limit.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Protocol

import msgspec

from bide.client.apis import Answer, Api, BadPoll, Call, Throttled
from bide.client.apis.values import absolute, header, without_credentials
from bide.client.client_tracer import RequestTracer
from bide.client.http.signer import Signer
from bide.client.http.transport import (
    ANSWER_TIMEOUT,
    Download,
    Transport,
    silence_limit,
    time_limit,
)
from bide.client.timing import Timing
from bide.core.errors import ServiceError, ServiceUnreachable, UnusableService
from bide.core.pacing.backoff import Breaker
from bide.core.pacing.budget import Budget, RequestBudget

REDIRECTS = 5
STALL = 60.0  # seconds without a byte that the connection accepts
# Sends one request to (method, URL, headers, body).
Exchange = Callable[[str, str, Mapping[str, str], bytes | AsyncIterator[bytes]], Awaitable[Answer]]


class Content(Protocol):
    """A request body of any size, which is generated while it is sent. Each call of `chunks` starts at the beginning."""

    @property
    def size(self) -> int: ...

    def chunks(self) -> AsyncIterator[bytes]: ...


class Flow:
    """One request with a Content. `error` is an error of the Content itself, not of the connection."""

    def __init__(self, content: Content, scope: asyncio.Timeout) -> None:
        self.content = content
        self.error: Exception | None = None
        self._scope: asyncio.Timeout | None = scope
        self._loop = asyncio.get_running_loop()

    def close(self) -> None:
        """The request has ended; its generator of chunks may be closed later."""
        self._scope = None

    def _limit(self, seconds: float | None) -> None:
        if self._scope is not None and not self._scope.expired():
            self._scope.reschedule(None if seconds is None else self._loop.time() + seconds)

    async def chunks(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self.content.chunks():
                self._limit(STALL)
                yield chunk
                # The connection asks for the next chunk after it has accepted this one.
        except Exception as error:
            self.error = error
            raise
        finally:
            self._limit(None)  # the answer has a time limit of its own


class Slot(Protocol):
    """The task that sends a poll. A sweeper cancels it after `until`."""

    generation: int  # of the credential that the poll was signed with
    until: float  # by the clock of the event loop

    def timed_out(self) -> bool: ...


class BudgetQueue:
    """The requests that wait for a budget. If polls wait for it, too, they alternate with these requests.

    `wake_poller` wakes an idle worker of the poller and returns whether there was one.
    """

    def __init__(
        self, budget: RequestBudget, timing: Timing, wake_poller: Callable[[], bool] = lambda: False
    ) -> None:
        self.waiting = 0  # requests
        self.poll_next = False
        self._budget = budget
        self._timing = timing
        self._wake_poller = wake_poller
        self._order = asyncio.Lock()
        self._answer = asyncio.Event()  # an answer has arrived

    async def wait(self) -> None:
        """Wait for the budget, in the order of the calls. Each answer may grant more, so it is checked again then."""
        self.waiting += 1
        try:
            async with self._order:
                while True:
                    now = self._timing.now()
                    if self.poll_next and self._budget.ready(now) <= now and self._wake_poller():
                        await asyncio.sleep(0)  # let a due poll take the budget first
                        now = self._timing.now()
                    at = self._budget.take(now)
                    if at <= now:
                        return
                    self._answer.clear()
                    timer = self._timing.later(at, self._answer.set)
                    try:
                        await self._answer.wait()
                    finally:
                        timer.cancel()
        finally:
            self.waiting -= 1
            self.poll_next = True
            self._wake_poller()

    def record(self, status: int, headers: Mapping[str, str]) -> None:
        """Learn from an answer; status 0 means that there was none."""
        self._budget.record_response(self._timing.now(), status, headers, self._timing.wall())
        self._answer.set()


class Sender:
    """`requests` are those of all callers, except polls."""

    def __init__(
        self,
        api: Api,
        transport: Transport,
        signer: Signer,
        requests: BudgetQueue,
        timing: Timing,
        breaker: Breaker,
    ) -> None:
        self.api = api
        self._requests = requests
        self._submissions: BudgetQueue | None = None
        if api.is_bide:
            submissions = Budget(rng=random.Random(), searches=False)
            self._submissions = BudgetQueue(submissions, timing)
        self._transport = transport
        self._signer = signer
        self._timing = timing
        self._breaker = breaker

    # --- requests that a caller waits for

    async def send(
        self, call: Call, only: str = "", content: Content | None = None, *, stream: bool = False
    ) -> Answer:
        """An Answer of any status. A denied credential is renewed once, if possible.

        `content` is a body of any size. With `only`, a body whose content type does not contain this text is not read.
        With `stream`, a success is a Download.
        """
        if content is not None:
            call = msgspec.structs.replace(
                call, headers={"Content-Length": str(content.size), **call.headers}
            )
            exchange: Exchange = partial(self._send_content, content, call.hold)
        else:
            timeout = silence_limit() if stream else time_limit(call.hold)
            exchange = partial(self._transport.exchange, only=only, timeout=timeout, stream=stream)
        renewed = False
        while True:
            counted = not stream or call.authorized
            if counted and call.submission and self._submissions is not None:
                await self._submissions.wait()
            if counted:
                await self._requests.wait()
            try:
                if self._signer.stale:
                    await self._signer.ready()
                generation = self._signer.generation
                answer = await self.exchange(call, None, exchange, stream)
            except (BadPoll, ServiceUnreachable, UnusableService) as error:
                if counted:
                    self.record_no_answer(call)
                if isinstance(error, BadPoll):
                    raise refusal(error, self.api) from None
                raise
            reader = self.api.reader
            if answer.status in reader.plain or renewed or not call.authorized:
                return answer
            if answer.status != 401 and not reader.denied(answer):
                return answer
            renewed = True
            if not await self._signer.denied(generation):
                return answer

    async def _send_content(
        self,
        content: Content,
        hold: float,
        method: str,
        url: str,
        headers: Mapping[str, str],
        _: object,
    ) -> Answer:
        try:
            async with asyncio.timeout(None) as scope:
                flow = Flow(content, scope)
                try:
                    return await self._transport.exchange(
                        method, url, headers, flow.chunks(), timeout=silence_limit(hold)
                    )
                except (ServiceUnreachable, UnusableService) as error:
                    if flow.error is None:
                        raise
                    self.record_no_answer()
                    raise flow.error from error
                finally:
                    flow.close()
        except TimeoutError as error:
            self._transport.fail(error, url)

    async def open(self, call: Call) -> Download:
        """A success whose body is still to be read. Otherwise Throttled or ServiceError."""
        answer = await self.send(call, stream=True)
        if isinstance(answer, Download):
            return answer
        if self.api.reader.throttled(answer):
            raise Throttled(answer.status, "too many requests")
        raise self.api.reader.problem(answer)

    # --- one request with its redirects

    async def exchange(
        self,
        call: Call,
        slot: Slot | None = None,
        exchange: Exchange | None = None,
        stream: bool = False,
    ) -> Answer:
        """Sign a call, send it, and follow redirects. The caller takes the first request from the budget. With `slot`
        the call is a poll."""
        signer = self._signer
        exchange = exchange or self._transport.exchange
        for _ in range(REDIRECTS + 1):
            if signer.stale:
                await signer.ready()
            headers = signer.headers(call)
            if slot is not None:
                slot.generation = signer.generation
                slot.until = asyncio.get_running_loop().time() + call.hold + ANSWER_TIMEOUT
            try:
                answer = await exchange(call.method, call.url, headers, call.body)
            except asyncio.CancelledError:
                if slot is None or not slot.timed_out():
                    raise
                url = without_credentials(call.url)
                raise ServiceUnreachable(f"no answer from {url}: it took too long") from None
            finally:
                if slot is not None:
                    slot.until = math.inf
            following = self._redirected(call, answer, slot is not None)
            reader, status = self.api.reader, answer.status
            plain = status in reader.plain
            if not stream or call.authorized:
                reads = not plain and following is None and not isinstance(answer, Download)
                throttled = reads and reader.throttled(answer)
                record = self._breaker.failed if status >= 500 else self._breaker.succeeded
                record(self._timing.now())
                self._transport.refused += throttled
                status, limits = 429 if throttled else status, answer.headers
                if call.submission and self._submissions is not None:
                    self._submissions.record(status, limits)
                    # A refused submission says nothing about other requests.
                    status, limits = (200 if status in (429, 503) else status), {}
                self._requests.record(status, limits)
            if following is None:
                answer.hide = signer.hide
                return answer if plain else signer.clean(answer)
            if not stream or following.authorized:
                await self._requests.wait()
            call = following
        detail = f"the API redirects the request more than {REDIRECTS} times"
        raise BadPoll(310, detail, final=True, code="redirect-loop")

    def _redirected(self, call: Call, answer: Answer, poll: bool) -> Call | None:
        """The request of a redirect; None if the answer is not a redirect, or must not be followed."""
        status = answer.status
        if not 301 <= status <= 308 or status == 304 or self.api.reader.reads(status):
            return None
        url = absolute(call.url, header(answer.headers, "Location"))
        reads = call.method in ("GET", "HEAD")
        if url is None:
            if reads:
                detail = "the redirect has no usable Location header"
                raise BadPoll(status, detail, final=True, code="redirect-nowhere")
            return None
        trusted = self.api.calls.trusts(url)
        if reads:
            return Call(call.method, url, call.headers, b"", trusted, hold=call.hold)
        if not trusted:
            raise BadPoll(status, _elsewhere(call.method, url), final=True, code="redirect-elsewhere")
        if status in (307, 308):
            return msgspec.structs.replace(call, url=url, authorized=True)
        # A 303 to a submission may name the job, so only a poll becomes a GET.
        return Call("GET", url, call.headers, b"", True, hold=call.hold) if poll else None

    # --- the budget

    def record_no_answer(self, call: Call | None = None) -> None:
        """Record in the budget that a granted request got no answer. The breaker does not count it."""
        if call is not None and call.submission and self._submissions is not None:
            self._submissions.record(0, {})
        self._requests.record(0, {})

    def record_failed_poll(self) -> None:
        """Record that a poll got no answer."""
        self._breaker.failed(self._timing.now())
        self.record_no_answer()


class TracedSender(Sender):
    """Makes a span of each request."""

    def __init__(self, tracer: RequestTracer, *parts: Any) -> None:
        super().__init__(*parts)
        self._tracer = tracer

    async def exchange(
        self,
        call: Call,
        slot: Slot | None = None,
        exchange: Exchange | None = None,
        stream: bool = False,
    ) -> Answer:
        how = {"submission": call.submission, "poll": slot is not None}
        with self._tracer.request(call.method, call.url, **how) as span:
            if self.api.is_bide:
                call = msgspec.structs.replace(call, headers={**call.headers, **span.headers})
            answer = await super().exchange(call, slot, exchange, stream)
            span.answered(answer.status)
            return answer


def refusal(error: BadPoll, api: Api, answer: Answer | None = None) -> ServiceError:
    """The error that callers get. The problem of a bide service is passed on as it is."""
    if answer is not None and answer.status >= 400 and api.is_bide:
        return answer.problem()
    return ServiceError(error.status, {"code": error.code, "detail": error.detail}, api.url or "")


def _elsewhere(method: str, url: str) -> str:
    target = without_credentials("/".join(url.split("/", 3)[:3]))
    return (
        f"the response redirects this {method} to {target}, and the client sends no {method} to another "
        "origin. If that is the right address, use it as the URL: --url, or `url` in the description"
    )
