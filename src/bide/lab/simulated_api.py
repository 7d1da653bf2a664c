"""A model of an API in virtual time: it accepts jobs, finishes them, answers polls and enforces its limit.

When a job ends does not depend on the polls, so that policies are compared on the same jobs. Responses take no time;
submissions do not count against the limit.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bide.lab.scenario import Rules, Scenario

NOISE = 10.0  # percentage points by which noisy progress is off, as a standard deviation


@dataclass(slots=True)
class SimulatedJob:
    """A job in the model of the API."""

    kind: str
    born: float
    duration: float
    progress: str
    batch: int
    started: float = 0.0
    ends: float = 0.0


@dataclass(frozen=True, slots=True)
class SimulatedStatus:
    """What a response says about one job."""

    done: bool
    percent: float | None = None


@dataclass(frozen=True, slots=True)
class SimulatedResponse:
    status: int
    headers: Mapping[str, str]
    jobs: Sequence[SimulatedStatus] = ()

    @property
    def retry_after(self) -> float | None:
        value = self.headers.get("Retry-After")
        return None if value is None else float(value)


class SimulatedApi:
    """One run of a scenario. The same seed gives the same jobs."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        rng = random.Random(f"{scenario.seed}/{seed}")
        self.tasks = _tasks(scenario, rng)
        _run(self.tasks, scenario.limit.concurrent)
        self.limit = _Limit(scenario.limit, phase=rng.random())
        self.requests = 0
        self.refused = 0
        self._noise = random.Random(f"{scenario.seed}/{seed}/noise")

    def poll(self, now: float, tasks: Sequence[SimulatedJob]) -> SimulatedResponse:
        """Answer one status request about one job, or about several where the API allows it."""
        self.requests += 1
        granted = self.limit.take(now)
        headers = self.limit.headers(now, granted)
        if not granted:
            self.refused += 1
            return SimulatedResponse(429, headers)
        return SimulatedResponse(200, headers, [self._status(task, now) for task in tasks])

    def spent(self, known: Sequence[float]) -> float:
        """Return the part of the limit that was used while a client waited. `known`: when it knew the end of each job."""
        waited = until = 0.0
        for task, end in zip(self.tasks, known, strict=True):
            waited += max(0.0, end - max(task.born, until))
            until = max(until, end)
        return (self.requests - self.refused) / self.limit.allowance(waited)

    def _status(self, task: SimulatedJob, now: float) -> SimulatedStatus:
        if now >= task.ends:
            return _DONE
        if task.progress == "none":
            return _RUNNING
        percent = 100.0 * max(0.0, now - task.started) / (task.ends - task.started)
        if task.progress == "noisy":
            percent = min(99.0, max(0.0, percent + self._noise.gauss(0.0, NOISE)))
        return SimulatedStatus(False, percent)


_DONE, _RUNNING = SimulatedStatus(True), SimulatedStatus(False)


def _tasks(scenario: Scenario, rng: random.Random) -> list[SimulatedJob]:
    tasks = []
    for group in scenario.groups:
        at = 0.0
        for i in range(group.count):
            if group.burst:
                at = i // group.burst * (group.every or 0.0)
            elif group.every is not None:
                at += rng.expovariate(1.0 / group.every)
            drift = 1.0 + (group.drift - 1.0) * i / max(1, group.count - 1)
            tasks.append(
                SimulatedJob(group.kind, at, group.draw(rng) * drift, group.progress, group.batch)
            )
    return sorted(tasks, key=lambda task: task.born)


def _run(tasks: list[SimulatedJob], concurrent: int) -> None:
    """Set when each job starts and ends: it starts at once, or when one of the API's concurrent slots is free."""
    free = [0.0] * min(concurrent, len(tasks))
    for task in tasks:
        task.started = max(task.born, heapq.heappop(free)) if concurrent else task.born
        task.ends = task.started + task.duration
        if concurrent:
            heapq.heappush(free, task.ends)


class _Limit:
    """The limit that the API enforces; a refused request costs nothing."""

    def __init__(self, rules: Rules, phase: float) -> None:
        self._rules = rules
        self._rate = rules.requests / rules.per
        self._level = rules.burst if rules.kind == "bucket" else rules.requests
        # When the bucket was filled, or the window began.
        self._at = 0.0 if rules.kind == "bucket" else -phase * rules.per
        self._policy = f'"default";q={rules.requests:g};w={rules.per:g}'

    def allowance(self, seconds: float) -> float:
        """Return how many requests the limit allows in `seconds` seconds."""
        rules = self._rules
        at_once = rules.burst if rules.kind == "bucket" else rules.requests
        return (at_once + self._rate * seconds) / rules.cost

    def take(self, now: float) -> bool:
        rules = self._rules
        if rules.requests == math.inf:
            return True
        if rules.kind == "bucket":
            self._level = min(rules.burst, self._level + (now - self._at) * self._rate)
            self._at = now
        elif now >= self._at + rules.per:
            self._level = rules.requests
            self._at += rules.per * math.floor((now - self._at) / rules.per)
        if self._level < rules.cost - 1e-9:
            return False
        self._level -= rules.cost
        return True

    def headers(self, now: float, granted: bool) -> Mapping[str, str]:
        rules = self._rules
        if not rules.advertised or rules.requests == math.inf:
            return _NO_HEADERS
        if rules.kind == "bucket":
            full = (rules.burst - self._level) / self._rate
            wait = (rules.cost - self._level) / self._rate
        else:
            full = wait = self._at + rules.per - now
        headers = {
            "RateLimit-Policy": self._policy,
            "RateLimit": f'"default";r={math.floor(self._level + 1e-9)};t={math.ceil(full)}',
        }
        if rules.cost != 1.0:
            headers["X-Request-Cost"] = f"{rules.cost:g}"
        if not granted:
            headers["Retry-After"] = str(max(1, math.ceil(wait)))
        return headers


_NO_HEADERS: Mapping[str, str] = {}
