"""PlannedJob: the entry of a job in the schedule, and the time at which it is due."""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Any

from bide.client.polling.kinds import ENOUGH, SMALLEST_LEFT, KindStats, ProgressReport
from bide.client.polling_options import LONGEST_INTERVAL
from bide.core.pacing.intervals import index
from bide.core.pacing.plan import Plans

FOREVER = math.inf
# A deadline adds at most URGENCY to a job's weight, and half of that URGENT_WITHIN seconds before.
URGENCY, URGENT_WITHIN = 9.0, 60.0
FADING = 0.9  # the weight of a percentage after the next one has arrived


class PlannedJob:
    """Ages are seconds since the job was submitted; times are of the caller's monotonic clock."""

    __slots__ = (
        "asked",
        "deadline",
        "given",
        "group",
        "interval",
        "key",
        "kind",
        "latest",
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
        "submitted",
        "version",
    )

    def __init__(self, key: Any, kind: KindStats, submitted: float, group: Hashable = ()) -> None:
        self.key = key  # the caller's object
        self.group = group
        self.kind = kind
        self.submitted = submitted
        self.asked = 0.0  # age at which it was last known to be live
        self.sent = 0.0  # age at which the pending poll was sent
        self.planned = 0.0  # age at which it is due
        self.made = 0.0  # the price of that plan
        self.latest = FOREVER  # age at which it is due at any price
        self.given = False  # the caller has set the time, and no new plan may change it
        self.version = 0  # of the knowledge that the plan was made with
        self.number = 0  # of its entry in the queue; 0: a poll is pending; negative: removed
        self.not_before = -FOREVER
        self.shortest = 0.0
        self.longest = LONGEST_INTERVAL
        self.interval = 0.0  # with a backoff: the silence until the next poll, without jitter
        self.deadline = FOREVER
        self.report: Plans | None = None  # how accurate reports like its last one are
        self.leads = False  # whether the report sets the plan, not the kind's durations
        self.origin = self.scale = 0.0  # the report: at the age `origin`, `scale` seconds were left
        self.reports: dict[str, tuple[float, float]] | None = None  # the first of each source
        self.progress: tuple[float, float] | None = None  # the line through its percentages so far

    def apply_report(self, report: ProgressReport, price: float, age: float, now: float) -> None:
        """Store a report, and plans by it if that is expected to cost less delay and fewer requests."""
        self.report = self.kind.report(report.source)
        self.origin, self.scale = age, report.left
        if self.reports is None:
            self.reports = {}
        self.reports.setdefault(report.source, (age, report.left))
        by_report = report.left * self.report.at(price / report.left, now).cost(0.0)
        known = self.kind.plans.sketch.count >= ENOUGH
        self.leads = not known or by_report < self.kind.plans.at(price, now).cost(age)

    def progressed(self, age: float, percent: float | None) -> ProgressReport | None:
        """How much is left by this percentage and the earlier ones.

        A line from the start through all of them, with less weight for older ones, is more accurate than the last alone.
        Each halving of the rest is a source of its own, because the errors differ.
        """
        if percent is None or not 1.0 <= percent <= 100.0 or age < SMALLEST_LEFT:
            return None
        along, square = self.progress or (0.0, 0.0)
        self.progress = along, square = along * FADING + age * percent, square * FADING + age * age
        percent = min(100.0, age * along / square)
        if percent < 1.0:
            return None
        rest = (100.0 - percent) / 100.0
        stage = "early" if percent < 25.0 else str(min(6, int(-math.log2(max(rest, 1e-3)))))
        return ProgressReport(f"progress {stage}", max(SMALLEST_LEFT, age * rest / (1.0 - rest)))

    def weight(self, now: float) -> float:
        """The relative cost of a second of its delay: it grows as the deadline approaches."""
        if self.deadline == FOREVER:
            return 1.0
        return 1.0 + URGENCY / (1.0 + max(0.0, self.deadline - now) / URGENT_WITHIN)

    def lost(self, now: float) -> float:
        """The expected seconds of delay since the last poll, by weight."""
        age = now - self.submitted
        if self.leads and self.report is not None:
            table = self.report.sketch.table(exact=False)
            since = (self.asked - self.origin) / self.scale
            found = self.scale * index(table, since, (age - self.origin) / self.scale)
        else:
            found = index(self.kind.plans.sketch.table(exact=False), self.asked, age)
        return found * self.weight(now)
