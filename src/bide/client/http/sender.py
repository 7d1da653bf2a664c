"""Requests of one credential: signed, on one budget, behind a breaker, in turns, and led on by redirects.

Every answer is news for the budget and the breaker, whatever it was asked for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from bide.client.apis import Answer, Api, BadPoll, Call
from bide.client.apis.values import absolute, header
from bide.client.budgets import RequestBudget
from bide.client.http.signer import Signer
from bide.client.http.transport import (
    ANSWER_TIMEOUT,
    REDIRECTS,
    Transport,
    redirected_elsewhere,
)
from bide.client.polling.planned_job import FOREVER
from bide.client.polling.workers import Worker
from bide.client.timing import Timing
from bide.core.errors import ServiceError, ServiceUnreachable, UnusableService
from bide.core.retry import Breaker

CIRCLE = "the API redirects in a circle"


class Sender:
    """`kick` calls somebody who polls, when it is the polls' turn."""

    def __init__(
        self,
        api: Api,
        transport: Transport,
        signer: Signer,
        purse: RequestBudget,
        timing: Timing,
        breaker: Breaker,
        kick: Callable[[], None],
    ) -> None:
        self.api = api
        self.asking = 0  # requests that wait for their turn and are no polls
        self.polls_turn = False
        self._transport = transport
        self._signer = signer
        self._purse = purse
        self._timing = timing
        self._breaker = breaker
        self._kick = kick
        self._line = asyncio.Lock()
        self._news = asyncio.Event()  # an answer has come

    async def send(self, call: Call, only: str = "") -> Answer:
        """A submission, a cancel, a result: on the same budget, in turns with the polls.

        A GET is led on by redirects, anything else by 307 and 308 to where the credential may go.
        A credential that is denied is renewed once, where it can be.
        """
        denied = False
        for _ in range(REDIRECTS + 2):
            await self.turn()
            turn = self._signer.turn
            answer = await self._send(call, only)
            self.heard(answer, self.api.reader.throttled(answer))
            following = self._led(call, answer) if call.method == "GET" else self._repeated(call, answer)
            if following is not None:
                call = following
            elif answer.status == 401 and call.authorized and not denied:
                denied = True
                if not await self._signer.denied(turn):
                    return answer
            else:
                return answer
        raise refusal(BadPoll(310, CIRCLE, final=True), self.api)

    async def _send(self, call: Call, only: str) -> Answer:
        try:
            if self._signer.stale:
                await self._signer.ready()
            async with asyncio.timeout(call.hold + ANSWER_TIMEOUT):
                answer = await self._transport.exchange(
                    call.method, call.url, self._signer.headers(call), call.body, only
                )
        except BadPoll as error:
            self._purse.heard(self._timing.now(), 0, {}, self._timing.wall())
            raise refusal(error, self.api) from None
        except (ServiceUnreachable, UnusableService, TimeoutError) as error:
            self._purse.heard(self._timing.now(), 0, {}, self._timing.wall())
            if isinstance(error, TimeoutError):
                raise ServiceUnreachable(
                    f"no answer from {call.url.partition('?')[0]}: it took too long"
                ) from None
            raise
        return self._signer.clean(answer)

    async def turn(self) -> None:
        """In the order in which they come; who is first looks again with every answer, for it may tell of more."""
        self.asking += 1
        try:
            async with self._line:
                while True:
                    now = self._timing.now()
                    if self.polls_turn and self._purse.ready(now) <= now:
                        self._kick()  # a poll that is due goes first
                        await asyncio.sleep(0)
                        now = self._timing.now()
                    at = self._purse.take(now)
                    if at <= now:
                        return
                    await self._news_until(at)
        finally:
            self.asking -= 1
            self.polls_turn = True
            self._kick()

    async def _news_until(self, at: float) -> None:
        self._news.clear()
        timer = self._timing.later(at, self._news.set)
        try:
            await self._news.wait()
        finally:
            timer.cancel()

    def heard(self, answer: Answer, throttled: bool) -> None:
        now = self._timing.now()
        if answer.status >= 500:
            self._breaker.failed(now)
        else:
            self._breaker.succeeded(now)
        self._purse.heard(now, 429 if throttled else answer.status, answer.headers, self._timing.wall())
        self._news.set()

    async def exchange(self, worker: Worker, call: Call) -> Answer:
        """Sends it and follows where it is led; ServiceUnreachable when that takes too long."""
        for _ in range(REDIRECTS + 1):
            worker.turn = self._signer.turn
            if self._signer.stale:
                await self._signer.ready()
                worker.turn = self._signer.turn
            headers = self._signer.headers(call)
            worker.until = self._timing.now() + (call.hold + ANSWER_TIMEOUT) * self._timing.speed
            try:
                answer = await self._transport.exchange(call.method, call.url, headers, call.body)
            except asyncio.CancelledError:
                if not worker.timed_out():
                    raise
                raise ServiceUnreachable(
                    f"no answer from {call.url.partition('?')[0]}: it took too long"
                ) from None
            finally:
                worker.until = FOREVER
            following = self._led(call, answer)
            if following is None:
                return self._signer.clean(answer)
            self.heard(answer, throttled=False)
            await self.turn()
            call = following
        raise BadPoll(310, CIRCLE, final=True)

    def _led(self, call: Call, answer: Answer) -> Call | None:
        """Where a redirect leads; BadPoll when a request that is no GET is led to another origin."""
        if (
            not 301 <= answer.status <= 308
            or answer.status == 304
            or self.api.reader.reads(answer.status)
        ):
            return None
        following = self.api.calls.redirected(call, header(answer.headers, "Location"))
        if following is not None and call.method not in ("GET", "HEAD") and not following.authorized:
            refused = redirected_elsewhere(answer.status, call.method, following.url)
            raise BadPoll(answer.status, str(refused.problem["detail"]), final=True)
        return following

    def _repeated(self, call: Call, answer: Answer) -> Call | None:
        """The same request where a redirect leads; ServiceError when that is another origin."""
        if answer.status not in (307, 308) or self.api.reader.reads(answer.status):
            return None
        url = absolute(call.url, header(answer.headers, "Location"))
        if url is None:
            return None
        if not self.api.calls.meant(url):
            raise redirected_elsewhere(answer.status, call.method, url)
        return msgspec.structs.replace(call, url=url, authorized=True)

    def unsent(self) -> None:
        """A request that was counted on was never sent."""
        self._purse.heard(self._timing.now(), 0, {}, self._timing.wall())

    def unanswered(self) -> None:
        """A request got no answer."""
        now = self._timing.now()
        self._breaker.failed(now)
        self._purse.heard(now, 0, {}, self._timing.wall())


def refusal(error: BadPoll, api: Api) -> ServiceError:
    """What is raised to who waits."""
    return ServiceError(
        error.status, {"code": f"http-{error.status}", "detail": error.detail}, api.url or ""
    )
