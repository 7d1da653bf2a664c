"""What the service has learned of each kind's durations, and what follows: `Retry-After` and `eta`.

1. What is not known is None: no estimate is better than a false one.
2. Answers come from curves that are made when somebody asks, and made anew at most once a second for each kind: it takes
   milliseconds of the service's loop, and jobs may end by the thousand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from bide.core.clock import Clock, SystemClock, render_instant
from bide.core.hazard import Sketch, SurvivalCurve
from bide.core.pacing import Hints, remaining_by_progress, retry_after
from bide.core.record import SUCCESSFUL, Job, Progress, Status
from bide.core.wire import Eta, Event

ENOUGH = 3  # observations before an eta is dared
SPREAD = (0.1, 0.5, 0.9)
PAUSE = 1.0  # seconds in which a kind's curve is not made twice


class KindEstimates(NamedTuple):
    """What a kind's durations came to at some moment."""

    table: SurvivalCurve
    hints: Hints
    at: float


class Estimates:
    """Learns from the event log; answers from curves that are made anew when enough is new."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._sketches: dict[str, Sketch] = {}
        self._known: dict[str, KindEstimates] = {}
        self._unsaved: set[str] = set()

    def load(self, durations: dict[str, dict[str, Any]]) -> None:
        """In the place of what was heard until now: those who have stored this heard it too."""
        self._unsaved.clear()
        self._sketches = {kind: Sketch.load(data) for kind, data in durations.items()}

    def unsaved(self) -> dict[str, dict[str, Any]]:
        """What was learned since the last call."""
        kinds, self._unsaved = self._unsaved, set()
        return {kind: self._sketches[kind].dump() for kind in kinds}

    def on_events(self, events: Sequence[Event]) -> None:
        for event in events:
            if event.type == "status" and event.job["status"] in SUCCESSFUL:
                seconds = event.job.get("seconds")
                if seconds is not None:
                    self._sketch(event.job["kind"]).learn(seconds)
                    self._unsaved.add(event.job["kind"])

    def _sketch(self, kind: str) -> Sketch:
        return self._sketches.setdefault(kind, Sketch())

    def _knows(self, kind: str) -> KindEstimates:
        sketch = self._sketch(kind)
        known = self._known.get(kind)
        if known is not None and not sketch.moved:
            return known
        now = self._clock.now()
        # The few first ends are news worth more than a pause: with them an eta is dared.
        dared = known is not None and known.table.count < ENOUGH <= sketch.count
        if known is None or dared or now - known.at >= PAUSE:
            table = sketch.table()
            known = self._known[kind] = KindEstimates(table, Hints(table), now)
        return known

    def retry_after(self, job: Job, progress: Progress | None, now: float) -> int:
        """When it is worth asking again, in whole seconds."""
        hints = self._knows(job.kind).hints
        if job.status is not Status.PROCESSING or job.started_at is None:
            return retry_after(max(0.0, (job.due or now) - now) + hints.after(0.0))
        elapsed = now - job.started_at
        left = remaining_by_progress(elapsed, progress.percent if progress else None)
        # Nine tenths of what is left, then of what is left then: close to the end without running past it.
        return retry_after(hints.after(elapsed) if left is None else left * 0.9)

    def eta(self, job: Job, progress: Progress | None, reported_at: float, now: float) -> Eta | None:
        """When it will have ended.

        Made of what the ETag stands for, not of the time of asking: by its own progress as it was when it was
        reported, else by what jobs of its kind took. Past the latest of that, nothing is known.
        """
        if job.status is not Status.PROCESSING or job.started_at is None:
            return None
        left = remaining_by_progress(
            reported_at - job.started_at, progress.percent if progress else None
        )
        if left is not None:
            return _eta(*(reported_at + factor * left for factor in (0.7, 1.0, 1.5)))
        sketch = self._sketches.get(job.kind)
        if sketch is None or sketch.count < ENOUGH:
            return None
        table = self._knows(job.kind).table
        low, middle, high = (job.started_at + table.quantile(q) for q in SPREAD)
        return _eta(low, middle, high) if now < high else None

    def describe(self, kind: str) -> dict[str, Any] | None:
        """For GET /kinds: how long jobs of this kind take, as far as it is known."""
        sketch = self._sketches.get(kind)
        if sketch is None or sketch.count < ENOUGH:
            return None
        table = self._knows(kind).table
        low, middle, high = (round(table.quantile(q), 3) for q in SPREAD)
        return {"jobs": sketch.count, "p10": low, "p50": middle, "p90": high}


def _eta(low: float, middle: float, high: float) -> Eta:
    return Eta(render_instant(middle), render_instant(low), render_instant(high))
