"""What is known of one kind of job at one API: how long its jobs take, and how far its reports can be believed.

A report (progress, an ETA, a place in a queue, the caller's own expectation) says how much is left. What is learned is
the distribution of what was left in fact, as a multiple of what was said: a report that proves right makes it narrow,
one that does not makes it wide, and a wide one loses against what the kind's durations alone tell.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Any, Literal, NamedTuple

from bide.core.hazard import Sketch, SurvivalCurve
from bide.core.plan import Plans

Size = Literal["small", "medium", "large"]
ENOUGH = 3  # ends seen, before what a kind's durations tell counts for much
SMALLEST_LEFT = 0.05  # seconds; less cannot be told from nothing


class Bounds(NamedTuple):
    """Silence between two questions, in seconds, and the duration to think of at first."""

    shortest: float
    longest: float
    expected: float


# Most jobs take about a third of the time-out.
SIZES: dict[Size, Bounds] = {
    "small": Bounds(2.0, 5.0, 18.0),
    "medium": Bounds(3.0, 10.0, 54.0),
    "large": Bounds(5.0, 15.0, 180.0),
}
TIMEOUTS: dict[Size, float] = {"small": 60.0, "medium": 180.0, "large": 600.0}


class Kind:
    """Jobs of one kind, and of one size class where callers give one."""

    __slots__ = ("batch", "hint", "plans", "reports", "waiting")

    def __init__(self, sketch: Sketch | None = None, batch: int = 1) -> None:
        self.plans = Plans(sketch)
        self.batch = batch  # jobs that one request can ask about
        self.reports: dict[Hashable, Plans] = {}
        self.waiting = 0  # how many of it are waited for
        self.hint: float | None = None  # what a caller expects of its jobs

    def wait(self, more: int) -> None:
        self.waiting += more
        self.plans.sketch.crowd = self.waiting

    def expect(self, duration: float) -> None:
        """A first idea, given up for what is seen."""
        for factor in (0.6, 1.0, 1.6):
            self.plans.sketch.learn(duration * factor, 0.5)

    def outlook(self) -> SurvivalCurve | None:
        """How long its jobs take, by what was seen, or else by what a caller said; None when nobody knows."""
        if self.plans.sketch.count >= ENOUGH:
            return self.plans.sketch.latest()
        if self.hint is None:
            return None
        guess = Kind()
        guess.expect(self.hint)
        return guess.plans.sketch.table()

    def report(self, source: Hashable) -> Plans:
        """How what was left in fact compares with what such a report said."""
        plans = self.reports.get(source)
        if plans is None:
            sketch = Sketch()
            for factor in (0.7, 1.0, 1.4):
                sketch.learn(factor, 0.5)
            plans = self.reports[source] = Plans(sketch)
        return plans

    def dump(self) -> dict[str, Any]:
        reports = {str(source): plans.sketch.dump() for source, plans in self.reports.items()}
        return {"durations": self.plans.sketch.dump(), "reports": reports}

    @classmethod
    def load(cls, data: dict[str, Any], batch: int = 1) -> Kind:
        kind = cls(Sketch.load(data["durations"]), batch)
        kind.reports = {
            source: Plans(Sketch.load(dump)) for source, dump in data.get("reports", {}).items()
        }
        return kind


class Report(NamedTuple):
    """What an answer says of the rest of this very job. `source` tells apart reports that are right to different degrees."""

    source: str
    left: float


def by_progress(age: float, percent: float | None) -> Report | None:
    """What is left by a percentage. Each halving of the rest is learned by itself, for the errors differ."""
    if percent is None or not 1.0 <= percent <= 100.0 or age <= 0:
        return None
    rest = (100.0 - percent) / 100.0
    stage = "early" if percent < 25.0 else str(min(6, int(-math.log2(max(rest, 1e-3)))))
    return Report(f"progress {stage}", max(SMALLEST_LEFT, age * rest / (1.0 - rest)))


def by_position(position: float) -> Report:
    """A place in a queue, in units of places: how long one takes is learned."""
    return Report("position", max(1.0, position))
