"""Statistics of one kind of job at one API: how long its jobs take, and how accurate its reports are.

A report (progress, an ETA, a position in a queue, the caller's own expectation) estimates the rest of a job. The client
learns the distribution of the real rest as a multiple of the reported one. Accurate reports make it narrow; a wide one
loses against the durations of the kind alone.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

from bide.client.apis import Answer, Seen
from bide.client.apis.values import header, instant
from bide.client.job_state import Expected
from bide.client.polling_options import Size
from bide.core.pacing.hazard import Sketch, SurvivalCurve
from bide.core.pacing.plan import Plans

ENOUGH = 3  # ended jobs after which the durations of a kind are used
SMALLEST_LEFT = 0.05  # seconds; a shorter rest counts as this
LONGEST_ADVICE = 300.0  # seconds; the longest Retry-After that is obeyed
# Seconds between two polls above which the finish time of the API is more accurate than the time of the poll.
COARSE = 5.0
WINDOW = "expected from "


class Bounds(NamedTuple):
    """The shortest and longest silence between two polls, and the duration to assume at first, in seconds."""

    shortest: float
    longest: float
    expected: float


# Most jobs take about a third of the timeout.
SIZES: dict[Size, Bounds] = {
    "small": Bounds(2.0, 5.0, 18.0),
    "medium": Bounds(3.0, 10.0, 54.0),
    "large": Bounds(5.0, 15.0, 180.0),
}
TIMEOUTS: dict[Size, float] = {"small": 60.0, "medium": 180.0, "large": 600.0}
SMALL_PAGES, MEDIUM_PAGES = 10, 50  # the largest small and the largest medium document


def pages(count: int) -> Size:
    """Return the size of a document: small up to 10 pages, medium up to 50, otherwise large."""
    if count < 0:
        raise ValueError(f"A document cannot have {count} pages")
    if count <= SMALL_PAGES:
        return "small"
    return "medium" if count <= MEDIUM_PAGES else "large"


class KindStats:
    """The statistics of one kind, or of one size class of it."""

    __slots__ = ("batch", "hint", "plans", "reports")

    def __init__(self, sketch: Sketch | None = None, batch: int = 1) -> None:
        self.plans = Plans(Sketch() if sketch is None else sketch)
        self.batch = batch  # jobs that one request can poll
        self.reports: dict[Hashable, Plans] = {}
        self.hint: float | None = None  # the duration that the caller expects

    @property
    def known(self) -> bool:
        """Whether enough ends of its jobs have been seen, or the caller knows how long they take."""
        return self.hint is not None or self.plans.sketch.count >= ENOUGH

    @property
    def waiting(self) -> int:
        """How many jobs of this kind the client waits for."""
        return self.plans.sketch.waiting

    def expect(self, duration: float) -> None:
        """Assume a duration until jobs have ended."""
        for factor in (0.6, 1.0, 1.6):
            self.plans.sketch.learn(duration * factor, 0.5)

    def outlook(self) -> SurvivalCurve | None:
        """How long its jobs take, as learned or as the caller expects; None if neither is known."""
        if self.plans.sketch.count >= ENOUGH:
            return self.plans.sketch.table(exact=False)
        if self.hint is None:
            return None
        guess = KindStats()
        guess.expect(self.hint)
        return guess.plans.sketch.table()

    def report(self, source: Hashable) -> Plans:
        """The real rest as a multiple of the reported one, for this source."""
        plans = self.reports.get(source)
        if plans is None:
            sketch = Sketch()
            for factor, weight in _assumed(str(source)):
                sketch.learn(factor, weight)
            plans = self.reports[source] = Plans(sketch)
        return plans

    def dump(self) -> dict[str, Any]:
        reports = {str(source): plans.sketch.dump() for source, plans in self.reports.items()}
        return {"durations": self.plans.sketch.dump(), "reports": reports}

    @classmethod
    def load(cls, data: dict[str, Any], batch: int = 1) -> KindStats:
        kind = cls(Sketch.load(data["durations"]), batch)
        kind.reports = {
            source: Plans(Sketch.load(dump)) for source, dump in data.get("reports", {}).items()
        }
        return kind


class ProgressReport(NamedTuple):
    """The rest of a job in an answer, in seconds or positions. `source` separates reports of different accuracy."""

    source: str
    left: float


def by_expectation(expected: Expected) -> ProgressReport:
    """The duration that the caller expects. Each window is a source of its own."""
    if not isinstance(expected, list | tuple):
        return ProgressReport("expected", max(SMALLEST_LEFT, expected))
    low, high = (max(SMALLEST_LEFT, seconds) for seconds in expected)
    return ProgressReport(f"{WINDOW}{low:g} to {high:g}", math.sqrt(low * high))


def _assumed(source: str) -> Sequence[tuple[float, float]]:
    """The real rests as multiples of the reported one, before any was seen, and their weights in ended jobs.

    A window says more than one number, so it weighs more: the first poll is near its start.
    """
    if not source.startswith(WINDOW):
        return [(factor, 0.5) for factor in (0.7, 1.0, 1.4)]
    low, high = map(float, source.removeprefix(WINDOW).split(" to "))
    return [((high / low) ** (part / 4), 2.0) for part in (-2, -1, 0, 1, 2)]


def by_position(position: float) -> ProgressReport:
    """Return the report of a position in a queue. The client learns how many seconds one position takes."""
    return ProgressReport("position", max(1.0, position))


def advice(seen: Seen) -> float | None:
    """Return the seconds for which the API wants no poll."""
    pause = seen.retry_after
    return None if pause is None or pause <= 0 else min(pause, LONGEST_ADVICE)


def clock_of(answer: Answer) -> float | None:
    """The API's own clock in epoch seconds. Its times are compared with it because it may be wrong.

    Call it only when needed: parsing a date takes as long as reading the rest of an answer.
    """
    return instant(header(answer.headers, "Date"))


def took(age: float, asked: float, seen: Seen, answer: Answer) -> float | None:
    """The duration of a job that ended between the ages `asked` and `age`, by the times of the API itself."""
    if seen.finished_at is None or age - asked < COARSE:
        return None
    clock = clock_of(answer)
    if clock is None or clock - seen.finished_at < -COARSE:  # in the future
        return None
    return age - max(0.0, clock - seen.finished_at)


def rest(seen: Seen, answer: Answer) -> ProgressReport | None:
    """The rest of the job, if the answer contains a time for it."""
    if seen.remaining is not None and seen.remaining > 0:
        return ProgressReport("remaining", seen.remaining)
    if seen.eta is not None:
        clock = clock_of(answer)
        if clock is not None and seen.eta > clock:
            return ProgressReport("eta", seen.eta - clock)
    return None
