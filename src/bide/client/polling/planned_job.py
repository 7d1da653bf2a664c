"""A job that is waited for, and when it is due to be asked about."""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Any

from bide.client.polling.kinds import ENOUGH, SMALLEST_LEFT, Kind, Report, by_progress
from bide.core.pacing import index
from bide.core.plan import Plans

FOREVER = math.inf
LONGEST_SILENCE = 3600.0
URGENCY, URGENT_WITHIN = (
    9.0,
    60.0,
)  # what a deadline adds to a job's weight at most, and when it adds half of that
FADING = 0.9  # what a percentage counts for when the next one is there


class Waited:
    """Ages are seconds since the job was born; moments are the caller's monotonic clock."""

    __slots__ = (
        "asked",
        "born",
        "deadline",
        "given",
        "group",
        "key",
        "kind",
        "leads",
        "longest",
        "made",
        "not_before",
        "number",
        "origin",
        "planned",
        "progress",
        "report",
        "reports",
        "scale",
        "sent",
        "shortest",
        "version",
    )

    def __init__(self, key: Any, kind: Kind, born: float, group: Hashable = ()) -> None:
        self.key = key  # the caller's own
        self.group = group
        self.kind = kind
        self.born = born
        self.asked = 0.0  # age at which it was last known to be going on
        self.sent = 0.0  # age at which the question that is on its way was sent
        self.planned = 0.0  # age at which it is due
        self.made = 0.0  # the price at that plan
        self.given = False  # the moment is not of that plan: it was given, and no new plan may move it
        self.version = 0  # of what was known then
        self.number = 0  # of its live entry in the queue; 0: it is being asked about; below: it is gone
        self.not_before = -FOREVER
        self.shortest = 0.0
        self.longest = LONGEST_SILENCE
        self.deadline = FOREVER
        self.report: Plans | None = None  # how far such a report as its last can be believed
        self.leads = False  # whether that report, and not the kind's durations, decides
        self.origin = self.scale = 0.0  # the report: at this age, so much was left
        self.reports: dict[str, tuple[float, float]] | None = None  # the first of each source
        self.progress: tuple[float, float] | None = None  # the line through its percentages so far

    def believe(self, report: Report, price: float, age: float, now: float) -> None:
        """Keeps a report, and follows it when less delay and fewer requests are to be expected so."""
        self.report = self.kind.report(report.source)
        self.origin, self.scale = age, report.left
        if self.reports is None:
            self.reports = {}
        self.reports.setdefault(report.source, (age, report.left))
        by_report = report.left * self.report.at(price / report.left, now).cost(0.0)
        known = self.kind.plans.sketch.count >= ENOUGH
        self.leads = not known or by_report < self.kind.plans.at(price, now).cost(age)

    def progressed(self, age: float, percent: float | None) -> Report | None:
        """What is left by a percentage and those before it.

        A line from the start through all of them, the older the less, is nearer the truth than the last one alone.
        """
        if percent is None or not 1.0 <= percent <= 100.0 or age < SMALLEST_LEFT:
            return None
        along, square = self.progress or (0.0, 0.0)
        self.progress = along, square = along * FADING + age * percent, square * FADING + age * age
        return by_progress(age, min(100.0, age * along / square))

    def weight(self, now: float) -> float:
        """How much more than others a second of its delay costs; the nearer the deadline, the more."""
        if self.deadline == FOREVER:
            return 1.0
        return 1.0 + URGENCY / (1.0 + max(0.0, self.deadline - now) / URGENT_WITHIN)

    def plan(self, price: float, now: float, dice: float) -> float:
        """Decides when it is due, at a price; gives the moment."""
        if self.deadline != FOREVER:
            price /= self.weight(now)
        if self.leads and self.report is not None:
            plans, scale = self.report, self.scale
            at = plans.at(price / scale, now, dice).next((self.asked - self.origin) / scale)
            age = self.origin + at * scale
        else:
            plans = self.kind.plans
            age = plans.at(price, now, dice).next(self.asked)
        self.version = plans.version
        silence = age - self.asked
        if silence < self.shortest:
            age = self.asked + self.shortest
        elif silence > self.longest:
            age = self.asked + self.longest
        self.planned = age
        due = self.born + age
        if now < self.deadline < due:
            due = self.deadline
        return due if due > self.not_before else self.not_before

    def stale(self, price: float) -> bool:
        """Whether the plan was made for another price, or with much less knowledge."""
        if self.given:
            return False
        plans = self.report if self.leads and self.report is not None else self.kind.plans
        return plans.version != self.version or not 0.8 * price < self.made < 1.25 * price

    def lost(self, now: float) -> float:
        """Seconds lost in expectation since it was asked about, by weight."""
        age = now - self.born
        if self.leads and self.report is not None:
            table = self.report.sketch.latest()
            since = (self.asked - self.origin) / self.scale
            found = self.scale * index(table, since, (age - self.origin) / self.scale)
        else:
            found = index(self.kind.plans.sketch.latest(), self.asked, age)
        return found * self.weight(now)

    def goes_on(self) -> None:
        """The answer to the question that was sent: not yet."""
        self.kind.plans.sketch.survived(self.asked, self.sent)
        self.asked = self.sent

    def ended(self, age: float, took: float | None) -> None:
        """It was found ended at this age; `took` is how long it took in fact, where the API tells."""
        low = self.asked
        if took is not None and low <= took <= age:
            self.kind.plans.sketch.learn_between(took, took)
            self.kind.plans.sketch.survived(low, took)
            low = age = took
        else:
            self.kind.plans.sketch.learn_between(low, age)
        for source, (origin, left) in (self.reports or {}).items():
            sketch = self.kind.report(source).sketch
            since = max(0.0, (low - origin) / left)
            sketch.survived(0.0, since)
            sketch.learn_between(since, max(since, (age - origin) / left))
