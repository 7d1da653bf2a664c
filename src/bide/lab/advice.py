"""Whether the limit of a scenario's API is enough for its jobs."""

from __future__ import annotations

import math
import random

from bide.core.pacing.advice import Advice, Load, advise
from bide.core.pacing.hazard import Sketch
from bide.lab.scenario import JobGroup, Scenario

DRAWS = 2000


def outlook(scenario: Scenario, price: float) -> Advice:
    """Advise from the true durations and the largest number of jobs that wait at the same time."""
    rng = random.Random(scenario.seed)
    loads = []
    for group in scenario.groups:
        sketch = Sketch()
        for _ in range(DRAWS):
            sketch.learn(group.draw(rng))
        table = sketch.table()
        waiting = min(group.count, _waiting(group, table.mean()))
        loads.append(Load(waiting / group.batch, table))
    rules = scenario.limit
    rate = rules.requests / rules.per / rules.cost
    return advise(loads, None if rate == math.inf else rate, price)


def _waiting(group: JobGroup, mean: float) -> float:
    """Return the largest number of jobs that wait at the same time, if `mean` is their mean duration."""
    if group.every is None:
        return group.count
    return group.burst * max(1.0, mean / group.every) if group.burst else mean / group.every
