"""When to poll: at the time when the expected delay of a finished job is worth a request.

`G(a, x)`, the expected seconds of delay by age x after a poll at age a, is ∫_a^x (1 − S(u)/S(a)) du. A poll of one job
is due when G reaches the price; a poll of many jobs, when the sum of theirs does. The service computes Retry-After in
the same way, so that a client that only obeys the header polls well. plan.py looks further ahead, for callers that
can keep a plan.
"""

from __future__ import annotations

import math
from bisect import bisect_right

from bide.core.pacing.hazard import BINS, BINS_PER_OCTAVE, EDGES, SurvivalCurve

PRICE = 1.0
DEEP = 12.0  # cumulative hazard
LONGEST_HINT = 3600


def index(table: SurvivalCurve, asked: float, age: float) -> float:
    """Return G: the expected seconds of delay since the last poll, at age `asked`."""
    if age <= asked:
        return 0.0
    start = table.cumulative_at(asked)
    first = bisect_right(EDGES, asked) - 1 if asked > 0 else 0
    last = bisect_right(EDGES, age) - 1
    if first >= BINS - 1 or last == first or start > DEEP:
        return _walk(table, asked, age, start)
    last = min(last, BINS - 1)
    going_on = (
        _mass(table, asked, EDGES[first + 1])
        + table.integral[last]
        - table.integral[first + 1]
        + _mass(table, EDGES[last], age)
    )
    return max(0.0, age - asked - going_on * math.exp(start))


def _mass(table: SurvivalCurve, low: float, high: float) -> float:
    """Return ∫ S over an interval within one bin."""
    hazard = table.hazards[min(bisect_right(EDGES, low) - 1, BINS - 1)]
    return table.survival(low) * -math.expm1(-hazard * (high - low)) / hazard


def _walk(table: SurvivalCurve, asked: float, age: float, start: float) -> float:
    """Compute G bin by bin, where S is so small that differences of its integral lose all digits."""
    lost, x = 0.0, asked
    while x < age:
        i = min(bisect_right(EDGES, x) - 1, BINS - 1)
        end = age if i == BINS - 1 else min(age, EDGES[i + 1])
        lost += _lost(table.hazards[i], table.cumulative_at(x) - start, end - x)
        x = end
    return lost


def interval(table: SurvivalCurve, age: float, price: float = PRICE) -> float:
    """Return how long after `age` the next poll is due."""
    base = table.cumulative_at(age)
    lost, x = 0.0, age
    i = min(bisect_right(EDGES, max(age, 0.0)) - 1, BINS - 1)
    while True:
        end = EDGES[i + 1] if i + 1 < BINS else math.inf
        hazard = table.hazards[i]
        reached = table.cumulative_at(x) - base  # hazard gathered since `age`
        if end is math.inf or lost + _lost(hazard, reached, end - x) >= price:
            return _solve(hazard, reached, price - lost) + x - age
        lost += _lost(hazard, reached, end - x)
        x, i = end, i + 1


def _lost(hazard: float, reached: float, width: float) -> float:
    """∫_0^width (1 − e^−(reached + hazard·u)) du."""
    return width - math.exp(-reached) * -math.expm1(-hazard * width) / hazard


def _solve(hazard: float, reached: float, price: float) -> float:
    """Return the width at which `_lost` reaches the price, by bisection, because it only grows."""
    low, high = 0.0, 1.0
    while _lost(hazard, reached, high) < price:
        high *= 2
    for _ in range(40):
        middle = (low + high) / 2
        if _lost(hazard, reached, middle) < price:
            low = middle
        else:
            high = middle
    return high


class Hints:
    """Retry-After for jobs of one kind. All ages in a bin get the value of its lower edge, computed on first use."""

    __slots__ = ("_known", "_price", "_table")

    def __init__(self, table: SurvivalCurve, price: float = PRICE) -> None:
        self._table = table
        self._price = price
        self._known: dict[int, float] = {}

    def after(self, age: float) -> float:
        i = 0
        if age > EDGES[1]:
            i = min(int(BINS_PER_OCTAVE * math.log2(age / EDGES[1])) + 1, BINS)
        wait = self._known.get(i)
        if wait is None:
            wait = self._known[i] = self._at(EDGES[i])
        return wait

    def _at(self, edge: float) -> float:
        if self._table.count:
            return interval(self._table, edge, self._price)
        # Without observations jobs may be short: a hazard of 1/age keeps the first waits short.
        return max(self._price, math.sqrt(2.0 * self._price * edge))


def retry_after(wait: float) -> int:
    """Return the value of the header: whole seconds, at least 1."""
    return max(1, min(LONGEST_HINT, math.ceil(wait)))


# The range of a prediction from the progress of a job: factors of the remaining time.
PROGRESS_SPREAD = (0.7, 1.0, 1.5)


def remaining_by_progress(elapsed: float, percent: float | None) -> float | None:
    """Return the remaining seconds according to the job's progress; None without usable progress."""
    if percent is None or percent < 1.0 or elapsed <= 0:
        return None
    return elapsed * max(0.0, 100.0 - percent) / percent
