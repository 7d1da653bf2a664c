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
    Answer,
    Api,
    BadPoll,
    Call,
    Denied,
    NotYet,
    Ref,
    Seen,
    Throttled,
)
from bide.client.apis.values import origin
from bide.client.http.sender import Sender, refusal
from bide.client.http.signer import Signer
from bide.client.http.transport import Transport
from bide.client.polling.evidence import advice, clock_of, report, took
from bide.client.polling.kinds import Kind
from bide.client.polling.planned_job import FOREVER, Waited
from bide.client.polling.schedule import Schedule
from bide.client.polling.workers import Crew, Worker
from bide.client.timing import Timing
from bide.client.tracked import Listener, Tracked
from bide.core.budget import RequestBudget
from bide.core.errors import ServiceError, ServiceUnreachable, SetupError, UnusableService
from bide.core.pacing import PRICE
from bide.core.retry import Breaker, backoff

log = logging.getLogger("bide.client")

HOLDS = 32  # jobs up to which long polls are used
EARLY = 2  # answers that come back at once show that an API does not hold them
BASE, CAP = 0.5, 60.0  # backoff after a failed poll
DENIALS = 3  # in a row, each of another credential
CANNOT_ASK = "cannot-ask"
GAP = 0.25  # seconds between two questions that the API holds


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
        purse: RequestBudget,
        *,
        price: float = PRICE,
        timing: Timing | None = None,
        rng: random.Random | None = None,
        keeper: Keeper | None = None,
    ) -> None:
        self.api = api
        self.rng = rng or random.Random()
        self.schedule = Schedule(
            purse, rng=self.rng, price=price, group=lambda job: api.calls.batch_group(job.ref)
        )
        self.timing = timing or Timing()
        self.keeper = keeper
        self._transport = transport
        self._signer = signer
        self._purse = purse
        self._breaker = Breaker(rng=self.rng)
        self._alone: deque[Waited] = deque()  # that an answer about many did not tell of
        self._crew = Crew(self.timing, self._work)
        self.sender = Sender(api, transport, signer, purse, self.timing, self._breaker, self._wake)
        self._early = 0  # answers in a row that were to be held and were not
        self._troubled = False
        self._unproven = False  # the credential is new, for the one before was denied: not taken yet
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
            if job.submitted_at is None and (job.seen is None or asked_at is not None):
                self.schedule.hurry(job.waited, now)
            self._crew.kick()

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
        await self._crew.close()
        await asyncio.gather(*self._endings, return_exceptions=True)

    # --- workers

    def _wake(self) -> bool:
        """Wakes a worker if any job is waited for, and returns whether one is."""
        if not self.schedule.waiting:
            return False
        self._crew.kick()
        return True

    async def _work(self, worker: Worker) -> None:
        while True:
            jobs, again = self._next()
            if not jobs:
                await self._crew.rest(again)
                continue
            self._crew.kick()  # there may be more
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
        if self.sender.asking and not self.sender.polls_turn:
            return [], FOREVER
        while self._alone and self._alone[0].number < 0:  # nobody waits for it any more
            self._alone.popleft()
        if self._alone:
            at = self._purse.take(now)
            if at > now:
                return [], at
            jobs, again = [self._alone.popleft()], now
        else:
            jobs, again = self.schedule.next(now)
        if jobs:
            self.sender.polls_turn = False
            self._breaker.spend(now)
        return jobs, again

    # --- one answer

    async def _ask(self, worker: Worker, waited: Waited) -> None:
        job: Tracked = waited.key
        job.requests += 1
        few = self.schedule.waiting <= HOLDS and self._early < EARLY
        answer, etag = None, job.etag
        try:
            call = self.api.calls.ask(job.ref, etag, self.api.longpoll if few else None)
            answer = await self.sender.exchange(call, worker)
            seen = self._read(waited, job, answer)
        except (ServiceUnreachable, UnusableService) as error:
            self._unanswered([waited], error)
        except SetupError as error:  # it has no address that could be asked
            self.sender.unsent()
            self._give_up(waited, ServiceError(0, {"code": CANNOT_ASK, "detail": str(error)}))
        except BadPoll as error:
            if answer is not None:
                self.sender.heard(answer, isinstance(error, Throttled))
            await self._bad(worker, waited, error)
        else:
            self.sender.heard(answer, throttled=False)
            held = call.hold and not seen.terminal
            at = self._held(waited, call.hold, etag is not None) if held else None
            self._saw(waited, seen, answer, at)

    def _read(self, waited: Waited, job: Tracked, answer: Answer) -> Seen:
        """What it says. Most answers about a job are the very same as the one before, byte for byte."""
        same = self.api.by_body and answer.status == 200 and "Retry-After" not in answer.headers
        body = hash(answer.body) if same else None
        if body is not None and body == job.body and job.seen is not None:
            return job.seen
        age = self.timing.now() - waited.born if job.submitted_at is not None else math.inf
        seen = self.api.read(job.ref, answer, age)
        job.body = body
        return seen

    async def _ask_many(self, worker: Worker, jobs: list[Waited]) -> None:
        refs = [waited.key.ref for waited in jobs]
        call = self.api.calls.ask_many(refs)
        if call is None:
            self.sender.unsent()
            self._ask_each(jobs)
        else:
            await self._ask_together(worker, jobs, refs, call)

    async def _ask_together(
        self, worker: Worker, jobs: list[Waited], refs: list[Ref], call: Call
    ) -> None:
        answer = None
        for waited in jobs:
            waited.key.requests += 1
        try:
            answer = await self.sender.exchange(call, worker)
            found = self.api.read_many(refs, answer)
        except (ServiceUnreachable, UnusableService) as error:
            self._unanswered(jobs, error)
        except BadPoll as error:
            if answer is not None:
                self.sender.heard(answer, isinstance(error, Throttled))
            # It is the list that is refused, and not the jobs; unless nothing of the API can be reached so.
            if error.final and error.status not in (401, 310):
                self._ask_alone(jobs)
                return
            for waited in jobs:
                await self._bad(worker, waited, error)
        else:
            self.sender.heard(answer, throttled=False)
            for waited in jobs:
                seen = found.get(waited.key.ref.id)
                if seen is not None:
                    self._saw(waited, seen, answer)
                elif waited.number == 0:
                    self._alone.append(waited)
            if self._alone:
                self._crew.kick()

    def _ask_alone(self, jobs: list[Waited]) -> None:
        """From now on, for the API has no list."""
        for kind in self.schedule.kinds.values():
            kind.batch = 1
        self._ask_each(jobs)

    def _ask_each(self, jobs: list[Waited]) -> None:
        """With a request each, this time."""
        self._alone.extend(waited for waited in jobs if waited.number == 0)
        self._crew.kick()

    def _held(self, waited: Waited, hold: float, compared: bool) -> float | None:
        """When to ask again after a question that the API was to hold; None: when it is planned.

        One that was held for long says that the job went on until the answer, not only until the question. One that comes
        back early has news when there was an ETag to compare; else the API does not hold, and is not asked to any more.
        """
        now = self.timing.now()
        long = now - waited.born - waited.sent > hold / 2
        if long:
            waited.sent = now - waited.born
            self._early = 0
        elif not compared:
            self._early += 1
            return None
        rate = self._purse.rate(now)
        return now + GAP if rate is None or rate > 1.5 * self.schedule.waiting / hold else None

    def _saw(self, waited: Waited, seen: Seen, answer: Answer, at: float | None = None) -> None:
        """`at`: when to ask again if it goes on; None: when it is planned."""
        job: Tracked = waited.key
        job.failures, job.denied, self._unproven = 0, 0, False
        if self._troubled:
            self._troubled = False
            log.warning("answers come again")
        if waited.number < 0:  # nobody waits for it any more
            return
        now = self.timing.now()
        before = job.seen
        if seen.unchanged and before is not None:
            self.schedule.goes_on(waited, now, None, advice(seen), at)
            return
        if seen.etag is not None:
            job.etag = seen.etag
        if seen.terminal:
            job.take(seen)
            self.schedule.ended(waited, now, took(waited, now, seen, answer))
            self._over(job)
            return
        job.seen = seen
        if seen.moved is not None:
            job.ref = job.ref.moved(seen.moved)
        if seen.state == "unknown" and seen.word not in self._words:
            self._words.add(seen.word)
            log.warning(
                "%s says %r, which its description does not know: waiting on", self.api.name, seen.word
            )
        if job.submitted_at is None and seen.started_at is not None:
            self._date(waited, now, seen.started_at, clock_of(answer))
        self.schedule.goes_on(waited, now, report(waited, now, seen, answer), advice(seen), at)
        if seen is before:
            return
        if before is None or (before.state, before.word, before.progress, before.message) != (
            seen.state,
            seen.word,
            seen.progress,
            seen.message,
        ):
            self._changed(job, before, seen)

    def _date(self, waited: Waited, now: float, started: float, clock: float | None) -> None:
        """A job of somebody else: its age is what the API's clock says."""
        wall = self.timing.wall()
        age = (wall if clock is None else clock) - started
        if age > 0:
            waited.born = now - age
            waited.sent = waited.asked = age
            waited.key.submitted_at = wall - age

    def _changed(self, job: Tracked, before: Seen | None, seen: Seen) -> None:
        if before is None or before.word != seen.word:
            log.info("job %s is %s", job.job_id, seen.word or job.status)
        if self.keeper is not None:
            self.keeper.noted(job)
        for listener in job.listeners:
            listener.changed(job)

    def _over(self, job: Tracked) -> None:
        job.waited = None
        if job.seen is not None and job.seen.state in TERMINAL:
            log.info("job %s is %s", job.job_id, job.seen.word or job.status)
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
            log.error("the end of job %s is not in the ledger: %s", job.job_id, error)
        self._tell(job)

    def _tell(self, job: Tracked) -> None:
        listeners, job.listeners = job.listeners, ()
        for listener in listeners:
            listener.ended(job)

    # --- bad days

    async def _bad(self, worker: Worker, waited: Waited, error: BadPoll) -> None:
        now = self.timing.now()
        if waited.number < 0:
            return
        if isinstance(error, Throttled):
            self.schedule.failed(waited, now, now)
        elif isinstance(error, NotYet):
            waited.key.failures += 1
            self.schedule.failed(waited, now, now + min(5.0, 0.5 * 1.5**waited.key.failures))
        elif isinstance(error, Denied):
            await self._denied(worker, waited, error)
        elif error.final:
            self._give_up(waited, refusal(error, self.api))
        else:
            self._again(waited, error)

    async def _denied(self, worker: Worker, waited: Waited, error: Denied) -> None:
        """With another credential the question is asked again: a few times, and only while such credentials are taken."""
        job: Tracked = waited.key
        newest = worker.turn == self._signer.turn
        renewed = False
        most = (
            DENIALS if error.status == 401 else 1
        )  # what is forbidden hardly is because of the credential's age
        if job.denied < most and not (newest and self._unproven and error.status == 401):
            renewed = await self._signer.denied(worker.turn)
        if waited.number < 0:  # let go meanwhile
            return
        if renewed:
            job.denied += 1
            self._unproven = self._unproven or newest
            now = self.timing.now()
            self.schedule.failed(waited, now, now)
        elif error.status == 401:  # it is the same for all of them
            for one in self.schedule.jobs():
                self._give_up(one, refusal(error, self.api))
        else:
            self._give_up(waited, refusal(error, self.api))

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

    def _unanswered(self, jobs: list[Waited], error: ServiceUnreachable | UnusableService) -> None:
        """They are asked about again. What no retry mends ends the wait for all jobs at the same origin."""
        self.sender.unanswered()
        if isinstance(error, ServiceUnreachable):
            for waited in jobs:
                self._again(waited, error)
            return
        origins = {self._origin(waited) for waited in jobs}
        for waited in self.schedule.jobs():
            if self._origin(waited) in origins:
                self._give_up(waited, error)

    def _origin(self, waited: Waited) -> tuple[str, str, int] | None:
        return origin(self.api.calls.ask(waited.key.ref).url)

    def _give_up(self, waited: Waited, error: ServiceError) -> None:
        job: Tracked = waited.key
        job.error = error
        self.schedule.remove(waited)
        self._over(job)
