"""Back-pressure: refuses new jobs that would wait too long, and lists and statistics while the service is too busy.

1. Without a configured bound, nothing is refused and nothing is measured.
2. A bound is lower for jobs with a priority below 0, and higher for those above 0, so low priorities are refused first.
3. A job that was accepted is never refused later: neither a repeat with its key, nor an upload that has begun, nor a child.
4. The state of a queue is read at most every REFRESH seconds; jobs that are accepted in between are added.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable
from typing import Protocol

from bide.core.errors import Overloaded
from bide.core.jobs.record import Job
from bide.server.config import AdmissionConfig, QueueAdmission
from bide.server.engine import Fleet, ServiceWarning
from bide.server.estimates import Estimates
from bide.server.registry import Registry
from bide.server.store import NewJob, QueueState

REFRESH = 0.2  # seconds
LOW, HIGH = 0.8, 1.25  # the part of a bound that applies to priorities below and above 0
UNKNOWN = 5  # seconds of Retry-After, if no duration is known yet
RECENT = 10.0  # seconds after a refusal for which `/readyz` warns
BUSY = 2  # seconds of Retry-After of lists and statistics
TICK = 0.1  # seconds between two measurements of the event loop
FADING = 1.0  # seconds in which a measured delay falls to half
NO_BOUNDS = QueueAdmission()


class AdmissionStore(Protocol):
    def now(self) -> float: ...

    async def queues(self) -> list[QueueState]: ...

    async def has_key(self, tenant: str, kind: str, key: str) -> bool: ...


class Admission:
    """Decides whether the service accepts a new job."""

    def __init__(
        self,
        config: AdmissionConfig,
        store: AdmissionStore,
        registry: Registry,
        estimates: Estimates,
        fleet: Fleet,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.on = config != AdmissionConfig()
        self._config = config
        self._store = store
        self._registry = registry
        self._estimates = estimates
        self._fleet = fleet
        self._clock = clock
        self._queues: dict[str, QueueState] = {}
        self._read_at = -math.inf
        self._reading: asyncio.Future[None] | None = None
        self._added: Counter[str] = Counter()  # jobs accepted since then, by queue
        self._refused: dict[str, tuple[float, str]] = {}  # when, and why, by queue
        self._delay = 0.0  # of the event loop or of the store, when it was measured
        self._measured_at = 0.0
        self._measuring: asyncio.Task[None] | None = None

    # --- new jobs

    async def check(self, new: NewJob) -> None:
        """Raise Overloaded if the job cannot be accepted now."""
        bounds = self._config.of(new.job.queue)
        if bounds == NO_BOUNDS:
            return
        await self._refresh()
        queue = new.job.queue
        problem = self._find(new.job, bounds)
        if problem is None:
            self._added[queue] += 1
            return
        for key in new.keys:
            if await self._store.has_key(*key):
                return
        self._refused[queue] = (self._clock(), problem.detail)
        try:
            raise problem
        finally:
            del problem  # otherwise its traceback has a reference to it, and the request waits for the garbage collector

    async def _refresh(self) -> None:
        if self._clock() - self._read_at < REFRESH:
            return
        if self._reading is None:
            self._reading = asyncio.ensure_future(self._read())
        await asyncio.shield(self._reading)

    async def _read(self) -> None:
        try:
            before = Counter(self._added)
            self._queues = {state.name: state for state in await self._store.queues()}
            self._added -= before  # the state has them
            self._read_at = self._clock()
        finally:
            self._reading = None

    def predicted_wait(self, queue: str) -> float | None:
        """The seconds that a new job of this queue would wait; None if it is unknown."""
        state = self._queues.get(queue) or QueueState(queue)
        if state.paused or not self._fleet.serves(queue):
            return None
        kinds = [kind.name for kind in self._registry.queues.get(queue, [])]
        waiting = state.waiting + self._added[queue]
        return self._estimates.predicted_wait(kinds, waiting, state.running, self._fleet.slots(queue))

    def _find(self, job: Job, bounds: QueueAdmission) -> Overloaded | None:
        now = self._store.now()
        state = self._queues.get(job.queue) or QueueState(job.queue)
        waiting = state.waiting + self._added[job.queue]
        share = LOW if job.priority < 0 else HIGH if job.priority > 0 else 1.0
        wait = self.predicted_wait(job.queue)
        scheduled = job.run_at is not None and job.run_at > now
        if bounds.backlog is not None and not scheduled and waiting + 1 > bounds.backlog * share:
            excess = waiting + 1 - bounds.backlog * share
            seconds = None if wait is None else excess * wait / (waiting + 1)
            text = f"{waiting} jobs wait in queue {job.queue}; the bound is {bounds.backlog * share:g}"
            return _overloaded(text, job.queue, wait, seconds)
        if wait is None:
            return None
        if bounds.wait is not None and not scheduled and wait > bounds.wait * share:
            text = f"a job in queue {job.queue} would wait {wait:.0f} s; the bound is {bounds.wait * share:g} s"
            return _overloaded(text, job.queue, wait, wait - bounds.wait * share)
        if bounds.deadlines and job.deadline is not None:
            end = max(now + wait, job.run_at or 0.0) + (self._estimates.usual(job.kind) or 0.0)
            if end > job.deadline:
                text = f"the job would end {end - job.deadline:.0f} s after its deadline"
                return _overloaded(text, job.queue, wait, end - job.deadline)
        return None

    # --- lists and statistics

    def check_load(self) -> None:
        """Raise Overloaded while the event loop or the store is late, so that status and submissions stay fast."""
        bound = self._config.lag
        if bound is not None and (delay := self.delay) > bound:
            self._refused[""] = (
                self._clock(),
                f"the service is {delay:.2f} s late; the bound is {bound:g} s",
            )
            raise Overloaded(
                f"the service is too busy for lists and statistics: it is {delay:.2f} s late",
                headers={"Retry-After": str(BUSY)},
                members={"retryAfter": BUSY},
            )

    @property
    def delay(self) -> float:
        """How late the event loop or the store is, in seconds."""
        return self._delay * math.exp2(-max(0.0, self._clock() - self._measured_at) / FADING)

    def observe(self, seconds: float) -> None:
        """Record how late the event loop was, or how long a commit took."""
        if seconds > self.delay:
            self._delay, self._measured_at = seconds, self._clock()

    async def start(self) -> None:
        if self._config.lag is not None:
            self._measuring = asyncio.create_task(self._measure())

    async def stop(self) -> None:
        if self._measuring is not None:
            self._measuring.cancel()
            await asyncio.gather(self._measuring, return_exceptions=True)

    async def _measure(self) -> None:
        while True:
            begun = self._clock()
            await asyncio.sleep(TICK)
            self.observe(self._clock() - begun - TICK)

    # --- what operators see

    def warnings(self) -> list[ServiceWarning]:
        end = self._clock() - RECENT
        recent = [(queue, why) for queue, (at, why) in sorted(self._refused.items()) if at >= end]
        return [
            ServiceWarning("overloaded", f"The service refuses {'jobs' if queue else 'lists'}: {why}.")
            for queue, why in recent
        ]


def _overloaded(text: str, queue: str, wait: float | None, seconds: float | None) -> Overloaded:
    retry = UNKNOWN if seconds is None else max(1, math.ceil(seconds))
    predicted = None if wait is None else round(wait, 1)
    return Overloaded(
        f"{text}. Try again in {retry} s",
        headers={"Retry-After": str(retry)},
        members={"queue": queue, "predictedWait": predicted, "retryAfter": retry},
    )
