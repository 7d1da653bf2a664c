"""One schedule per credential: it decides which of the waiting jobs to poll next, within the budget.

All decisions are pure functions of (state, now, rng); `now` is in monotonic seconds. The caller polls the jobs that
`next` returns and reports each outcome once: `still_live`, `ended` or `failed`.

Invariants:
1. No task or timer per job: one queue, ordered by the time at which each job is due.
2. `next` takes each request that it returns from the budget.
3. A job is due no later than its longest silence after the last poll. While fewer than three ends of a kind are known,
   that is half of the job's age, as far as half of the budget allows for each kind.
4. The price is never below the floor. It rises until the due jobs fit the budget: it is the moving average of the
   price at which jobs are polled. A job is planned at the current price. Jobs whose price or knowledge is out of date
   are planned again at the head of the queue and a few at a time in a round-robin scan, so that no change touches all
   of them at once.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Hashable
from typing import Any, Literal, NamedTuple, TypedDict, Unpack

from bide.client.job_state import Expected
from bide.client.polling.kinds import ENOUGH, SIZES, KindStats, ProgressReport, by_expectation
from bide.client.polling.planned_job import FOREVER, PlannedJob
from bide.client.polling.time_queue import Queued, TimeQueue
from bide.client.polling_options import JITTER, LONGEST_INTERVAL, Size
from bide.core.pacing.advice import Advice, Load, advise
from bide.core.pacing.budget import RequestBudget
from bide.core.pacing.intervals import PRICE

STALE = 0.8  # a plan made at less than this part of the price is made again before it is used
LEAST_PRICE = 0.01  # the part of the price that is left with the most jitter
FIRST_INTERVAL = 1.0  # seconds; of a backoff
FEW = 500  # jobs up to which the round-robin scan checks several at a time
# Of a first job: its longest silence as a part of its age, the least length of that, and the age at its first poll.
FIRST_SILENCE, LEAST_FIRST_SILENCE, FIRST_LOOK = 0.5, 0.5, 1.0
FIRST_SHARE = 0.5  # of the budget: what first jobs of a kind take if they are many
NEXT_LOOK = 0.02  # the least number of seconds between two checks of a batch
MOST_REPLANS = 16  # at the head of the queue, in one call


class PollSettings(NamedTuple):
    """The price, and intervals in seconds. None: as planned. See PollingOptions."""

    price: float = PRICE
    first: float | None = None
    longest: float | None = None
    jitter: float | None = None
    backoff: float | None = None


DEFAULTS = PollSettings()


class PlanOptions(TypedDict, total=False):
    """The caller's knowledge of a job."""

    expected: Expected | None  # its duration in seconds
    size: Size | None
    deadline: float  # a time


class PollSchedule:
    def __init__(
        self,
        budget: RequestBudget,
        *,
        rng: random.Random,
        settings: PollSettings = DEFAULTS,
        group: Callable[[Any], Hashable] = lambda key: (),
    ) -> None:
        """One request can poll several jobs of the same kind and `group`, which is computed from a job's key."""
        self.budget = budget
        self._group = group
        self.settings = settings
        self.floor = self.price = settings.price
        self._patience = max(1.0, settings.price / PRICE)  # a higher price asks for fewer requests
        self._longest, self._backoff = settings.longest, settings.backoff
        self._first = settings.first
        if self._first is None and self._backoff is not None:
            self._first = FIRST_INTERVAL
        # A silence grows with the square root of the price.
        self._cheapest, self._spread = 1.0 - 2.0 * JITTER, 4.0 * JITTER
        self._jitter = JITTER if settings.jitter is None else settings.jitter
        if settings.jitter is not None:
            self._cheapest = max(LEAST_PRICE, (1.0 - self._jitter) ** 2)
            self._spread = (1.0 + self._jitter) ** 2 - self._cheapest
        self.kinds: dict[Hashable, KindStats] = {}
        self.waiting = 0
        self._random = rng.random
        self._queue: TimeQueue[PlannedJob] = TimeQueue()
        self._batches: dict[tuple[KindStats, Hashable], JobBatch] = {}
        self._number = 0
        self._ring: list[PlannedJob] = []
        self._ring_index = 0

    def kind(self, name: Hashable, batch: int = 1, size: Size | None = None) -> KindStats:
        """The statistics of a kind, or of one size of it."""
        name = name if size is None else (name, size)
        kind = self.kinds.get(name)
        if kind is None:
            kind = self.kinds[name] = KindStats(batch=batch)
            if size is not None:
                kind.expect(SIZES[size].expected)
        return kind

    def add(
        self,
        key: Any,
        now: float,
        *,
        kind: KindStats,
        age: float = 0.0,
        asked: float = 0.0,
        first: Literal["planned", "now", "held"] = "planned",
        **options: Unpack[PlanOptions],
    ) -> PlannedJob:
        """Add a job that is `age` seconds old and was last polled at age `asked`.

        `first` is the time of its next poll: as planned; now, because its age is unknown and it may have ended already;
        or now in a request that the API holds until a change.
        """
        expected, size = options.get("expected"), options.get("size")
        job = PlannedJob(key, kind, now - age, self._group(key))
        job.asked = asked
        job.deadline = options.get("deadline", FOREVER)
        if size is not None:
            job.shortest, job.longest, _ = SIZES[size]
        if self._longest is not None:
            job.longest = self._longest
            job.shortest = min(job.shortest, (1.0 - self._jitter) * self._longest)
        if expected is not None:
            report = by_expectation(expected)
            kind.hint = report.left
            job.apply_report(report, self.price, 0.0, now)
        self.waiting += 1
        kind.plans.sketch.waiting += 1
        self._ring.append(job)
        if self._first is not None:
            job.interval = self._first
        if self._first is not None and asked < self._first:
            at = job.submitted + self._first * (1.0 + self._jitter * self._random())
            self._push(job, _by_deadline(job, max(now, at), now), given=True, alone=first == "held")
        elif first == "planned":
            self._plan(job, now)
        else:
            self._push(job, now, given=True, alone=first == "held")
        return job

    def next(self, now: float) -> tuple[list[PlannedJob], float]:
        """The jobs to poll in one request now; or none, and the time at which to call again."""
        ready = self.budget.ready(now)
        if ready > now:
            return [], ready if self.waiting else FOREVER
        if self._batches:
            jobs, again = self._next_batch(now)
            if jobs or again > now:
                return jobs, again
        queue, price, floor = self._queue, self.price, self.floor
        again, replans = FOREVER, 0
        while (head := queue.head()) is not None:
            due, number, job = -head[0], head[1], head[2]
            if number != job.number:
                queue.pop()
                continue
            if due > now:
                # The budget has a request to spare, so the price was too high: poll a job that is worth the floor now.
                again = due if price <= floor or job.given else min(due, _worth_it(job, floor))
                if again > now:
                    break
            elif job.made < STALE * price and not job.given and replans < MOST_REPLANS:
                replans += 1
                due = self._due(job, now)
                if due > now:
                    queue.pop()
                    self._push(job, due)
                    continue
            taken = self.budget.take(now)
            if taken > now:  # another process took it first
                return [], taken
            queue.pop()
            worth = job.made * _square(now - job.submitted - job.asked, job.planned - job.asked)
            self._granted(job, now)
            self._adapt_price(worth)
            return [job], now
        if self._batches:
            again = min(again, *(batch.look() for batch in self._batches.values()))
        return [], again

    def _next_batch(self, now: float) -> tuple[list[PlannedJob], float]:
        """The jobs of a batch; none and a later time if a batch is due but the budget does not grant it yet."""
        for batch in self._batches.values():
            if batch.look() <= now:
                jobs, lost = batch.gather(now, self.floor)
                if jobs:
                    taken = self.budget.take(now)
                    if taken > now:
                        for job in jobs:
                            batch.push(now, job.number, job)
                        return [], taken
                    for job in jobs:
                        self._granted(job, now)
                    self._adapt_price(lost)
                    return jobs, now
        return [], now

    def _granted(self, job: PlannedJob, now: float) -> None:
        job.number = 0
        job.sent = now - job.submitted

    def _adapt_price(self, worth: float) -> None:
        """Move the price towards the price of a request."""
        price = self.price + (worth - self.price) * 2.0 / (self.waiting + 40.0)
        self.price = price if price > self.floor else self.floor

    def still_live(
        self,
        job: PlannedJob,
        now: float,
        report: ProgressReport | None = None,
        after: float | None = None,
        at: float | None = None,
        alone: bool = True,
    ) -> None:
        """The job is live. `report` is the rest of the job, `after` the seconds for which the API wants no poll.

        `at` is the time of the next poll, instead of a plan, because the API holds the request until a change, or sends
        events. `alone`: that poll is not shared with other jobs.
        """
        job.kind.plans.sketch.survived(job.asked, job.sent)
        job.asked = job.sent
        if self._backoff is not None:
            job.interval = min(self._longest or LONGEST_INTERVAL, job.interval * self._backoff)
        if report is not None:
            job.apply_report(report, self.price, job.asked, now)
        if after is not None:
            job.not_before = now + after
        if at is None:
            self._plan(job, now)
        else:
            self._push(job, at, given=True, alone=alone)
        self._refresh_plans(now)

    def ended(self, job: PlannedJob, now: float, took: float | None = None) -> None:
        """The job has ended; `took` is its duration if the API reports it."""
        low, age, sketch = job.asked, now - job.submitted, job.kind.plans.sketch
        if took is not None and low <= took <= age:
            sketch.learn_between(took, took)
            sketch.survived(low, took)
            low = age = took
        else:
            sketch.learn_between(low, age)
        for source, (origin, left) in (job.reports or {}).items():
            sketch = job.kind.reports[source].sketch
            since = max(0.0, (low - origin) / left)
            sketch.survived(0.0, since)
            sketch.learn_between(since, max(since, (age - origin) / left))
        self.remove(job)
        self._refresh_plans(now)

    def found_ended(self, job: PlannedJob, now: float, duration: float | None) -> None:
        """The first poll of a job of unknown age found it ended, so only the times of the API say how long it took."""
        if duration is not None:
            job.kind.plans.sketch.learn(duration)
        self.remove(job)
        self._refresh_plans(now)

    def failed(self, job: PlannedJob, now: float, until: float) -> None:
        """The poll failed: the next one is not before `until`."""
        job.not_before = until
        self._plan(job, now)

    def poll_now(self, job: PlannedJob, now: float) -> None:
        """Poll a job as soon as the budget allows it, because it may have changed. Not if a poll is pending."""
        if job.number > 0:
            self._push(job, now, given=True)

    def remove(self, job: PlannedJob) -> None:
        """Stop waiting for the job."""
        if job.number >= 0:
            job.number = -1
            self.waiting -= 1
            job.kind.plans.sketch.waiting -= 1

    def jobs(self) -> list[PlannedJob]:
        """All waiting jobs."""
        return [job for job in self._ring if job.number >= 0]

    def advice(self, now: float) -> Advice | None:
        """Whether the budget suffices for the waiting jobs; None while their durations are unknown."""
        loads = [
            Load(kind.waiting / kind.batch, table)
            for kind in self.kinds.values()
            if kind.waiting and (table := kind.outlook()) is not None
        ]
        return advise(loads, self.budget.rate(now), self.floor) if loads else None

    def _plan(self, job: PlannedJob, now: float) -> None:
        """Set the time of the next poll, at the current price."""
        if self._backoff is not None:
            at = max(job.submitted + job.asked + self._jittered(job.interval), job.not_before)
            self._push(job, _by_deadline(job, at, now), given=True)
        else:
            self._push(job, self._due(job, now))

    def _due(self, job: PlannedJob, now: float) -> float:
        """Plan the next poll at the current price. Return its time."""
        random = self._random
        if self._longest is not None:
            job.longest = self._longest * (1.0 - self._jitter * random())
        kind = job.kind
        price = self.price / kind.batch * (self._cheapest + self._spread * random())
        dice = random() if self._jitter else 0.5
        if job.deadline != FOREVER:
            price /= job.weight(now)
        if job.leads and job.report is not None:
            plans, scale = job.report, job.scale
            at = plans.at(price / scale, now, dice).next((job.asked - job.origin) / scale)
            age = job.origin + at * scale
        else:
            plans = kind.plans
            age = plans.at(price, now, dice).next(job.asked)
        job.version = plans.version
        age = max(age, job.asked + job.shortest)
        job.latest = latest = job.asked + job.longest
        job.planned = age = age if age < latest else latest
        job.made = self.price
        if not kind.known:
            sooner = 1.0 - 0.5 * self._jitter * dice
            silence = self._first_silence(job, age - job.asked, now) * sooner
            job.latest = latest = min(latest, job.asked + max(job.shortest, silence))
            age = min(age, latest)
        due = job.submitted + age
        if now < job.deadline < due:
            due = job.deadline
        return due if due > job.not_before else job.not_before

    def _first_silence(self, job: PlannedJob, planned: float, now: float) -> float:
        """The longest silence of a job of whose kind hardly anything is known: a part of its age, whatever a report says.

        If many such jobs wait, it is so long that their polls together take FIRST_SHARE of the budget.
        """
        kind = job.kind
        silence = max(LEAST_FIRST_SILENCE, FIRST_SILENCE * job.asked) if job.asked else FIRST_LOOK
        if kind.waiting > ENOUGH and (planned > silence or kind.batch > 1):
            rate = self.budget.rate(now)
            if rate is not None:
                silence = max(silence, kind.waiting / (kind.batch * FIRST_SHARE * rate))
        return silence * self._patience

    def _jittered(self, interval: float) -> float:
        longest, jitter, dice = self._longest or LONGEST_INTERVAL, self._jitter, self._random()
        if interval >= longest:
            return longest * (1.0 - jitter * dice)
        return min(longest, interval * (1.0 - jitter + 2.0 * jitter * dice))

    def _push(self, job: PlannedJob, due: float, *, given: bool = False, alone: bool = False) -> None:
        """Add the next poll of a job. `given`: this time is not a plan; `alone`: it is not polled with other jobs."""
        kind = job.kind
        job.made, job.given = self.price, given
        if given:
            job.planned = job.asked
        self._number += 1
        job.number = self._number
        if kind.batch > 1 and not alone:
            batch = self._batches.get((kind, job.group))
            if batch is None:
                batch = self._batches[kind, job.group] = JobBatch(kind.batch)
            batch.push(due, self._number, job)
        else:
            self._queue.push(due, self._number, job)

    def _refresh_plans(self, now: float) -> None:
        """Check the next jobs in the round-robin scan, and plans a job again if its plan is out of date."""
        ring = self._ring
        for _ in range(min(len(ring), 4 if len(ring) < FEW else 1)):
            if self._ring_index >= len(ring):
                self._ring_index = 0
            job = ring[self._ring_index]
            if job.number < 0:
                last = ring.pop()
                if job is not last:
                    ring[self._ring_index] = last
            else:
                self._ring_index += 1
                if job.number and not job.given:
                    plans = job.report if job.leads and job.report is not None else job.kind.plans
                    old = plans.version != job.version
                    if old or not 0.8 * self.price < job.made < 1.25 * self.price:
                        self._plan(job, now)


def _by_deadline(job: PlannedJob, at: float, now: float) -> float:
    return job.deadline if now < job.deadline < at else at


def _worth_it(job: PlannedJob, price: float) -> float:
    """The time at which a job is worth a lower price than that of its plan."""
    part = math.sqrt(min(1.0, price / job.made))
    moment = job.submitted + job.asked + max(job.shortest, (job.planned - job.asked) * part)
    return moment if moment > job.not_before else job.not_before


def _square(silence: float, planned: float) -> float:
    """The factor by which the lost seconds differ from the plan: they grow with the square of the silence."""
    if planned <= 0.0:
        return 1.0
    ratio = silence / planned
    return ratio * ratio if ratio < 2.0 else 4.0


class JobBatch:
    """Jobs of a kind that one request can poll together. They are due when their lost seconds add up to the price.

    The queue is ordered by the time at which each job would be due if a request cost only its share: before the first of
    these times the sum cannot reach the price.
    """

    __slots__ = ("_look", "_queue", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self._queue: TimeQueue[PlannedJob] = TimeQueue()
        self._look = -math.inf

    def push(self, moment: float, number: int, job: PlannedJob) -> None:
        self._queue.push(moment, number, job)
        self._look = min(self._look, moment)

    def look(self) -> float:
        """The time at which the batch may be due."""
        head = self._head()
        return FOREVER if head is None else max(self._look, -head[0])

    def _head(self) -> Queued[PlannedJob] | None:
        while (head := self._queue.head()) is not None and head[1] != head[2].number:
            self._queue.pop()
        return head

    def gather(self, now: float, price: float) -> tuple[list[PlannedJob], float]:
        """The jobs to poll and their lost seconds; no jobs if these are not worth the price."""
        taken: list[Queued[PlannedJob]] = []
        while len(taken) < self.size and (head := self._head()) is not None:
            if -head[0] > now and head[2].given:  # the caller's interval has not passed
                break
            taken.append(head)
            self._queue.pop()
        jobs = [job for _, _, job in taken]
        losses = [job.lost(now) for job in jobs]
        total = math.fsum(losses)
        if total >= price or any(_due(job, now) for job in jobs):
            self._look = now
            return jobs, total
        for moment, number, job in taken:
            self._queue.push(-moment, number, job)
        # Lost seconds grow with the square of the silence, or faster, so a poll is not worth the price before then.
        silence = min((now - job.submitted - job.asked for job in jobs), default=0.0)
        growth = math.sqrt(price / total) - 1.0 if total > 0.0 else 1.0
        latest = min((job.submitted + job.latest for job in jobs), default=FOREVER)
        self._look = min(latest, now + max(NEXT_LOOK, 0.5 * min(growth, 1.0) * silence))
        return [], total


def _due(job: PlannedJob, now: float) -> bool:
    """Whether it is due at any price: its silence is too long, or its age is unknown."""
    return now >= job.submitted + job.latest or job.planned <= job.asked
