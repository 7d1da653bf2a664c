"""What is known about how long a kind of job takes: learned durations, and the survival curve they give.

Ages are cut into log-spaced bins; within a bin the hazard is constant. A weak scale-free prior (hazard k/age) stands
where nothing was seen yet, so that no hazard is ever zero. Old observations fade, so that drift is followed.
"""

from __future__ import annotations

import bisect
import math
from typing import Any

BINS_PER_OCTAVE = 4
FIRST, LAST = 2.0**-7, 2.0**21  # 8 ms to 24 days
EDGES: list[float] = [
    0.0,
    *(
        FIRST * 2.0 ** (i / BINS_PER_OCTAVE)
        for i in range(int(math.log2(LAST / FIRST)) * BINS_PER_OCTAVE + 1)
    ),
]
BINS = len(EDGES) - 1
PRIOR_SHAPE = 1.0  # k of the prior's hazard k/age
PRIOR_WEIGHT = 0.05  # observations that the prior is worth, for each factor e of age
MEMORY = 200  # an observation has faded to 1/e after this many newer ones


class Sketch:
    """Learns durations in O(1) each; `table()` says what they come to."""

    __slots__ = ("_table", "_weight", "count", "ended", "within")

    def __init__(self) -> None:
        self.ended = [0.0] * BINS  # how many ended in the bin
        self.within = [0.0] * BINS  # seconds that those had spent in it
        self.count = 0
        self._weight = 1.0
        self._table: Table | None = None

    def learn(self, duration: float) -> None:
        if not (0.0 <= duration < math.inf):
            return
        duration = min(duration, LAST)
        i = min(bisect.bisect_right(EDGES, duration) - 1, BINS - 1)
        # A growing weight for the new is the same as fading all of the old, without touching it.
        self._weight *= 1.0 + 1.0 / MEMORY
        if self._weight > 1e9:
            self._rescale()
        self.ended[i] += self._weight
        self.within[i] += self._weight * (duration - EDGES[i])
        self.count += 1
        self._table = None

    def _rescale(self) -> None:
        self.ended = [x / self._weight for x in self.ended]
        self.within = [x / self._weight for x in self.within]
        self._weight = 1.0

    def table(self) -> Table:
        if self._table is None:
            self._table = Table(self._hazards(), self.count)
        return self._table

    def _hazards(self) -> list[float]:
        hazards = [0.0] * BINS
        passed = 0.0  # how many outlived the bin
        for i in range(BINS - 1, -1, -1):
            low, high = EDGES[i], EDGES[i + 1]
            width, middle = high - low, (low + high) / 2
            span = width / middle
            exposure = (passed * width + self.within[i]) / self._weight
            hazards[i] = (self.ended[i] / self._weight + PRIOR_WEIGHT * PRIOR_SHAPE * span) / (
                exposure + PRIOR_WEIGHT * span * middle
            )
            passed += self.ended[i]
        return hazards

    def dump(self) -> dict[str, Any]:
        """Only the bins that hold something, so that a row stays small."""
        bins = {
            str(i): [self.ended[i] / self._weight, self.within[i] / self._weight]
            for i in range(BINS)
            if self.ended[i]
        }
        return {"count": self.count, "bins": bins}

    @classmethod
    def load(cls, data: dict[str, Any]) -> Sketch:
        sketch = cls()
        sketch.count = int(data["count"])
        for key, (ended, within) in data["bins"].items():
            if 0 <= int(key) < BINS:
                sketch.ended[int(key)], sketch.within[int(key)] = float(ended), float(within)
        return sketch


class Table:
    """The survival curve of a sketch: cumulative hazard at the bin edges, closed form between them."""

    __slots__ = ("count", "cumulative", "hazards")

    def __init__(self, hazards: list[float], count: int) -> None:
        self.hazards = hazards
        self.count = count
        self.cumulative = [0.0]
        for i, hazard in enumerate(hazards):
            self.cumulative.append(self.cumulative[-1] + hazard * (EDGES[i + 1] - EDGES[i]))

    def cumulative_at(self, age: float) -> float:
        if age <= 0:
            return 0.0
        i = min(bisect.bisect_right(EDGES, age) - 1, BINS - 1)
        return self.cumulative[i] + self.hazards[i] * (age - EDGES[i])

    def survival(self, age: float) -> float:
        """The chance that a job is still going on at this age."""
        return math.exp(-self.cumulative_at(age))

    def quantile(self, q: float, age: float = 0.0) -> float:
        """The age by which a job that has reached `age` has ended with chance q."""
        goal = self.cumulative_at(age) - math.log1p(-q)
        i = min(max(bisect.bisect_right(self.cumulative, goal) - 1, 0), BINS - 1)
        return max(age, EDGES[i] + (goal - self.cumulative[i]) / self.hazards[i])
