"""When to ask: the moment at which the expected delay of a finished but unknown job is worth a request.

`G(a, x)`, the seconds already lost in expectation by x when last asked at age a, is ∫_a^x (1 − S(u)/S(a)) du. A
request is due when it reaches the price. The service's Retry-After is the same sum, so that a client that only
obeys the header polls well.
"""

from __future__ import annotations

import math

from bide.core.hazard import BINS, BINS_PER_OCTAVE, EDGES, Table

PRICE = 1.0
LONGEST_HINT = 3600


def interval(table: Table, age: float, price: float = PRICE) -> float:
    """How long after `age` the next question is due."""
    base = table.cumulative_at(age)
    lost, x = 0.0, age
    i = next((i for i in range(BINS) if EDGES[i + 1] > age), BINS - 1)
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
    """The width at which `_lost` reaches the price: bisection, for it only grows."""
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
    """Retry-After for jobs of one kind: tabulated at the bin edges, so that asking is a look-up."""

    __slots__ = ("_intervals",)

    def __init__(self, table: Table, price: float = PRICE) -> None:
        self._intervals = [interval(table, edge, price) for edge in EDGES]

    def after(self, age: float) -> float:
        if age <= EDGES[1]:
            return self._intervals[0]
        i = int(BINS_PER_OCTAVE * math.log2(age / EDGES[1])) + 1
        return self._intervals[min(i, BINS)]


def retry_after(wait: float) -> int:
    """As the header wants it: whole seconds, at least 1."""
    return max(1, min(LONGEST_HINT, math.ceil(wait)))


def remaining_by_progress(elapsed: float, percent: float | None) -> float | None:
    """What a job's own progress says is left, where it says anything."""
    if percent is None or percent < 1.0 or elapsed <= 0:
        return None
    return elapsed * max(0.0, 100.0 - percent) / percent
