"""A model of an API: it takes jobs, finishes them in its own time, answers questions and enforces its limit.

When a job ends does not depend on who asks, so that policies can be compared on the very same jobs. Answers take no
time; submitting is not counted against the limit.
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
class Task:
    """A job as the API knows it."""

    kind: str
    born: float
    duration: float
    progress: str
    batch: int
    started: float = 0.0
    ends: float = 0.0


@dataclass(frozen=True, slots=True)
class Seen:
    """What an answer says about one job."""

    done: bool
    percent: float | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    seen: Sequence[Seen] = ()

    @property
    def retry_after(self) -> float | None:
        value = self.headers.get("Retry-After")
        return None if value is None else float(value)


class World:
    """One run of a scenario: the same seed gives the same jobs."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        rng = random.Random(f"{scenario.seed}/{seed}")
        self.tasks = _tasks(scenario, rng)
        _run(self.tasks, scenario.limit.concurrent)
        self.limit = _Limit(scenario.limit, phase=rng.random())
        self.requests = 0
        self.refused = 0
        self._noise = random.Random(f"{scenario.seed}/{seed}/noise")

    def ask(self, now: float, tasks: Sequence[Task]) -> Answer:
        """One status request about one job, or several where the API takes several."""
        self.requests += 1
        granted = self.limit.take(now)
        headers = self.limit.headers(now, granted)
        if not granted:
            self.refused += 1
            return Answer(429, headers)
        return Answer(200, headers, [self._look(task, now) for task in tasks])

    def spent(self, known: Sequence[float]) -> float:
        """Which part of what the limit allowed was used, while jobs were waited for; `known`: until when each was."""
        waited = until = 0.0
        for task, end in zip(self.tasks, known, strict=True):
            waited += max(0.0, end - max(task.born, until))
            until = max(until, end)
        return (self.requests - self.refused) / self.limit.allowance(waited)

    def _look(self, task: Task, now: float) -> Seen:
        if now >= task.ends:
            return _DONE
        if task.progress == "none":
            return _NOT_YET
        percent = 100.0 * max(0.0, now - task.started) / (task.ends - task.started)
        if task.progress == "noisy":
            percent = min(99.0, max(0.0, percent + self._noise.gauss(0.0, NOISE)))
        return Seen(False, percent)


_DONE, _NOT_YET = Seen(True), Seen(False)


def _tasks(scenario: Scenario, rng: random.Random) -> list[Task]:
    tasks = []
    for group in scenario.groups:
        at = 0.0
        for i in range(group.count):
            if group.every is not None:
                at += rng.expovariate(1.0 / group.every)
            drift = 1.0 + (group.drift - 1.0) * i / max(1, group.count - 1)
            tasks.append(Task(group.kind, at, group.draw(rng) * drift, group.progress, group.batch))
    return sorted(tasks, key=lambda task: task.born)


def _run(tasks: list[Task], concurrent: int) -> None:
    """Decides when each starts and ends: at once, or when one of the API's places is free."""
    free = [0.0] * min(concurrent, len(tasks))
    for task in tasks:
        task.started = max(task.born, heapq.heappop(free)) if concurrent else task.born
        task.ends = task.started + task.duration
        if concurrent:
            heapq.heappush(free, task.ends)


class _Limit:
    """The API's own count; a refused request costs nothing."""

    def __init__(self, rules: Rules, phase: float) -> None:
        self._rules = rules
        self._rate = rules.requests / rules.per
        self._level = rules.burst if rules.kind == "bucket" else rules.requests
        self._at = 0.0 if rules.kind == "bucket" else -phase * rules.per  # filled last, or window began
        self._policy = f'"default";q={rules.requests:g};w={rules.per:g}'

    def allowance(self, seconds: float) -> float:
        """Requests that can be had in so long a stretch."""
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
