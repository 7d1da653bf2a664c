"""The durations learned for a kind of job, and the survival curve that follows from them.

Ages are divided into log-spaced bins; within a bin the hazard is constant. A sketch counts per bin how many jobs ended
and how long jobs were watched, so running jobs count too. An end that was not seen exactly is kept as the interval that
contains it. fit.py computes a curve from these counts, in which no hazard is zero. Old observations fade, so that the
curve follows a drift.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from itertools import accumulate, pairwise
from typing import Any

from bide.core.pacing.fit import COARSE, EndInterval, shapes

BINS_PER_OCTAVE = 8
FIRST, LAST = 2.0**-7, 2.0**21  # 8 ms to 24 days
EDGES: list[float] = [
    0.0,
    *(
        FIRST * 2.0 ** (i / BINS_PER_OCTAVE)
        for i in range(int(math.log2(LAST / FIRST)) * BINS_PER_OCTAVE + 1)
    ),
]
BINS = len(EDGES) - 1
WIDTHS = [high - low for low, high in pairwise(EDGES)]
SPAN = math.log(2.0) / BINS_PER_OCTAVE  # the log-width of a bin
# Without observations a job is as likely to take 2 s as 2 hours: its hazard is about k/age, with a k that grows slowly.
SHORTEST, LONGEST = 0.5, 6 * 3600.0
PRIOR = [0.02 if low < SHORTEST else 1.0 / max(1.0, math.log(LONGEST / low)) for low in EDGES[:-1]]
MEMORY = 200  # an observation has faded to 1/e after this many newer ones
NARROW = 4  # bins: an end known to fewer is distributed over them by the current curve at once
EVEN_SHARE = 0.01  # of such an end is distributed evenly, whatever the curve says
# A curve is computed again after NEWS new ends plus NEWS_SHARE of those remembered. That takes milliseconds, so the
# threshold grows by WAITING_SHARE with each waiting job beyond MANY_WAITING.
NEWS, NEWS_SHARE, MANY_WAITING, WAITING_SHARE = 0.5, 0.2, 200, 0.02
LIVE_WEIGHT = 0.15  # new ends that count when a job still runs at twice the age or more; fewer before


class Sketch:
    """Learns durations in O(1) each; `table()` returns their survival curve."""

    __slots__ = (
        "_enough",
        "_news",
        "_table",
        "_weight",
        "cells",
        "count",
        "ended",
        "passing",
        "waiting",
        "within",
    )

    def __init__(self) -> None:
        self.ended = [0.0] * BINS  # how many ended in the bin
        self.within = [0.0] * BINS  # seconds that jobs were watched in it without crossing all of it
        # How many more jobs crossed all of the bin than all of the bin before.
        self.passing = [0.0] * (BINS + 1)
        self.cells: dict[tuple[int, int], float] = {}  # ends between two edges of coarse bins
        self.count = 0
        self.waiting = 0  # jobs that wait by this sketch
        self._weight = 1.0
        self._news = 0.0  # new ends since the curve was computed
        self._enough = NEWS
        self._table: SurvivalCurve | None = None

    def learn(self, duration: float, share: float = 1.0) -> None:
        """Learn from a job that ended at this age; a `share` below 1 reduces its weight."""
        if not (0.0 <= duration < math.inf):
            return
        self._fade()
        duration = min(duration, LAST)
        self.ended[_bin(duration)] += share * self._weight
        self._watched(0.0, duration, share * self._weight)
        self._news += 1.0

    def learn_between(self, low: float, high: float) -> None:
        """Learn from a job that was running at age `low` and had ended at age `high`."""
        if not (0.0 <= low <= high < math.inf):
            return
        low, high = min(low, LAST), min(high, LAST)
        first, last = _bin(low), _bin(high)
        shares = self._shares(low, high, first, last) if last - first < NARROW else []
        self._fade()
        self._news += 1.0
        for i, share in enumerate(shares, first):
            part = self._weight * share
            self.ended[i] += part
            self._watched(low, (max(low, EDGES[i]) + min(high, EDGES[i + 1])) / 2, part)
        if shares:
            return
        # The end counts at the edges around both ages, weighted by nearness.
        a, b = _place(low), _place(high)
        for i, near in ((int(a), 1.0 - a % 1.0), (int(a) + 1, a % 1.0)):
            for j, close in ((int(b), 1.0 - b % 1.0), (int(b) + 1, b % 1.0)):
                if part := near * close * self._weight:
                    self.cells[i, j] = self.cells.get((i, j), 0.0) + part

    def _shares(self, low: float, high: float, first: int, last: int) -> list[float]:
        """Distribute an end over bins by the current curve and EVEN_SHARE; evenly before there is a curve."""
        table = self._table
        if first == last or table is None:
            return [1.0 / (last + 1 - first)] * (last + 1 - first)
        start = reached = table.cumulative_at(low)
        parts = []
        for i in range(first, last + 1):
            to = table.cumulative[i] + table.hazards[i] * (min(high, EDGES[i + 1]) - EDGES[i])
            parts.append(math.exp(start - reached) * -math.expm1(reached - to))
            reached = to
        total = sum(parts)
        if total <= 0.0:
            return [1.0 / len(parts)] * len(parts)
        return [EVEN_SHARE / len(parts) + (1.0 - EVEN_SHARE) * part / total for part in parts]

    def survived(self, low: float, high: float) -> None:
        """Learn from a job that was running at age `low` and still runs at age `high`."""
        if 0.0 <= low < high < math.inf:
            self._watched(low, high if high < LAST else LAST, self._weight)
            self._news += LIVE_WEIGHT * (high - low) / high

    def _watched(self, low: float, high: float, weight: float) -> None:
        first = bisect_right(EDGES, low) - 1
        last = bisect_right(EDGES, high, first) - 1
        if last >= BINS:
            first, last = min(first, BINS - 1), BINS - 1
        if first == last:
            self.within[first] += weight * (high - low)
            return
        self.within[first] += weight * (EDGES[first + 1] - low)
        self.within[last] += weight * (high - EDGES[last])
        self.passing[first + 1] += weight
        self.passing[last] -= weight

    def _fade(self) -> None:
        # A growing weight of new observations has the same effect as fading all old ones.
        self.count += 1
        self._weight *= 1.0 + 1.0 / MEMORY
        if self._weight > 1e9:
            self.ended = [x / self._weight for x in self.ended]
            self.within = [x / self._weight for x in self.within]
            self.passing = [x / self._weight for x in self.passing]
            self.cells = {place: x / self._weight for place, x in self.cells.items()}
            self._weight = 1.0

    def table(self, *, exact: bool = True) -> SurvivalCurve:
        """Return the survival curve of all observations. Not `exact`: it is computed again only if it has `moved`, because
        that takes milliseconds."""
        if self._table is not None and self._news <= (0.0 if exact else self._enough):
            return self._table
        scale = 1.0 / self._weight
        ended = [max(0.0, x * scale) for x in self.ended]
        watched = [
            max(0.0, (crossed * width + within) * scale) * SPAN / width
            for crossed, width, within in zip(
                accumulate(self.passing), WIDTHS, self.within, strict=False
            )
        ]
        intervals = [EndInterval(i, j, weight * scale) for (i, j), weight in self.cells.items()]
        previous = self._table.shapes() if intervals and self._table is not None else None
        found = shapes(ended, watched, intervals, PRIOR, SPAN, previous)
        hazards = [theta * SPAN / width for theta, width in zip(found, WIDTHS, strict=True)]
        self._table = SurvivalCurve(hazards, self.count)
        self._news = 0.0
        waiting = max(0, self.waiting - MANY_WAITING)
        self._enough = NEWS + NEWS_SHARE * min(self.count, MEMORY) + WAITING_SHARE * waiting
        return self._table

    def observed_quantile(self, q: float) -> float:
        """Return the age by which this share of the observed jobs had ended, as the upper edge of its bin. Unlike a quantile
        of the curve, it never exceeds the longest observation by more than a bin. 0 if no end was observed exactly.
        """
        goal, reached = q * sum(self.ended), 0.0
        for i, weight in enumerate(self.ended):
            reached += weight
            if weight and reached >= goal:
                return EDGES[i + 1]
        return 0.0

    def observed_mean(self) -> float:
        """Return the mean age at which the observed jobs had ended, accurate to a bin. 0 if no end was observed exactly."""
        ends = sum(self.ended)
        if not ends:
            return 0.0
        return sum(n * (EDGES[i] + EDGES[i + 1]) / 2 for i, n in enumerate(self.ended) if n) / ends

    @property
    def moved(self) -> bool:
        """Whether enough has been learned since the curve was computed to compute it again."""
        return self._table is None or self._news > self._enough

    def dump(self) -> dict[str, Any]:
        """Return the sketch for a ledger row: only the bins that are not empty."""
        scale = 1.0 / self._weight
        bins = {
            str(i): [x * scale for x in counts]
            for i, counts in enumerate(zip(self.ended, self.within, self.passing, strict=False))
            if any(counts)
        }
        cells = [[i, j, weight * scale] for (i, j), weight in self.cells.items()]
        return {"count": self.count, "perOctave": BINS_PER_OCTAVE, "bins": bins, "cells": cells}

    @classmethod
    def load(cls, data: dict[str, Any]) -> Sketch:
        """Return the sketch of a dump; an empty one if another version dumped it with other bins."""
        sketch = cls()
        if data.get("perOctave") != BINS_PER_OCTAVE:
            return sketch
        sketch.count = int(data["count"])
        for key, (ended, within, passing) in data["bins"].items():
            if 0 <= int(key) < BINS:
                sketch.ended[int(key)] = float(ended)
                sketch.within[int(key)] = float(within)
                sketch.passing[int(key)] = float(passing)
        for i, j, weight in data.get("cells", ()):
            if _is_cell(i, j):
                sketch.cells[int(i), int(j)] = float(weight)
        return sketch

    def absorb(self, data: dict[str, Any], share: float = 1.0) -> None:
        """Add a dump of another sketch; each observation counts `share` times."""
        if data.get("perOctave") != BINS_PER_OCTAVE:
            return
        for _ in range(int(data["count"])):
            self._fade()
        weight = share * self._weight
        for key, (ended, within, passing) in data["bins"].items():
            if 0 <= int(key) < BINS:
                self.ended[int(key)] += float(ended) * weight
                self.within[int(key)] += float(within) * weight
                self.passing[int(key)] += float(passing) * weight
        for i, j, ends in data.get("cells", ()):
            if _is_cell(i, j):
                self.cells[int(i), int(j)] = self.cells.get((i, j), 0.0) + float(ends) * weight
        self._news += max(float(data["count"]), LIVE_WEIGHT)


def _bin(age: float) -> int:
    return min(bisect_right(EDGES, age) - 1, BINS - 1)


def _is_cell(low: int, high: int) -> bool:
    return 0 <= low < high <= BINS // COARSE


def _place(age: float) -> float:
    """Return the position of an age among the edges of coarse bins."""
    if age < FIRST:
        return age / FIRST / COARSE
    return min(1.0 + BINS_PER_OCTAVE * math.log2(age / FIRST), BINS - 1.0) / COARSE


class SurvivalCurve:
    """The survival curve S of a sketch: cumulative hazard, S and ∫S at the bin edges, closed form between them."""

    __slots__ = ("count", "cumulative", "hazards", "integral", "surviving")

    def __init__(self, hazards: list[float], count: int) -> None:
        self.hazards = hazards
        self.count = count
        self.cumulative = [
            0.0,
            *accumulate(hazard * width for hazard, width in zip(hazards, WIDTHS, strict=True)),
        ]
        self.surviving = [math.exp(-gathered) for gathered in self.cumulative]
        self.integral = [0.0]
        for i, hazard in enumerate(hazards):
            gained = self.surviving[i] * -math.expm1(-hazard * WIDTHS[i]) / hazard
            self.integral.append(self.integral[-1] + gained)

    def shapes(self) -> list[float]:
        """Return hazard × age per bin, as fit.py uses it."""
        return [hazard * width / SPAN for hazard, width in zip(self.hazards, WIDTHS, strict=True)]

    def cumulative_at(self, age: float) -> float:
        if age <= 0:
            return 0.0
        i = min(bisect_right(EDGES, age) - 1, BINS - 1)
        return self.cumulative[i] + self.hazards[i] * (age - EDGES[i])

    def survival(self, age: float) -> float:
        """Return the probability that a job still runs at this age."""
        return math.exp(-self.cumulative_at(age))

    def mean(self, upto: float = LAST) -> float:
        """Return the mean duration, cut off at an age."""
        i = min(max(bisect_right(EDGES, upto) - 1, 0), BINS - 1)
        part = self.surviving[i] * -math.expm1(self.hazards[i] * (EDGES[i] - upto)) / self.hazards[i]
        return self.integral[i] + part

    def quantile(self, q: float, age: float = 0.0) -> float:
        """Return the age by which a job that has reached `age` has ended with probability q."""
        goal = (self.cumulative_at(age) if age else 0.0) - math.log1p(-q)
        i = min(max(bisect_right(self.cumulative, goal) - 1, 0), BINS - 1)
        return max(age, EDGES[i] + (goal - self.cumulative[i]) / self.hazards[i])
