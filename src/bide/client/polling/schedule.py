"""One scheduler per credential: the jobs that are waited for and the budget, and what to ask about next.

Pure decisions of (state, now, rng); `now` is monotonic seconds. The caller sends what `next` hands out and tells what
came back: `goes_on`, `ended` or `failed`, once for each job.

Invariants:
1. No task or timer per job: one queue by the moment at which each is due.
2. Nothing is handed out that the budget does not grant, and what is handed out is spent.
3. A job is due no later than its longest silence after it was last asked about.
4. The price is never below the floor. It rises until what is due fits the budget: it is the moving average of the price
   at which jobs are in fact asked about. Jobs are planned at the price of the time; a round-robin hand and the head of
   the queue plan those anew whose price or knowledge is out of date, so no change ever touches them all at once.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Hashable
from typing import Any

from bide.client.polling.batch import Bunch
from bide.client.polling.kinds import SIZES, SMALLEST_LEFT, Kind, Report, Size
from bide.client.polling.planned_job import FOREVER, Waited
from bide.client.polling.time_queue import Calendar
from bide.core.advice import Advice, Load, advise
from bide.core.budget import RequestBudget
from bide.core.pacing import PRICE

STALE = 0.8  # a plan made at less than this part of the price is made anew before it is followed
JITTER = 0.2  # of the price: a tenth of a silence, where the moment does not matter
FEW = 500  # with no more jobs than this, the hand looks at several a time
MOST_REPLANS = 16  # at the head of the queue, in one call


class Schedule:
    def __init__(
        self,
        budget: RequestBudget,
        *,
        rng: random.Random,
        price: float = PRICE,
        group: Callable[[Any], Hashable] = lambda key: (),
    ) -> None:
        """One request can ask about several jobs of the same kind and `group`, which is made from a job's key."""
        self.budget = budget
        self._group = group
        self.floor = self.price = price
        self.kinds: dict[Hashable, Kind] = {}
        self.waiting = 0
        self._random = rng.random
        self._queue: Calendar[Waited] = Calendar()
        self._bunches: dict[tuple[Kind, Hashable], Bunch] = {}
        self._number = 0
        self._ring: list[Waited] = []
        self._hand = 0

    def kind(self, name: Hashable, batch: int = 1, size: Size | None = None) -> Kind:
        """What is known of a kind; with a size, of that size of it."""
        name = name if size is None else (name, size)
        kind = self.kinds.get(name)
        if kind is None:
            kind = self.kinds[name] = Kind(batch=batch)
            if size is not None:
                kind.expect(SIZES[size].expected)
        return kind

    def add(
        self,
        key: Any,
        now: float,
        *,
        kind: Kind,
        age: float = 0.0,
        asked: float = 0.0,
        expected: float | None = None,
        size: Size | None = None,
        deadline: float = FOREVER,
    ) -> Waited:
        """A job to wait for; `age` seconds old, last asked about at age `asked`. `deadline` is a moment."""
        job = Waited(key, kind, now - age, self._group(key))
        job.asked = asked
        job.deadline = deadline
        if size is not None:
            job.shortest, job.longest, _ = SIZES[size]
        if expected is not None and expected > 0:
            kind.hint = expected
            job.believe(Report("expected", max(SMALLEST_LEFT, expected)), self.price, 0.0, now)
        self.waiting += 1
        kind.wait(1)
        self._ring.append(job)
        self._plan(job, now)
        return job

    def hurry(self, job: Waited, now: float) -> None:
        """It is asked about as soon as can be: nobody knows how old it is, so it may have ended already."""
        job.planned = job.asked
        job.given = True
        self._push(job, now)

    def next(self, now: float) -> tuple[list[Waited], float]:
        """The jobs to ask about in one request now; or none, and when to look again."""
        ready = self.budget.ready(now)
        if ready > now:
            return [], ready if self.waiting else FOREVER
        if self._bunches:
            jobs, again = self._next_bunch(now)
            if jobs or again > now:
                return jobs, again
        job, again = self._next_job(now)
        if job is not None:
            taken = self.budget.take(now)
            if taken > now:  # somebody else who draws on it was faster
                self._push(job, now)
                return [], taken
            worth = job.made * _square(now - job.born - job.asked, job.planned - job.asked)
            self._granted(job, now)
            self._asked_at(worth)
            return [job], now
        if self._bunches:
            again = min(again, *(bunch.look() for bunch in self._bunches.values()))
        return [], again

    def _next_job(self, now: float) -> tuple[Waited | None, float]:
        queue, price, floor = self._queue, self.price, self.floor
        replans = 0
        while (head := queue.head()) is not None:
            due, number, job = -head[0], head[1], head[2]
            if number != job.number:
                queue.pop()
                continue
            if due > now:
                # A request is to spare, so the price was too high: what is worth the floor is asked about at once.
                if price <= floor:
                    return None, due
                worth_it = _worth_it(job, floor)
                if worth_it > now:
                    return None, worth_it if worth_it < due else due
            elif job.made < STALE * price and not job.given and replans < MOST_REPLANS:
                replans += 1
                queue.pop()
                self._plan(job, now)
                continue
            queue.pop()
            return job, now
        return None, FOREVER

    def _next_bunch(self, now: float) -> tuple[list[Waited], float]:
        """The jobs of a batch; none, and a moment after now when there is one for which the budget is not there yet."""
        for bunch in self._bunches.values():
            if bunch.look() <= now:
                jobs, lost = bunch.gather(now, self.floor)
                if jobs:
                    taken = self.budget.take(now)
                    if taken > now:
                        for job in jobs:
                            self._push(job, now)
                        return [], taken
                    for job in jobs:
                        self._granted(job, now)
                    self._asked_at(lost)
                    return jobs, now
        return [], now

    def _granted(self, job: Waited, now: float) -> None:
        job.number = 0
        job.sent = now - job.born

    def _asked_at(self, worth: float) -> None:
        """Moves the price towards that at which a request was made."""
        price = self.price + (worth - self.price) * 2.0 / (self.waiting + 40.0)
        self.price = price if price > self.floor else self.floor

    def goes_on(
        self,
        job: Waited,
        now: float,
        report: Report | None = None,
        after: float | None = None,
        at: float | None = None,
    ) -> None:
        """Not yet. The answer may tell how much is left, and how long the API wants to be left in peace about it.

        `at`: it is asked about again then, whatever is planned, for the API holds the question until there is news.
        """
        job.goes_on()
        if report is not None:
            job.believe(report, self.price, job.asked, now)
        if after is not None:
            job.not_before = now + after
        self._plan(job, now)
        if at is not None:
            job.given = True
            self._push(job, at)
        self._tend(now)

    def ended(self, job: Waited, now: float, took: float | None = None) -> None:
        """Done, one way or the other; `took` is its duration where the API tells."""
        job.ended(now - job.born, took)
        self.remove(job)
        self._tend(now)

    def failed(self, job: Waited, now: float, until: float) -> None:
        """Nothing was learned of it: it is asked about again, not before `until`."""
        job.not_before = until
        self._plan(job, now)

    def remove(self, job: Waited) -> None:
        """It is not waited for any more."""
        if job.number >= 0:
            job.number = -1
            self.waiting -= 1
            job.kind.wait(-1)

    def jobs(self) -> list[Waited]:
        """All that are waited for."""
        return [job for job in self._ring if job.number >= 0]

    def advice(self, now: float) -> Advice | None:
        """Whether the budget carries what is waited for; None while nothing is known of how long it takes."""
        loads = [
            Load(kind.waiting / kind.batch, table)
            for kind in self.kinds.values()
            if kind.waiting and (table := kind.outlook()) is not None
        ]
        return advise(loads, self.budget.rate(now), self.floor) if loads else None

    def _plan(self, job: Waited, now: float) -> None:
        dice = self._random
        job.made = price = self.price
        job.given = False
        kind = job.kind
        if kind.batch > 1:
            price /= kind.batch
        self._push(job, job.plan(price * (1.0 - JITTER + 2.0 * JITTER * dice()), now, dice()))

    def _push(self, job: Waited, due: float) -> None:
        kind = job.kind
        self._number += 1
        job.number = self._number
        if kind.batch > 1:
            bunch = self._bunches.get((kind, job.group))
            if bunch is None:
                bunch = self._bunches[kind, job.group] = Bunch(kind.batch)
            bunch.push(due, self._number, job)
        else:
            self._queue.push(due, self._number, job)

    def _tend(self, now: float) -> None:
        """The hand: plans the next of the ring anew when what it was planned with is out of date."""
        ring = self._ring
        for _ in range(min(len(ring), 4 if len(ring) < FEW else 1)):
            if self._hand >= len(ring):
                self._hand = 0
            job = ring[self._hand]
            if job.number < 0:
                last = ring.pop()
                if job is not last:
                    ring[self._hand] = last
            else:
                self._hand += 1
                if job.number and job.stale(self.price):
                    self._plan(job, now)


def _worth_it(job: Waited, price: float) -> float:
    """When it becomes worth a price that is lower than that of its plan."""
    part = math.sqrt(min(1.0, price / job.made))
    moment = job.born + job.asked + max(job.shortest, (job.planned - job.asked) * part)
    return moment if moment > job.not_before else job.not_before


def _square(silence: float, planned: float) -> float:
    """How lost seconds have grown by now over what was planned: with the square of silence."""
    if planned <= 0.0:
        return 1.0
    ratio = silence / planned
    return ratio * ratio if ratio < 2.0 else 4.0
