"""The learned durations of each kind, and the estimates from them: `Retry-After` and `eta`.

1. An unknown value is None: no estimate is better than a wrong one.
2. Estimates come from curves that are built on demand, at most once per second and kind, because building one takes
   milliseconds of the event loop and thousands of jobs may end in that time.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from bide.core.clock import Clock, SystemClock, render_instant
from bide.core.jobs.record import SUCCESSFUL, Job, Progress, Status
from bide.core.pacing.hazard import Sketch, SurvivalCurve
from bide.core.pacing.intervals import PROGRESS_SPREAD, Hints, remaining_by_progress, retry_after
from bide.core.wire.http import Eta, Event

ENOUGH = 3  # observations that an eta needs
ENOUGH_FOR_LIMIT = 10  # observations that a usual limit needs
SPREAD = (0.1, 0.5, 0.9)
PAUSE = 1.0  # seconds between two builds of a kind's curve
REFRESH = 10.0  # seconds, if only the accuracy of `eta` needs it


class KindEstimates(NamedTuple):
    """The curve of a kind's durations, built at `at`."""

    table: SurvivalCurve
    hints: Hints
    at: float
    spread: tuple[float, float, float] | None  # the quantiles of SPREAD; None: too few durations


class Estimates:
    """Learns durations from events and computes estimates."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._sketches: defaultdict[str, Sketch] = defaultdict(Sketch)
        self._known: dict[str, KindEstimates] = {}
        self._means: dict[str, tuple[int, float]] = {}  # after how many observations, by kind
        self._unsaved: set[str] = set()

    def load(self, durations: dict[str, dict[str, Any]]) -> None:
        """Replace the durations that were learned so far with the stored ones, which include them."""
        self._unsaved.clear()
        self._sketches.clear()
        self._means.clear()
        self._sketches.update((kind, Sketch.load(data)) for kind, data in durations.items())

    def unsaved(self) -> dict[str, dict[str, Any]]:
        """The durations of kinds that have changed since the last call."""
        kinds, self._unsaved = self._unsaved, set()
        return {kind: self._sketches[kind].dump() for kind in kinds}

    def on_events(self, events: Sequence[Event]) -> None:
        for event in events:
            if event.type == "status" and event.job["status"] in SUCCESSFUL:
                seconds = event.job.get("seconds")
                if seconds is not None:
                    self._sketches[event.job["kind"]].learn(seconds)
                    self._unsaved.add(event.job["kind"])

    def _estimates_of(self, kind: str) -> KindEstimates:
        sketch = self._sketches[kind]
        known = self._known.get(kind)
        if known is not None and not sketch.moved:
            return known
        now = self._clock.now()
        # Do not wait for PAUSE when the observations first suffice for an eta.
        first_eta = known is not None and known.table.count < ENOUGH <= sketch.count
        if known is None or first_eta or now - known.at >= PAUSE:
            table = sketch.table()
            low, middle, high = (table.quantile(q) for q in SPREAD)
            spread = (low, middle, high) if table.count >= ENOUGH else None
            known = self._known[kind] = KindEstimates(table, Hints(table), now, spread)
        return known

    def retry_after(self, job: Job, progress: Progress | None, now: float) -> int:
        """Whole seconds until the next poll is worthwhile."""
        hints = self._estimates_of(job.kind).hints
        if job.status is not Status.PROCESSING or job.started_at is None:
            return retry_after(
                max(0.0, (job.next_attempt_at or job.due or now) - now) + hints.after(0.0)
            )
        elapsed = now - job.started_at
        left = remaining_by_progress(elapsed, progress.percent if progress else None)
        # Nine tenths of the remaining time, each time: polls approach the end without passing it by much.
        return retry_after(hints.after(elapsed) if left is None else left * 0.9)

    def eta(self, job: Job, progress: Progress | None, reported_at: float, now: float) -> Eta | None:
        """When the job will have ended.

        The estimate depends on the state that the ETag identifies, not on the time of the request: on the job's progress
        when it was reported, otherwise on the durations of its kind. None after the latest estimate has passed.
        """
        if job.status is not Status.PROCESSING or job.started_at is None:
            return None
        left = remaining_by_progress(
            reported_at - job.started_at, progress.percent if progress else None
        )
        if left is not None:
            return _eta(*(reported_at + factor * left for factor in PROGRESS_SPREAD))
        sketch = self._sketches.get(job.kind)
        if sketch is None or sketch.count < ENOUGH:
            return None
        spread = self._estimates_of(job.kind).spread
        if spread is None:
            return None
        low, middle, high = (job.started_at + seconds for seconds in spread)
        return _eta(low, middle, high) if now < high else None

    def latest_spread(self, kind: str) -> tuple[float, float, float] | None:
        """The durations that an `eta` of this kind is made from: low, middle and high. At most REFRESH seconds old, so that
        it costs little for each job.
        """
        sketch, known = self._sketches.get(kind), self._known.get(kind)
        if sketch is None or sketch.count < ENOUGH:
            return None
        if known is None or known.spread is None or self._clock.now() - known.at >= REFRESH:
            known = self._estimates_of(kind)
        return known.spread

    def usual_limit(self, kind: str) -> float | None:
        """The duration that 99 of 100 jobs of the kind do not exceed; None if it is unknown."""
        sketch = self._sketches.get(kind)
        if sketch is None or sketch.count < ENOUGH_FOR_LIMIT:
            return None
        return sketch.observed_quantile(0.99)

    def usual(self, kind: str) -> float | None:
        """The duration that half of the jobs of the kind do not exceed; None if it is unknown."""
        sketch = self._sketches.get(kind)
        return None if sketch is None or sketch.count < ENOUGH else sketch.observed_quantile(0.5)

    def predicted_wait(
        self, kinds: Iterable[str], waiting: int, running: int, slots: int | None
    ) -> float | None:
        """The seconds until a job that is submitted now would start; None if it is unknown.

        `kinds` use its queue, which has `waiting` and `running` jobs, and runs up to `slots` jobs at once. If other queues
        use the same workers, fewer run; so while jobs wait, the number of running jobs counts. Each kind has its share of
        the jobs that have ended.
        """
        if slots is None or slots < 1:
            return None
        if not waiting and running < slots:
            return 0.0
        mean = self._mean(kinds)
        return None if mean is None else (waiting + 1) * mean / (min(slots, running) or slots)

    def workers_needed(self, kinds: Iterable[str], waiting: int, running: int, target: float) -> int:
        """How many jobs of a queue must run at once, so that the last of the `waiting` ones starts within `target` seconds.

        At least as many as run, and at least 1 while jobs wait. If no duration is known, one more than run.
        """
        if not waiting:
            return running
        mean = self._mean(kinds)
        if mean is None:
            return running + 1
        # Each additional slot starts a job at once, and each slot starts one more whenever a job ends.
        ends = target / max(mean, 1e-6)  # per slot, within the target
        return running + max(0, math.ceil((waiting - running * ends) / (1.0 + ends)))

    def _mean(self, kinds: Iterable[str]) -> float | None:
        """The mean duration of the jobs of these kinds; None if it is unknown."""
        known = [found for kind in kinds if (found := self._observed(kind)) is not None]
        if not known:
            return None
        return sum(count * mean for count, mean in known) / sum(count for count, _ in known)

    def _observed(self, kind: str) -> tuple[int, float] | None:
        """How many jobs of the kind were observed, and their mean duration; None if there are too few. It is computed once
        per observation, because each submission may need it.
        """
        sketch = self._sketches.get(kind)
        if sketch is None or sketch.count < ENOUGH:
            return None
        known = self._means.get(kind)
        if known is None or known[0] != sketch.count:
            known = self._means[kind] = (sketch.count, sketch.observed_mean())
        return known

    def describe(self, kind: str) -> dict[str, Any] | None:
        """The known durations of a kind, for GET /kinds."""
        sketch = self._sketches.get(kind)
        if sketch is None or sketch.count < ENOUGH:
            return None
        spread = self._estimates_of(kind).spread
        if spread is None:
            return None
        low, middle, high = (round(seconds, 3) for seconds in spread)
        return {"jobs": sketch.count, "p10": low, "p50": middle, "p90": high}


def _eta(low: float, middle: float, high: float) -> Eta:
    return Eta(render_instant(middle), render_instant(low), render_instant(high))
