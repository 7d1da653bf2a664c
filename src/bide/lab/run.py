"""Drives one policy through one run of a scenario, in virtual time, and says what it came to."""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from bide.client.polling.schedule import Schedule
from bide.core.budget import Budget
from bide.core.hazard import Sketch
from bide.core.pacing import PRICE
from bide.core.plan import Plans
from bide.lab.policies import OURS, peer
from bide.lab.scenario import Scenario
from bide.lab.world import World

EPOCH = 1_800_000_000.0  # what the wall clock shows when a run begins
DRAWS = 2000  # from which the oracle knows a distribution
STAGES = 20  # of drift, for each of which it is told anew


@dataclass(frozen=True)
class Figures:
    """What a policy came to in one run."""

    policy: str
    jobs: int
    requests: int
    refused: int
    price: float | None
    spent: float  # of what the API allowed while jobs were waited for
    delays: list[float] = field(repr=False)  # in the order in which the jobs were sent

    @property
    def per_job(self) -> float:
        return self.requests / self.jobs

    @property
    def mean(self) -> float:
        return math.fsum(self.delays) / self.jobs

    def quantile(self, q: float) -> float:
        ordered = sorted(self.delays)
        return ordered[min(len(ordered) - 1, int(q * len(ordered)))]

    def to_wire(self) -> dict[str, Any]:
        delay = {
            "mean": self.mean,
            "p50": self.quantile(0.5),
            "p95": self.quantile(0.95),
            "max": max(self.delays),
        }
        return {
            "policy": self.policy,
            "jobs": self.jobs,
            "requests": self.requests,
            "requestsPerJob": self.per_job,
            "refused": self.refused,
            "delay": delay,
            "price": self.price,
        }


def simulate(
    scenario: Scenario, policy: str, seed: int, price: float = PRICE, *, dice: int | None = None
) -> Figures:
    """The seed decides the jobs, and the dice of who waits too unless they have one of their own."""
    world = World(scenario, seed)
    if policy in OURS:
        delays = _ours(world, scenario, seed if dice is None else dice, price, told=policy == "oracle")
    else:
        delays = _peers(world, policy, random.Random(f"{policy}/{seed}"))
    shown = price if policy in OURS else None
    spent = world.spent([task.ends + delay for task, delay in zip(world.tasks, delays, strict=True)])
    return Figures(policy, len(world.tasks), world.requests, world.refused, shown, spent, delays)


def _peers(world: World, policy: str, dice: random.Random) -> list[float]:
    """Each job by its own timer."""
    make = peer(policy)
    tasks = world.tasks
    delays = [0.0] * len(tasks)
    timers = [make() for _ in tasks]
    # Requests that leave at the same moment go over connections of their own and arrive in any order. In the order of
    # the timers, the same jobs would get the last of a budget every time, which no network does for anybody.
    queue = [(task.born + timers[i].first(dice), dice.random(), i) for i, task in enumerate(tasks)]
    heapq.heapify(queue)
    while queue:
        now, _, i = queue[0]
        task = tasks[i]
        answer = world.ask(now, (task,))
        if answer.status == 429:
            wait = timers[i].refused(answer.retry_after, dice)
        elif answer.seen[0].done:
            delays[i] = now - task.ends
            heapq.heappop(queue)
            continue
        else:
            wait = timers[i].pending(now - task.born, dice)
        heapq.heapreplace(queue, (now + wait, dice.random(), i))
    return delays


class Told(Sketch):
    """A sketch that knows already and learns nothing more."""

    __slots__ = ()

    def __init__(self, durations: Sequence[float]) -> None:
        super().__init__()
        for duration in durations:
            self.learn(duration)
        self.table()

    def _fade(self) -> None:
        self.count += 1

    def survived(self, low: float, high: float) -> None:
        pass

    def learn_between(self, low: float, high: float) -> None:
        pass


def _ours(world: World, scenario: Scenario, seed: int, price: float, *, told: bool) -> list[float]:
    """The scheduler that the client uses, for as long as there are jobs."""
    rng = random.Random(f"ours/{seed}")
    budget = Budget(rng=rng)
    schedule = Schedule(budget, rng=rng, price=price)
    oracle = Oracle(schedule, world, scenario) if told else None
    tasks = world.tasks
    delays = [0.0] * len(tasks)
    now, arrived, left = 0.0, 0, len(tasks)
    while left:
        while arrived < len(tasks) and tasks[arrived].born <= now:
            task = tasks[arrived]
            if oracle is not None:
                oracle.tell(arrived)
            schedule.add(arrived, now, kind=schedule.kind(task.kind, task.batch))
            arrived += 1
        jobs, again = schedule.next(now)
        if not jobs:
            now = max(now, min(again, tasks[arrived].born if arrived < len(tasks) else math.inf))
            continue
        answer = world.ask(now, [tasks[job.key] for job in jobs])
        budget.heard(now, answer.status, answer.headers, EPOCH + now)
        if answer.status == 429:
            for job in jobs:
                schedule.failed(job, now, now)
            continue
        for job, seen in zip(jobs, answer.seen, strict=True):
            if seen.done:
                schedule.ended(job, now)
                delays[job.key] = now - tasks[job.key].ends
                left -= 1
            else:
                schedule.goes_on(job, now, job.progressed(now - job.born, seen.percent))
    return delays


class Oracle:
    """Tells a schedule the true distribution of each kind: of durations as drawn, drifting as they do, or, where jobs
    queue at the API, of the times from start to end that this run will have."""

    def __init__(self, schedule: Schedule, world: World, scenario: Scenario) -> None:
        self._schedule = schedule
        self._groups = scenario.groups
        self._tasks = world.tasks
        self._queued = bool(scenario.limit.concurrent)
        self._told: dict[str, int] = {}
        rng = random.Random("oracle")
        self._drawn = {group: [group.draw(rng) for _ in range(DRAWS)] for group in scenario.groups}

    def tell(self, arrived: int) -> None:
        """Before the job with this number is sent."""
        task = self._tasks[arrived]
        groups = [group for group in self._groups if group.kind == task.kind]
        drifting = any(group.drift != 1.0 for group in groups)
        stage = STAGES * arrived // len(self._tasks) if drifting else 0
        if self._told.get(task.kind) == stage:
            return
        self._told[task.kind] = stage
        if self._queued:
            durations = [t.ends - t.born for t in self._tasks if t.kind == task.kind]
        else:
            total = sum(group.count for group in groups)
            part = (stage + 0.5) / STAGES
            durations = [
                duration * (1.0 + (group.drift - 1.0) * part)
                for group in groups
                for duration in self._drawn[group][: DRAWS * group.count // total]
            ]
        kind = self._schedule.kind(task.kind, task.batch)
        kind.plans = Plans(Told(durations))
