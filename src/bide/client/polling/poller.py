"""Polls the jobs of one credential: takes the due jobs from the schedule, sends requests, reads the answers, and
notifies the listeners.

Invariants:
1. A few workers and one timer, whatever the number of jobs: a worker takes the next due job, or waits until there is one.
2. A failed poll is not a failed job: it is retried with full jitter, behind a circuit breaker for its host.
3. A terminal answer, or one that no retry can change, ends the wait for a job; it is not polled again. The end is
   stored in the ledger, if there is one, before any listener is notified.
4. All requests use the same budget, and every answer updates it.
5. A bide service, or another API that can hold a request, holds the requests of few jobs until the job changes.
6. A bide service sends the events of many jobs on one connection: a job is polled when an event says that it has ended, and
   otherwise rarely. Without events, for example behind a proxy that buffers them, the jobs are polled as planned.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Literal, Protocol

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
    UnreadableBatch,
)
from bide.client.apis.bide import ENDINGS, BideApi
from bide.client.apis.values import origin
from bide.client.client_tracer import set_polled
from bide.client.http.sender import BudgetQueue, Sender, TracedSender, refusal
from bide.client.http.signer import Signer
from bide.client.http.transport import Transport
from bide.client.job_state import JobListener, JobState
from bide.client.polling.event_feed import EventFeed
from bide.client.polling.failure_log import FailureLog, described
from bide.client.polling.kinds import (
    KindStats,
    advice,
    by_position,
    clock_of,
    rest,
    took,
)
from bide.client.polling.planned_job import FOREVER, PlannedJob
from bide.client.polling.schedule import DEFAULTS, PollSchedule, PollSettings
from bide.client.timing import Timing
from bide.core.errors import ServiceError, ServiceUnreachable, SetupError, UnusableService
from bide.core.pacing.backoff import Breaker, backoff
from bide.core.pacing.budget import RequestBudget

log = logging.getLogger("bide.client")

HOLDS = 32  # jobs up to which requests are held; more are waited for by events
CHECK_EVERY = 60.0  # seconds between two polls of a job whose events arrive
EARLY = 2  # early answers after which the API is assumed not to hold requests
BASE, CAP = 0.5, 60.0  # backoff after a failed poll
UNREADABLE = 2  # consecutive batches from which no job can be read, after which batches are given up
DENIALS = 3  # consecutive ones, each with another credential
CANNOT_ASK = "cannot-ask"
CONNECTIONS = 64
SWEEP = 1.0  # seconds between two searches for hanging requests
GAP = 0.25  # seconds between two held requests about a job


class JobLedger(Protocol):
    """The part of a ledger that the poller writes."""

    def noted(self, job: JobState) -> None: ...

    async def ended(self, job: JobState) -> None:
        """Return after the end is on disk."""
        ...


class Worker:
    """One task that sends requests. The sweeper watches all of them, so that no request needs a timer of its own."""

    task: asyncio.Task[None]
    generation = 0  # the number of the credential that its request was sent with
    until = FOREVER  # when its request times out, by the clock of the event loop
    expired = False

    def timed_out(self) -> bool:
        """Whether only the sweeper has cancelled the task; then it continues."""
        if not self.expired or self.task.cancelling() > 1:  # by `close`, or by both at once
            return False
        self.expired = False
        self.task.uncancel()
        return True


class WorkerPool:
    """Tasks that each run `work`. An idle one waits for a job or a given time; a sweeper cancels hanging requests."""

    def __init__(self, timing: Timing, work: Callable[[Worker], Coroutine[Any, Any, None]]) -> None:
        self._timing = timing
        self._work = work
        self._workers: set[Worker] = set()
        self._idle: list[asyncio.Future[None]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._wakes_at = FOREVER
        self._sweeper = asyncio.get_running_loop().call_later(SWEEP, self._sweep)

    def wake(self, *, start: bool = True) -> bool:
        """Wake an idle worker. If there is none, return False and, with `start`, add one, up to CONNECTIONS."""
        while self._idle:
            future = self._idle.pop()
            if not future.done():
                future.set_result(None)
                return True
        if start and len(self._workers) < CONNECTIONS:
            worker = Worker()
            worker.task = asyncio.get_running_loop().create_task(self._work(worker))
            self._workers.add(worker)
        return False

    async def rest(self, until: float) -> None:
        """Return at this time, or when `wake` is called."""
        if until < self._wakes_at:
            if self._timer is not None:
                self._timer.cancel()
            self._wakes_at = until
            self._timer = self._timing.later(until, self._on_time)
        future = asyncio.get_running_loop().create_future()
        self._idle.append(future)
        await future

    def _on_time(self) -> None:
        self._timer, self._wakes_at = None, FOREVER
        self.wake(start=False)

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        for worker in self._workers:
            if worker.until <= now and not worker.expired:
                worker.expired = True
                worker.task.cancel()
        self._sweeper = loop.call_later(SWEEP, self._sweep)

    async def close(self) -> None:
        for timer in (self._timer, self._sweeper):
            if timer is not None:
                timer.cancel()
        tasks = [worker.task for worker in self._workers]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Poller:
    def __init__(
        self,
        api: Api,
        transport: Transport,
        signer: Signer,
        budget: RequestBudget,
        *,
        settings: PollSettings = DEFAULTS,
        timing: Timing | None = None,
        rng: random.Random | None = None,
        ledger: JobLedger | None = None,
    ) -> None:
        self.api = api
        self.rng = rng or random.Random()
        self.schedule = PollSchedule(
            budget,
            rng=self.rng,
            settings=settings,
            group=lambda job: api.calls.batch_group(job.ref),
        )
        self.timing = timing or Timing()
        self._ledger = ledger
        self._transport = transport
        self._signer = signer
        self.budget = budget
        self._breaker = Breaker(rng=self.rng)
        self._single_polls: deque[PlannedJob] = deque()  # due jobs that need a request of their own
        self._workers = WorkerPool(self.timing, self._work)
        wake = partial(self._workers.wake, start=False)
        self._requests = BudgetQueue(budget, self.timing, wake)
        parts = api, transport, signer, self._requests, self.timing, self._breaker
        tracer = transport.tracer
        self._traced = tracer is not None
        self.sender = Sender(*parts) if tracer is None else TracedSender(tracer, *parts)
        self._unreadable = 0  # consecutive batches from which no job could be read
        self._early = 0  # consecutive requests that the API did not hold
        self._conditional = api.form.ask.etag
        self._failures = FailureLog(api.name, self.timing)
        self._unproven = False  # no request with the newest credential has been accepted yet
        self._unknown_words: set[str] = set()  # statuses that the description does not have
        self._endings: set[asyncio.Task[None]] = set()
        self._feed: EventFeed | None = None
        if api.is_bide:
            self._feed = EventFeed(
                f"{api.url}/events",
                self.sender,
                self.timing,
                self.rng,
                on_event=self._on_event,
                on_connected=self._poll_all,
                on_disconnected=self._poll_all,
            )
        self._followed: dict[str, JobState] = {}  # jobs whose events are followed, by id
        self._ended: set[str] = set()  # of these, those that have ended according to an event

    def _about(self, job: JobState) -> dict[str, str]:
        """The `extra` of a log record about a job."""
        return {"api": self.api.name, "job_id": job.job_id}

    # --- jobs

    def watch(
        self,
        job: JobState,
        listener: JobListener,
        *,
        kind: KindStats,
        asked_at: float | None = None,
        together: int = 1,
        **options: Any,
    ) -> None:
        """Wait for a job and notify the listener.

        `asked_at` is the time of the last poll, in epoch seconds, `together` the number of jobs that the caller adds.
        """
        job.listeners += (listener,)
        if job.over:
            listener.ended(job)
        elif job.planned is None:
            now, wall = self.timing.now(), self.timing.wall()
            submitted = job.submitted_at if job.submitted_at is not None else job.since
            age = 0.0 if submitted is None else max(0.0, wall - submitted)
            asked = age if job.seen is not None else 0.0
            if asked_at is not None:
                asked = max(0.0, age - max(0.0, wall - asked_at))
            first: Literal["planned", "now", "held"] = "planned"
            if self.api.is_bide and self._can_hold(now, together):
                first = "held"
            elif job.submitted_at is None and (job.seen is None or asked_at is not None):
                first = "now"
            job.planned = self.schedule.add(
                job, now, kind=kind, age=age, asked=asked, first=first, **options
            )
            if self._feed is not None:
                self._follow(self._feed, job)
            self._workers.wake()

    def unwatch(self, job: JobState, listener: JobListener) -> None:
        job.listeners = tuple(one for one in job.listeners if one is not listener)
        if not job.listeners and job.planned is not None:
            self.schedule.remove(job.planned)
            self._failures.stopped(job)
            self._store_times(job, job.planned)
            job.planned = None
            self._unfollow(job)

    def _store_times(self, job: JobState, planned: PlannedJob) -> None:
        """Store the age and the time of the last poll, in case the caller waits for the job again."""
        now, wall = self.timing.now(), self.timing.wall()
        job.since = wall - (now - planned.submitted)
        if job.seen is not None:
            job.asked_at = wall - (now - planned.submitted - planned.asked)

    # --- events of a bide service

    def _follow(self, feed: EventFeed, job: JobState) -> None:
        """Follow the events of the job, and of those before it, if there are many jobs."""
        self._followed[job.job_id] = job
        if len(self._followed) <= HOLDS:
            return
        first = len(self._followed) == HOLDS + 1
        for one in self._followed.values() if first else (job,):
            progress = any(listener.wants_changes for listener in one.listeners)
            feed.follow(one.kind, progress=progress)

    def _unfollow(self, job: JobState) -> None:
        self._followed.pop(job.job_id, None)
        self._ended.discard(job.job_id)
        if self._feed is not None and not self._followed:
            self._feed.stop()

    def _on_event(self, job_id: str, type_: str, facts: dict[str, Any]) -> None:
        job = self._followed.get(job_id)
        if job is None or job.planned is None:
            return
        if type_ == "deleted" or facts.get("status") in ENDINGS:
            self._ended.add(job_id)
            self.schedule.poll_now(job.planned, self.timing.now())
            self._workers.wake()
        elif job.seen is not None and isinstance(self.api, BideApi):
            before, job.seen = job.seen, self.api.seen_event(job.seen, facts)
            if job.seen != before:
                self._changed(job, before, job.seen)

    def _poll_all(self) -> None:
        """Poll all jobs, because events may have been missed, or no more will come."""
        assert self._feed is not None
        now = self.timing.now()
        if self._feed.connected:
            log.info(
                "waiting for %d jobs of %s with one event stream", len(self._followed), self.api.url
            )
        for job in self._followed.values():
            if job.planned is not None:
                self.schedule.poll_now(job.planned, now)
        self._workers.wake()

    def _next_check(self, job: JobState, now: float) -> float | None:
        """When to poll a live job whose events arrive; None: as the schedule plans."""
        if self._feed is None or not self._feed.connected:
            return None
        if job.job_id in self._ended:  # the answer is older than the event
            return now + GAP
        return now + CHECK_EVERY * self.rng.uniform(0.9, 1.1)

    async def close(self) -> None:
        self._failures.close()
        if self._feed is not None:
            await self._feed.close()
        await self._workers.close()
        await asyncio.gather(*self._endings, return_exceptions=True)

    # --- workers

    async def _work(self, worker: Worker) -> None:
        while True:
            now = self.timing.now()
            jobs: list[PlannedJob] = []
            again = self._breaker.ready(now)
            if again <= now:
                while self._single_polls and self._single_polls[0].number < 0:  # its wait has ended
                    self._single_polls.popleft()
                if self._requests.waiting and not self._requests.poll_next:
                    again = FOREVER
                elif not self._single_polls:
                    jobs, again = self.schedule.next(now)
                elif (again := self.budget.take(now)) <= now:
                    jobs = [self._single_polls.popleft()]
            if not jobs:
                await self._workers.rest(again)
                continue
            self._requests.poll_next = False
            self._breaker.spend(now)
            self._workers.wake()  # more jobs may be due
            try:
                if len(jobs) == 1:
                    await self._ask(worker, jobs[0])
                else:
                    await self._ask_many(worker, jobs)
            except Exception:  # a bug in one poll must not stop the others
                log.exception("A poll failed with an unexpected error")
                now = self.timing.now()
                for planned in jobs:
                    if planned.number == 0:
                        self.schedule.failed(planned, now, now + CAP)

    # --- one answer

    def _can_hold(self, now: float, more: int = 0) -> bool:
        """Whether the API holds requests, and the budget suffices to hold one for each job, and for `more` jobs."""
        hold, jobs = self.api.longpoll, self.schedule.waiting + more
        if hold is None or self._early >= EARLY or jobs > HOLDS:
            return False
        rate = self.budget.rate(now)
        return rate is None or rate > 1.5 * jobs / hold

    async def _ask(self, worker: Worker, planned: PlannedJob) -> None:
        job: JobState = planned.key
        job.requests += 1
        answer, etag, hold = None, job.etag, None
        few = self.schedule.waiting <= HOLDS and self._early < EARLY
        few = few and not (self._feed is not None and self._feed.connected)
        if few and self.api.longpoll is not None:
            hold, etag = self._hold(job)
        try:
            call = self.api.calls.ask(job.ref, etag, hold)
            if self._traced:
                set_polled([job.context])
            answer = await self.sender.exchange(call, worker)
            # Most answers about a job are byte for byte the same as the one before.
            same = self.api.by_body and answer.status == 200 and "Retry-After" not in answer.headers
            body = hash(answer.body) if same else None
            if body is not None and body == job.body and job.seen is not None:
                seen = job.seen
            else:
                age = self.timing.now() - planned.submitted if job.submitted_at is not None else math.inf
                seen = self.api.read(job.ref, answer, age)
                job.body = body
        except (ServiceUnreachable, UnusableService) as error:
            self._unanswered([planned], error)
        except SetupError as error:  # the URL of the job is unknown
            self.sender.record_no_answer()
            self._give_up(planned, ServiceError(0, {"code": CANNOT_ASK, "detail": str(error)}))
        except BadPoll as error:
            await self._poll_failed(worker, planned, error, answer)
        else:
            at = None
            if few and not seen.terminal:
                changed = etag is not None and not seen.unchanged
                at = self._next_hold(planned, call.hold, changed, seen.etag is not None)
            self._update(planned, seen, answer, at)

    def _hold(self, job: JobState) -> tuple[float | None, str | None]:
        """Return the seconds for which the API should hold a request, and the ETag to compare.

        With an ETag it answers at any change, without one only at the end. If a listener wants changes and no ETag is
        known yet, the first request is not held.
        """
        if not self._conditional:
            return self.api.longpoll, None
        if not any(listener.wants_changes for listener in job.listeners):
            return self.api.longpoll, None
        return (None if job.etag is None else self.api.longpoll), job.etag

    def _next_hold(
        self, planned: PlannedJob, hold: float, changed: bool, comparable: bool
    ) -> float | None:
        """When to send the next held request; None: as the schedule plans.

        After a long hold the job is known to be live until the answer, not only until the request. An early answer without
        a change means that the API does not hold requests; after EARLY of them the client stops asking for that.
        """
        now = self.timing.now()
        sent = planned.submitted + planned.sent
        if hold and now - sent > hold / 2:
            planned.sent = now - planned.submitted
            self._early = 0
        elif hold and not changed:
            self._early += 1
            return None
        elif not hold and not comparable:
            return None
        return max(now, sent + GAP) if self._can_hold(now) else None

    async def _ask_many(self, worker: Worker, jobs: list[PlannedJob]) -> None:
        if self._can_hold(self.timing.now()):
            self._single_polls.extend(jobs[1:])
            self._workers.wake()
            await self._ask(worker, jobs[0])
            return
        refs = [planned.key.ref for planned in jobs]
        call = self.api.calls.ask_many(refs)
        if call is None:
            self.sender.record_no_answer()
            self._queue_single_polls(jobs)
        else:
            await self._ask_together(worker, jobs, refs, call)

    async def _ask_together(
        self, worker: Worker, jobs: list[PlannedJob], refs: list[Ref], call: Call
    ) -> None:
        answer = None
        for planned in jobs:
            planned.key.requests += 1
        try:
            if self._traced:
                set_polled([planned.key.context for planned in jobs])
            answer = await self.sender.exchange(call, worker)
            found = self.api.read_many(refs, answer)
        except (ServiceUnreachable, UnusableService) as error:
            self._unanswered(jobs, error)
        except UnreadableBatch as error:
            self._unreadable_batch(jobs, error)
        except BadPoll as error:
            # The API rejects the list, not the jobs, unless it rejects every request in this way.
            if error.final and error.status not in (401, 310):
                self._disable_batches(jobs)
                return
            for planned in jobs:
                await self._poll_failed(worker, planned, error, answer)
        else:
            self._unreadable = 0
            for planned in jobs:
                seen = found.get(planned.key.ref.id)
                if seen is not None:
                    self._update(planned, seen, answer)
                elif planned.number == 0:
                    self._single_polls.append(planned)
            if self._single_polls:
                self._workers.wake()

    def _unreadable_batch(self, jobs: list[PlannedJob], error: UnreadableBatch) -> None:
        """Poll each job in a request of its own: this time, and if it happens again, from now on."""
        self._unreadable += 1
        if self._unreadable < UNREADABLE:
            self._queue_single_polls(jobs)
            return
        if self._unreadable == UNREADABLE:  # others may be on their way
            log.warning(
                "No job can be read from a batch of %s: %s. Each job is polled in a request of its own from now on. "
                "Correct [batch] in the description",
                self.api.name,
                error.detail,
            )
        self._disable_batches(jobs)

    def _disable_batches(self, jobs: list[PlannedJob]) -> None:
        """Poll each job in a request of its own from now on, because the API rejects a request for several."""
        for kind in self.schedule.kinds.values():
            kind.batch = 1
        self._queue_single_polls(jobs)

    def _queue_single_polls(self, jobs: list[PlannedJob]) -> None:
        """Poll each of these jobs in a request of its own, this time."""
        self._single_polls.extend(planned for planned in jobs if planned.number == 0)
        self._workers.wake()

    def _update(self, planned: PlannedJob, seen: Seen, answer: Answer, at: float | None = None) -> None:
        """`at` is the time of the next poll if the job is live; None: as the schedule plans."""
        job: JobState = planned.key
        job.failures, job.denied, self._unproven = 0, 0, False
        self._failures.answered(job)
        if planned.number < 0:  # its wait has ended
            return
        now = self.timing.now()
        before = job.seen
        alone = at is not None
        at = at if alone else self._next_check(job, now)
        if seen.unchanged and before is not None:
            self.schedule.still_live(planned, now, None, advice(seen), at, alone)
            return
        if seen.etag is not None:
            job.etag = seen.etag
        if seen.terminal:
            job.take(self._signer.hide_in_error(seen))
            if before is None and job.submitted_at is None:
                self.schedule.found_ended(planned, now, seen.duration)
            else:
                self.schedule.ended(
                    planned, now, took(now - planned.submitted, planned.asked, seen, answer)
                )
            self._finish(job)
            return
        job.seen = seen
        if seen.moved is not None:
            job.ref = job.ref.moved(seen.moved)
        if seen.state == "unknown" and seen.word not in self._unknown_words:
            self._unknown_words.add(seen.word)
            log.warning(
                "Job %s has the status %r, which the description of %s does not have. The wait continues. Add the status "
                "to a list in [read] of the description: live, done, failed, cancelled or partial",
                job.job_id,
                seen.word,
                self.api.name,
                extra=self._about(job),
            )
        if job.submitted_at is None and seen.started_at is not None:
            self._set_age(planned, now, seen.started_at, clock_of(answer))
        report = rest(seen, answer)
        if report is None and seen.progress is not None:
            report = planned.progressed(now - planned.submitted, 100.0 * seen.progress)
        elif report is None and seen.position is not None:
            report = by_position(float(seen.position))
        self.schedule.still_live(planned, now, report, advice(seen), at, alone)
        if before is None or (
            seen is not before
            and (seen.state, seen.word, seen.progress, seen.message)
            != (before.state, before.word, before.progress, before.message)
        ):
            self._changed(job, before, seen)

    def _set_age(self, planned: PlannedJob, now: float, started: float, clock: float | None) -> None:
        """Set the age of a job that another process submitted, by the API's own clock."""
        wall = self.timing.wall()
        age = (wall if clock is None else clock) - started
        if age > 0:
            planned.submitted = now - age
            planned.sent = planned.asked = age
            planned.key.submitted_at = wall - age

    def _changed(self, job: JobState, before: Seen | None, seen: Seen) -> None:
        if before is None or before.word != seen.word:
            log.info("job %s is %s", job.job_id, seen.word or job.status, extra=self._about(job))
        if self._ledger is not None:
            self._ledger.noted(job)
        for listener in job.listeners:
            listener.changed(job)

    def _finish(self, job: JobState) -> None:
        job.planned = None
        self._unfollow(job)
        if job.seen is not None and job.seen.state in TERMINAL:
            log.info("job %s is %s", job.job_id, job.seen.word or job.status, extra=self._about(job))
        if self._ledger is not None and job.error is None:
            task = asyncio.get_running_loop().create_task(self._store_and_notify(self._ledger, job))
            self._endings.add(task)
            task.add_done_callback(self._endings.discard)
            return
        listeners, job.listeners = job.listeners, ()
        for listener in listeners:
            listener.ended(job)

    async def _store_and_notify(self, ledger: JobLedger, job: JobState) -> None:
        try:
            await ledger.ended(job)
        except Exception as error:  # for example a full disk: the end is reported anyway
            log.error(
                "The end of job %s was not written to the ledger: %s",
                job.job_id,
                error,
                extra=self._about(job),
            )
        listeners, job.listeners = job.listeners, ()
        for listener in listeners:
            listener.ended(job)

    # --- failures

    async def _poll_failed(
        self, worker: Worker, planned: PlannedJob, error: BadPoll, answer: Answer | None
    ) -> None:
        now = self.timing.now()
        if planned.number < 0:
            return
        if isinstance(error, Throttled):
            self.schedule.failed(planned, now, now)
        elif isinstance(error, NotYet):
            planned.key.failures += 1
            self.schedule.failed(planned, now, now + min(5.0, 0.5 * 1.5**planned.key.failures))
        elif isinstance(error, Denied):
            await self._denied(worker, planned, error, answer)
        elif error.final:
            self._give_up(planned, refusal(error, self.api, answer))
        else:
            self._retry_later(planned, described(self.api.form.ask.method, error, answer))

    async def _denied(
        self, worker: Worker, planned: PlannedJob, error: Denied, answer: Answer | None
    ) -> None:
        """Renew the credential and poll again: a few times, and only while the API accepts renewed credentials."""
        job: JobState = planned.key
        newest = worker.generation == self._signer.generation
        renewed = False
        # A 403 rarely means an expired credential.
        most = DENIALS if error.status == 401 else 1
        if job.denied < most and not (newest and self._unproven and error.status == 401):
            renewed = await self._signer.denied(worker.generation)
        if planned.number < 0:  # its wait has ended
            return
        if renewed:
            job.denied += 1
            self._unproven = self._unproven or newest
            now = self.timing.now()
            self.schedule.failed(planned, now, now)
        elif error.status == 401:  # all jobs have the same credential
            for one in self.schedule.jobs():
                self._give_up(one, refusal(error, self.api, answer))
        else:
            self._give_up(planned, refusal(error, self.api, answer))

    def _retry_later(self, planned: PlannedJob, failure: str) -> None:
        if planned.number < 0:
            return
        job: JobState = planned.key
        self._failures.failed(job, failure)
        now = self.timing.now()
        self.schedule.failed(planned, now, now + backoff(job.failures, BASE, CAP, self.rng))
        job.failures += 1

    def _unanswered(self, jobs: list[PlannedJob], error: ServiceUnreachable | UnusableService) -> None:
        """Poll the jobs again. An error that no retry can change ends the wait for all jobs at the same origin."""
        self.sender.record_failed_poll()
        if isinstance(error, ServiceUnreachable):
            for planned in jobs:
                self._retry_later(planned, str(error))
            return
        origins = {self._origin(planned) for planned in jobs}
        for planned in self.schedule.jobs():
            if self._origin(planned) in origins:
                self._give_up(planned, error)

    def _origin(self, planned: PlannedJob) -> tuple[str, str, int] | None:
        return origin(self.api.calls.ask(planned.key.ref).url)

    def _give_up(self, planned: PlannedJob, error: ServiceError) -> None:
        job: JobState = planned.key
        job.error = error
        self._failures.stopped(job)
        self.schedule.remove(planned)
        self._finish(job)
