"""Polls the jobs of one credential: takes what is due from the schedule, sends it, reads the answer, tells who waits.

Invariants:
1. A few workers and one timer, however many jobs: a worker takes the next job that is due, or rests until there is one.
2. A failed poll is not a failed job: it backs off with full jitter, behind a breaker for its host, and goes on.
3. A terminal answer, or one that no waiting will mend, ends the wait for a job; nothing is asked about it afterwards.
   It is in the ledger, where there is one, before anybody is told.
4. Every request draws on the same budget, and every answer is news for it: all pause, or none.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections import deque
from typing import Any, Protocol

from bide.client.apis import (
    TERMINAL,
    Api,
    BadPoll,
    Call,
    Denied,
    NotYet,
    Seen,
    Throttled,
)
from bide.client.apis.values import header, instant
from bide.client.budgets import Purse
from bide.client.kinds import Kind, Report, by_position, by_progress
from bide.client.schedule import Schedule
from bide.client.signer import Signer
from bide.client.timing import Timing
from bide.client.tracked import Listener, Tracked
from bide.client.transport import ANSWER_TIMEOUT, Answer, Transport
from bide.client.waited import FOREVER, Waited
from bide.core.errors import ServiceError, ServiceUnreachable
from bide.core.pacing import PRICE
from bide.core.retry import Breaker, backoff

log = logging.getLogger("bide.client")

CONNECTIONS = 64
HOLDS = 32  # jobs up to which long polls are used
SWEEP = 1.0  # seconds between two looks at requests that hang
BASE, CAP = 0.5, 60.0  # backoff after a failed poll
LONGEST_ADVICE = 300.0  # an absurd Retry-After is not obeyed beyond this
REDIRECTS = 5
GAP = 0.25  # seconds between two questions that the API holds
WORTH_TELLING = 5.0  # seconds between two looks, above which a time of the API's own says more


class Keeper(Protocol):
    """Who keeps what is waited for: the ledger's side."""

    def noted(self, job: Tracked) -> None: ...

    async def ended(self, job: Tracked) -> None:
        """On disk when it returns."""
        ...


class Poller:
    def __init__(
        self,
        api: Api,
        transport: Transport,
        signer: Signer,
        purse: Purse,
        *,
        price: float = PRICE,
        timing: Timing | None = None,
        rng: random.Random | None = None,
        keeper: Keeper | None = None,
    ) -> None:
        self.api = api
        self.rng = rng or random.Random()
        self.schedule = Schedule(purse, rng=self.rng, price=price)
        self.timing = timing or Timing()
        self.keeper = keeper
        self._transport = transport
        self._signer = signer
        self._purse = purse
        self._breaker = Breaker(rng=self.rng)
        self._workers: set[_Worker] = set()
        self._resting: list[asyncio.Future[None]] = []
        self._alone: deque[Waited] = deque()  # that an answer about many did not tell of
        self._timer: asyncio.TimerHandle | None = None
        self._wakes_at = FOREVER
        self._sweeper: asyncio.TimerHandle | None = None
        self._asking = 0  # requests that wait for their turn and are no polls
        self._polls_turn = False
        self._troubled = False
        self._words: set[str] = set()  # that the description does not know
        self._endings: set[asyncio.Task[None]] = set()

    # --- what is waited for

    def watch(
        self,
        job: Tracked,
        listener: Listener,
        *,
        kind: Kind,
        asked_at: float | None = None,
        **options: Any,
    ) -> None:
        """Waits for a job; who listens is told once it has ended. `asked_at` is when it was last seen, in epoch seconds."""
        job.listeners += (listener,)
        if job.over:
            listener.ended(job)
        elif job.waited is None:
            now, wall = self.timing.now(), self.timing.wall()
            born = job.submitted_at if job.submitted_at is not None else job.since
            age = 0.0 if born is None else max(0.0, wall - born)
            asked = age if job.seen is not None else 0.0
            if asked_at is not None:
                asked = max(0.0, age - max(0.0, wall - asked_at))
            job.waited = self.schedule.add(job, now, kind=kind, age=age, asked=asked, **options)
            if job.submitted_at is None and job.seen is None:
                self.schedule.hurry(job.waited, now)
            self._kick()

    def unwatch(self, job: Tracked, listener: Listener) -> None:
        job.listeners = tuple(one for one in job.listeners if one is not listener)
        if not job.listeners and job.waited is not None:
            self.schedule.remove(job.waited)
            self._part(job, job.waited)
            job.waited = None

    def _part(self, job: Tracked, waited: Waited) -> None:
        """Whoever waits for it again, soon perhaps, is to know how old it is and when it was last seen."""
        now, wall = self.timing.now(), self.timing.wall()
        job.since = wall - (now - waited.born)
        if job.seen is not None:
            job.asked_at = wall - (now - waited.born - waited.asked)

    async def close(self) -> None:
        for timer in (self._timer, self._sweeper):
            if timer is not None:
                timer.cancel()
        tasks = [worker.task for worker in self._workers]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, *self._endings, return_exceptions=True)

    # --- requests that are no polls

    async def send(self, call: Call, only: str = "") -> Answer:
        """A submission, a cancel, a result: on the same budget, in turns with the polls."""
        await self._turn()
        if self._signer.stale:
            await self._signer.ready()
        try:
            async with asyncio.timeout(call.hold + ANSWER_TIMEOUT):
                answer = await self._transport.exchange(
                    call.method, call.url, self._signer.headers(call), call.body, only
                )
        except (ServiceUnreachable, TimeoutError) as error:
            self._purse.heard(self.timing.now(), 0, {}, self.timing.wall())
            if isinstance(error, TimeoutError):
                raise ServiceUnreachable(f"no answer from {call.url.partition('?')[0]}") from None
            raise
        self._heard(answer, self.api.throttled(answer.status, answer.headers, answer.body))
        return answer

    async def _turn(self) -> None:
        self._asking += 1
        try:
            while True:
                now = self.timing.now()
                at = self._purse.take(now)
                if at <= now:
                    return
                await self.timing.sleep(at - now)
        finally:
            self._asking -= 1
            self._polls_turn = True
            self._kick()

    def _heard(self, answer: Answer, throttled: bool) -> None:
        now = self.timing.now()
        if answer.status >= 500:
            self._breaker.failed(now)
        else:
            self._breaker.succeeded(now)
        self._purse.heard(now, 429 if throttled else answer.status, answer.headers, self.timing.wall())

    # --- workers

    def _kick(self) -> None:
        """Somebody should look whether there is something to do."""
        while self._resting:
            future = self._resting.pop()
            if not future.done():
                future.set_result(None)
                return
        if len(self._workers) < CONNECTIONS:
            worker = _Worker()
            worker.task = asyncio.get_running_loop().create_task(self._work(worker))
            self._workers.add(worker)
            if self._sweeper is None:
                self._sweep_later()

    async def _rest(self, until: float) -> None:
        if until < self._wakes_at:
            if self._timer is not None:
                self._timer.cancel()
            self._wakes_at = until
            self._timer = self.timing.later(until, self._wake)
        future = asyncio.get_running_loop().create_future()
        self._resting.append(future)
        await future

    def _wake(self) -> None:
        self._timer, self._wakes_at = None, FOREVER
        self._kick()

    async def _work(self, worker: _Worker) -> None:
        while True:
            jobs, again = self._next()
            if not jobs:
                await self._rest(again)
                continue
            self._kick()  # there may be more
            try:
                if len(jobs) == 1:
                    await self._ask(worker, jobs[0])
                else:
                    await self._ask_many(worker, jobs)
            except Exception:  # a fault of ours must not stop the others
                log.exception("a poll went wrong")
                now = self.timing.now()
                for waited in jobs:
                    if waited.number == 0:
                        self.schedule.failed(waited, now, now + CAP)

    def _next(self) -> tuple[list[Waited], float]:
        now = self.timing.now()
        closed = self._breaker.ready(now)
        if closed > now:
            return [], closed
        if self._asking and not self._polls_turn:
            return [], FOREVER
        if self._alone:
            at = self._purse.take(now)
            if at > now:
                return [], at
            jobs, again = [self._alone.popleft()], now
        else:
            jobs, again = self.schedule.next(now)
        if jobs:
            self._polls_turn = False
            self._breaker.spend(now)
        return jobs, again

    async def _exchange(self, worker: _Worker, call: Call) -> Answer:
        """Sends it and follows where it is led; ServiceUnreachable when that takes too long."""
        for _ in range(REDIRECTS + 1):
            if self._signer.stale:
                await self._signer.ready()
            headers = self._signer.headers(call)
            worker.turn = self._signer.turn
            worker.until = self.timing.now() + (call.hold + ANSWER_TIMEOUT) * self.timing.speed
            try:
                answer = await self._transport.exchange(call.method, call.url, headers, call.body)
            except asyncio.CancelledError:
                if not worker.expired:
                    raise
                worker.expired = False
                worker.task.uncancel()
                raise ServiceUnreachable(
                    f"no answer from {call.url.partition('?')[0]}: it took too long"
                ) from None
            finally:
                worker.until = FOREVER
            if not 301 <= answer.status <= 308 or answer.status == 304 or self.api.reads(answer.status):
                return answer
            following = self.api.followed(call, header(answer.headers, "Location"))
            if following is None:
                return answer
            self._heard(answer, throttled=False)
            await self._turn()
            call = following
        raise BadPoll(310, "the API redirects in a circle", final=True)

    # --- one answer

    async def _ask(self, worker: _Worker, waited: Waited) -> None:
        job: Tracked = waited.key
        job.requests += 1
        held = self.api.longpoll if self.schedule.waiting <= HOLDS else None
        answer = None
        try:
            call = self.api.ask(job.ref, job.etag, held)
            answer = await self._exchange(worker, call)
            age = self.timing.now() - waited.born if job.submitted_at is not None else math.inf
            seen = self.api.read(job.ref, answer.status, answer.headers, answer.body, age)
        except ServiceUnreachable as error:
            self._unanswered(error)
            self._again(waited, error)
        except BadPoll as error:
            if answer is not None:
                self._heard(answer, isinstance(error, Throttled))
            await self._bad(worker, waited, error)
        else:
            self._heard(answer, throttled=False)
            self._saw(waited, seen, answer, call.hold)

    async def _ask_many(self, worker: _Worker, jobs: list[Waited]) -> None:
        refs = [waited.key.ref for waited in jobs]
        answer = None
        for waited in jobs:
            waited.key.requests += 1
        try:
            call = self.api.ask_many(refs)
            assert call is not None
            answer = await self._exchange(worker, call)
            found = self.api.read_many(refs, answer.status, answer.headers, answer.body)
        except ServiceUnreachable as error:
            self._unanswered(error)
            for waited in jobs:
                self._again(waited, error)
        except BadPoll as error:
            if answer is not None:
                self._heard(answer, isinstance(error, Throttled))
            if error.final and not isinstance(
                error, Denied
            ):  # it is the list that is refused, and not the jobs
                for kind in self.schedule.kinds.values():
                    kind.batch = 1
                self._alone.extend(waited for waited in jobs if waited.number == 0)
                self._kick()
                return
            for waited in jobs:
                await self._bad(worker, waited, error)
        else:
            self._heard(answer, throttled=False)
            for waited in jobs:
                seen = found.get(waited.key.ref.id)
                if seen is not None:
                    self._saw(waited, seen, answer)
                elif waited.number == 0:
                    self._alone.append(waited)
            if self._alone:
                self._kick()

    def _held(self, waited: Waited, hold: float, news: bool) -> float | None:
        """When to ask again after a question that the API was to hold; None: when it is planned.

        One that was held for long says that the job went on until the answer, not only until the question.
        """
        now = self.timing.now()
        long = now - waited.born - waited.sent > hold / 2
        if long:
            waited.sent = now - waited.born
        rate = self._purse.rate(now)
        enough = rate is None or rate > 1.5 * self.schedule.waiting / hold
        return now + GAP if (long or news) and enough else None

    def _saw(self, waited: Waited, seen: Seen, answer: Answer, hold: float = 0.0) -> None:
        job: Tracked = waited.key
        job.failures = 0
        if self._troubled:
            self._troubled = False
            log.warning("answers come again")
        if waited.number < 0:  # nobody waits for it any more
            return
        now = self.timing.now()
        before = job.seen
        at = self._held(waited, hold, not seen.unchanged) if hold else None
        if seen.unchanged and before is not None:
            self.schedule.goes_on(waited, now, None, _advice(seen), at)
            return
        if seen.etag is not None:
            job.etag = seen.etag
        job.seen = seen
        clock = instant(header(answer.headers, "Date"))
        if seen.terminal:
            took = _took(waited, now, seen, clock)
            self.schedule.ended(waited, now, took)
            self._over(job)
            return
        if seen.moved is not None:
            job.ref = job.ref.moved(seen.moved)
        if seen.state == "unknown" and seen.word not in self._words:
            self._words.add(seen.word)
            log.warning(
                "%s says %r, which its description does not know: waiting on", self.api.name, seen.word
            )
        if job.submitted_at is None and seen.started_at is not None:
            self._date(waited, now, seen.started_at, clock)
        self.schedule.goes_on(waited, now, _report(waited, now, seen, clock), _advice(seen), at)
        if before is None or (before.state, before.word, before.progress, before.message) != (
            seen.state,
            seen.word,
            seen.progress,
            seen.message,
        ):
            self._changed(job, before)

    def _date(self, waited: Waited, now: float, started: float, clock: float | None) -> None:
        """A job of somebody else: its age is what the API's clock says."""
        wall = self.timing.wall()
        age = (wall if clock is None else clock) - started
        if age > 0:
            waited.born = now - age
            waited.sent = waited.asked = age
            waited.key.submitted_at = wall - age

    def _changed(self, job: Tracked, before: Seen | None) -> None:
        if before is None or before.word != job.seen.word:  # type: ignore[union-attr]
            log.info("job %s is %s", job.ref.id, job.seen.word or job.status)  # type: ignore[union-attr]
        if self.keeper is not None:
            self.keeper.noted(job)
        for listener in job.listeners:
            listener.changed(job)

    def _over(self, job: Tracked) -> None:
        job.waited = None
        if job.seen is not None and job.seen.state in TERMINAL:
            log.info("job %s is %s", job.ref.id, job.seen.word or job.status)
        if self.keeper is None or job.error is not None:
            self._tell(job)
        else:
            task = asyncio.get_running_loop().create_task(self._keep_and_tell(self.keeper, job))
            self._endings.add(task)
            task.add_done_callback(self._endings.discard)

    async def _keep_and_tell(self, keeper: Keeper, job: Tracked) -> None:
        try:
            await keeper.ended(job)
        except Exception as error:  # a full disk: what was found out is told all the same
            log.error("the end of job %s is not in the ledger: %s", job.ref.id, error)
        self._tell(job)

    def _tell(self, job: Tracked) -> None:
        listeners, job.listeners = job.listeners, ()
        for listener in listeners:
            listener.ended(job)

    # --- bad days

    async def _bad(self, worker: _Worker, waited: Waited, error: BadPoll) -> None:
        now = self.timing.now()
        if waited.number < 0:
            return
        if isinstance(error, Throttled):
            self.schedule.failed(waited, now, now)
        elif isinstance(error, NotYet):
            waited.key.failures += 1
            self.schedule.failed(waited, now, now + min(5.0, 0.5 * 1.5**waited.key.failures))
        elif isinstance(error, Denied):
            if await self._signer.denied(worker.turn):
                self.schedule.failed(waited, now, now)
            elif error.status == 401:  # it is the same for all of them
                for one in self.schedule.jobs():
                    self._give_up(one, error)
            else:
                self._give_up(waited, error)
        elif error.final:
            self._give_up(waited, error)
        else:
            self._again(waited, error)

    def _unanswered(self, error: ServiceUnreachable) -> None:
        now = self.timing.now()
        self._breaker.failed(now)
        self._purse.heard(now, 0, {}, self.timing.wall())

    def _again(self, waited: Waited, error: Exception) -> None:
        if waited.number < 0:
            return
        if not self._troubled:
            self._troubled = True
            log.warning("%s; trying again", error)
        job: Tracked = waited.key
        now = self.timing.now()
        self.schedule.failed(waited, now, now + backoff(job.failures, BASE, CAP, self.rng))
        job.failures += 1

    def _give_up(self, waited: Waited, error: BadPoll) -> None:
        job: Tracked = waited.key
        problem = {"code": f"http-{error.status}", "detail": error.detail}
        job.error = ServiceError(error.status, problem, self.api.url or "")
        self.schedule.remove(waited)
        self._over(job)

    # --- now and then

    def _sweep_later(self) -> None:
        self._sweeper = asyncio.get_running_loop().call_later(SWEEP, self._sweep)

    def _sweep(self) -> None:
        now = self.timing.now()
        for worker in self._workers:
            if worker.until <= now and not worker.expired:
                worker.expired = True
                worker.task.cancel()
        self._sweep_later()


class _Worker:
    """One of the few that send; one sweeper ends what hangs, so that no request needs a timer of its own."""

    __slots__ = ("expired", "task", "turn", "until")

    def __init__(self) -> None:
        self.task: asyncio.Task[None]
        self.turn = 0  # of the credential that its request was sent with
        self.until = FOREVER
        self.expired = False


def _advice(seen: Seen) -> float | None:
    advice = seen.retry_after
    return None if advice is None or advice <= 0 else min(advice, LONGEST_ADVICE)


def _took(waited: Waited, now: float, seen: Seen, clock: float | None) -> float | None:
    """How long it took by the API's own times: they are read against its own clock, which may be wrong."""
    age = now - waited.born
    if seen.finished_at is None or clock is None or age - waited.asked < WORTH_TELLING:
        return None
    return age - max(0.0, clock - seen.finished_at)


def _report(waited: Waited, now: float, seen: Seen, clock: float | None) -> Report | None:
    if seen.remaining is not None and seen.remaining > 0:
        return Report("remaining", seen.remaining)
    if seen.eta is not None and clock is not None and seen.eta > clock:
        return Report("eta", seen.eta - clock)
    if seen.progress is not None:
        return by_progress(now - waited.born, 100.0 * seen.progress)
    if seen.position is not None:
        return by_position(float(seen.position))
    return None
