"""Whether the limit of a scenario's API is enough for its jobs."""

from __future__ import annotations

import math
import random

from bide.core.pacing.advice import Advice, Load, advise
from bide.core.pacing.hazard import Sketch
from bide.lab.scenario import Scenario

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
        waiting = group.count if group.every is None else min(group.count, table.mean() / group.every)
        loads.append(Load(waiting / group.batch, table))
    rules = scenario.limit
    rate = rules.requests / rules.per / rules.cost
    return advise(loads, None if rate == math.inf else rate, price)
