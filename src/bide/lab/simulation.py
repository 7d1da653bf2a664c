"""Runs one policy on one run of a scenario in virtual time, and returns its figures."""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from bide.client.polling.schedule import PollSchedule, PollSettings
from bide.core.pacing.budget import Budget
from bide.core.pacing.hazard import Sketch
from bide.core.pacing.intervals import PRICE
from bide.core.pacing.plan import Plans
from bide.lab.policies import OURS, peer
from bide.lab.scenario import Scenario
from bide.lab.simulated_api import SimulatedApi

EPOCH = 1_800_000_000.0  # the wall clock at the start of a run
DRAWS = 2000  # durations from which the oracle knows a distribution
STAGES = 20  # of drift; the oracle gets a new distribution at each


@dataclass(frozen=True)
class Figures:
    """The figures of a policy in one run."""

    policy: str
    jobs: int
    requests: int
    refused: int
    price: float | None
    spent: float  # the part of the limit that was used while the client waited
    delays: list[float] = field(repr=False)  # in the order of submission

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
    """Run a policy. `seed` determines the jobs; `dice` the random numbers of the client, by default `seed`."""
    world = SimulatedApi(scenario, seed)
    if policy in OURS:
        delays = poll_as_client(world, scenario, policy, seed if dice is None else dice, price)
    else:
        delays = _peers(world, policy, random.Random(f"{policy}/{seed}"))
    shown = price if policy in OURS else None
    spent = world.spent([task.ends + delay for task, delay in zip(world.tasks, delays, strict=True)])
    return Figures(policy, len(world.tasks), world.requests, world.refused, shown, spent, delays)


def _peers(world: SimulatedApi, policy: str, dice: random.Random) -> list[float]:
    """Poll each job by its own timer."""
    make = peer(policy)
    tasks = world.tasks
    delays = [0.0] * len(tasks)
    timers = [make() for _ in tasks]
    # Requests sent at the same time arrive in random order. In the order of the timers, the same jobs would always get
    # the last requests of the limit, which no network does.
    queue = [(task.born + timers[i].first(dice), dice.random(), i) for i, task in enumerate(tasks)]
    heapq.heapify(queue)
    while queue:
        now, _, i = queue[0]
        task = tasks[i]
        answer = world.poll(now, (task,))
        if answer.status == 429:
            wait = timers[i].refused(answer.retry_after, dice)
        elif answer.jobs[0].done:
            delays[i] = now - task.ends
            heapq.heappop(queue)
            continue
        else:
            wait = timers[i].pending(now - task.born, dice)
        heapq.heapreplace(queue, (now + wait, dice.random(), i))
    return delays


class FixedSketch(Sketch):
    """A sketch of known durations that learns nothing more. `ends`: how many jobs the client believes to have seen."""

    __slots__ = ()

    def __init__(self, durations: Sequence[float], ends: int) -> None:
        super().__init__()
        for duration in durations:
            self.learn(duration)
        self.table()
        self.count = ends

    def _fade(self) -> None:
        self.count += 1

    def survived(self, low: float, high: float) -> None:
        pass

    def learn_between(self, low: float, high: float) -> None:
        self.count += 1


def poll_as_client(
    world: SimulatedApi, scenario: Scenario, policy: str, seed: int, price: float
) -> list[float]:
    """Poll with the scheduler of the client until all jobs have ended, and return the delays.

    `policy` is adaptive, oracle, or oracle-first: an oracle that polls first jobs as often as adaptive does.
    """
    rng = random.Random(f"ours/{seed}")
    budget = Budget(rng=rng)
    schedule = PollSchedule(budget, rng=rng, settings=PollSettings(price))
    teacher = None
    if policy != "adaptive":
        teacher = Oracle(schedule, world, scenario, ends=0 if policy == "oracle-first" else DRAWS)
    tasks = world.tasks
    delays = [0.0] * len(tasks)
    now, arrived, left = 0.0, 0, len(tasks)
    while left:
        while arrived < len(tasks) and tasks[arrived].born <= now:
            task = tasks[arrived]
            if teacher is not None:
                teacher.teach(arrived)
            schedule.add(arrived, now, kind=schedule.kind(task.kind, task.batch))
            arrived += 1
        jobs, again = schedule.next(now)
        if not jobs:
            now = max(now, min(again, tasks[arrived].born if arrived < len(tasks) else math.inf))
            continue
        answer = world.poll(now, [tasks[job.key] for job in jobs])
        budget.record_response(now, answer.status, answer.headers, EPOCH + now)
        if answer.status == 429:
            for job in jobs:
                schedule.failed(job, now, now)
            continue
        for job, seen in zip(jobs, answer.jobs, strict=True):
            if seen.done:
                schedule.ended(job, now)
                delays[job.key] = now - tasks[job.key].ends
                left -= 1
            else:
                schedule.still_live(job, now, job.progressed(now - job.submitted, seen.percent))
    return delays


class Oracle:
    """Gives a schedule the true distribution of each kind: the durations as drawn, with their drift. Where jobs queue
    at the API, the distribution is that of the times from submission to end in this run."""

    def __init__(
        self, schedule: PollSchedule, world: SimulatedApi, scenario: Scenario, *, ends: int
    ) -> None:
        self._schedule = schedule
        self._ends = ends
        self._groups = scenario.groups
        self._tasks = world.tasks
        self._queued = bool(scenario.limit.concurrent)
        self._taught: dict[str, int] = {}
        rng = random.Random("oracle")
        self._drawn = {group: [group.draw(rng) for _ in range(DRAWS)] for group in scenario.groups}

    def teach(self, arrived: int) -> None:
        """Update the kind of the job with this number, before the job is submitted."""
        task = self._tasks[arrived]
        groups = [group for group in self._groups if group.kind == task.kind]
        drifting = any(group.drift != 1.0 for group in groups)
        stage = STAGES * arrived // len(self._tasks) if drifting else 0
        if self._taught.get(task.kind) == stage:
            return
        self._taught[task.kind] = stage
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
        kind.plans = Plans(FixedSketch(durations, self._ends))
