"""How late the end of a job is noticed while nothing is known of its kind."""

from __future__ import annotations

import random

from bench.service.table import Line
from bide.client.polling.schedule import PollSchedule
from bide.core.pacing.budget import Budget

DURATIONS = (0.5, 2.0, 5.0, 12.0, 25.0, 60.0, 300.0, 1800.0)
PERCENTS = (None, 5.0)  # reported until the end
BATCHES = (1, 10)  # jobs that one request can poll
SEEDS = 50


def measure() -> list[Line]:
    cases = [(d, p, b) for d in DURATIONS for p in PERCENTS for b in BATCHES]
    delays = {case: max(_delay(*case, seed) for seed in range(SEEDS)) for case in cases}
    worst = max(cases, key=lambda case: delays[case] / _limit(case[0]))
    duration, percent, batch = worst
    detail = (
        f"{delays[worst]:.1f} s for a job of {duration:g} s that reports {percent} %, batches of {batch}"
    )
    return [
        Line(
            "first job of an unknown kind: delay at most max(1 s, half of its duration)",
            delays[worst] / _limit(duration),
            "≤",
            1.0,
            "×",
            detail,
        )
    ]


def _limit(duration: float) -> float:
    return max(1.0, duration / 2.0)


def _delay(duration: float, percent: float | None, batch: int, seed: int) -> float:
    rng = random.Random(seed)
    budget = Budget(rng=rng)
    schedule = PollSchedule(budget, rng=rng)
    now = 0.0
    schedule.add("job", now, kind=schedule.kind("unknown", batch))
    while True:
        jobs, again = schedule.next(now)
        if not jobs:
            now = again
            continue
        budget.record_response(now, 200, {}, now)
        if now >= duration:
            return now - duration
        (job,) = jobs
        schedule.still_live(job, now, job.progressed(now, percent))
