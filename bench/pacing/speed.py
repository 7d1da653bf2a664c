"""The cost of one polling decision with 100,000 waiting jobs, and the memory of a waiting job."""

from __future__ import annotations

import random
import statistics
import time
import tracemalloc

from bench.service.table import Line
from bide.client.polling.schedule import PollSchedule
from bide.core.pacing.budget import Budget, Limit

JOBS = 100_000
RATE = 2_000.0
CHUNK = 500  # polls that are timed together


def measure() -> list[Line]:
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    schedule, _ = _filled()
    weight = (tracemalloc.get_traced_memory()[0] - before) / JOBS
    tracemalloc.stop()
    schedule, ends = _filled()
    now = _poll(schedule, ends, 0.0, 3 * JOBS)[0]  # until every job was polled a few times
    now, steady = _poll(schedule, ends, now, JOBS)
    schedule.budget = Budget(Limit(RATE / 3, 1.0, 10), rng=random.Random(2))
    _, stepped = _poll(schedule, ends, now, JOBS)
    return [
        Line("a poll decided, 100,000 waiting", statistics.median(steady), "≤", 15, "µs"),
        Line("… after a step of the budget", statistics.median(stepped), "≤", 40, "µs"),
        Line("memory of a waiting job", weight, "≤", 1024, "bytes"),
    ]


def _filled() -> tuple[PollSchedule, dict[int, float]]:
    rng = random.Random(1)
    schedule = PollSchedule(Budget(Limit(RATE, 1.0, 100), rng=rng), rng=rng)
    kinds = [schedule.kind(name) for name in ("a", "b", "c")]
    ends = {}
    for i in range(JOBS):
        schedule.add(i, 0.0, kind=kinds[i % 3], age=rng.uniform(0.0, 300.0))
        ends[i] = rng.lognormvariate(6.0 + i % 3, 0.5)
    return schedule, ends


def _poll(
    schedule: PollSchedule, ends: dict[int, float], now: float, polls: int
) -> tuple[float, list[float]]:
    """Run this many polls in virtual time; each ended job is replaced. Return microseconds per poll, by chunk."""
    rng = random.Random(3)
    times = []
    asked, began = 0, time.perf_counter()
    fresh = len(ends)
    while asked < polls:
        jobs, again = schedule.next(now)
        if not jobs:
            now = again
            continue
        job = jobs[0]
        schedule.budget.record_response(now, 200, {}, now)
        asked += 1
        if now - job.submitted >= ends[job.key]:
            schedule.ended(job, now)
            ends[fresh] = rng.lognormvariate(6.0 + fresh % 3, 0.5)
            schedule.add(fresh, now, kind=job.kind)
            fresh += 1
        else:
            schedule.still_live(job, now)
        if asked % CHUNK == 0:
            passed = time.perf_counter()
            times.append((passed - began) / CHUNK * 1e6)
            began = passed
    return now, times
