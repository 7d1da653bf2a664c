"""Back-pressure: refuses new jobs that would wait too long, and lists and statistics while the service is too busy.

1. Without a configured bound, nothing is refused and nothing is measured.
2. A bound is lower for jobs with a priority below 0, and higher for those above 0, so low priorities are refused first.
3. The tenants of a queue take turns, so a job waits for those of its own tenant, and for as many of each other tenant as
   start meanwhile. `backlog` is for all tenants together.
4. A job that was accepted is never refused later: neither a repeat with its key, nor an upload that has begun, nor a child.
5. The state of a queue is read at most every REFRESH seconds; jobs that are accepted in between are added.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from bide.core.errors import Overloaded
from bide.core.jobs.fair import Weights
from bide.core.jobs.record import Job
from bide.server.config import AdmissionConfig, QueueAdmission
from bide.server.engine import Fleet, ServiceWarning
from bide.server.estimates import Estimates
from bide.server.registry import Registry
from bide.server.store import NewJob, QueueState

REFRESH = 0.2  # seconds
TENANTS_AGE = 1.0  # seconds for which the waiting jobs of each tenant are not counted again
LOW, HIGH = 0.8, 1.25  # the part of a bound that applies to priorities below and above 0
UNKNOWN = 5  # seconds of Retry-After, if no duration is known yet
RECENT = 10.0  # seconds after a refusal for which `/readyz` warns
BUSY = 2  # seconds of Retry-After of lists and statistics
TICK = 0.1  # seconds between two measurements of the event loop
FADING = 1.0  # seconds in which a measured delay falls to half
NO_BOUNDS = QueueAdmission()
EQUAL = Weights()


class AdmissionStore(Protocol):
    def now(self) -> float: ...

    async def queues(self) -> list[QueueState]: ...

    async def waiting_by_tenant(self, queue: str) -> dict[str, int]: ...

    async def has_key(self, tenant: str, kind: str, key: str) -> bool: ...


@dataclass
class _Tenants:
    """The waiting jobs of a queue by tenant, with those that were accepted since they were counted."""

    waiting: Counter[str]
    read_at: float


class Admission:
    """Decides whether the service accepts a new job."""

    def __init__(
        self,
        config: AdmissionConfig,
        store: AdmissionStore,
        registry: Registry,
        estimates: Estimates,
        fleet: Fleet,
        weights: Weights = EQUAL,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.on = config != AdmissionConfig()
        self._config = config
        self._store = store
        self._registry = registry
        self._estimates = estimates
        self._fleet = fleet
        self._weights = weights
        self._clock = clock
        self._queues: dict[str, QueueState] = {}
        self._read_at = -math.inf
        self._reading: asyncio.Future[None] | None = None
        self._added: Counter[str] = Counter()  # jobs accepted since then, by queue
        self._tenants: dict[str, _Tenants] = {}  # by queue, after a job would have waited too long there
        self._counting: dict[str, asyncio.Future[_Tenants]] = {}
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
        job, queue, tenant = new.job, new.job.queue, new.job.tenant
        problem = self._over_backlog(job, bounds)
        if problem is None:
            problem = self._over_wait(job, bounds)
            if problem is not None:
                problem = self._over_wait(job, bounds, await self._before(queue, tenant))
        if problem is None:
            self._added[queue] += 1
            if (tenants := self._tenants.get(queue)) is not None:
                tenants.waiting[tenant] += 1
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

    async def _before(self, queue: str, tenant: str) -> int:
        """How many waiting jobs start before a new one of this tenant."""
        tenants = self._tenants.get(queue)
        if tenants is None or self._clock() - tenants.read_at >= TENANTS_AGE:
            counting = self._counting.get(queue)
            if counting is None:
                counting = self._counting[queue] = asyncio.ensure_future(self._count(queue))
                counting.add_done_callback(lambda _: self._counting.pop(queue, None))
            tenants = await asyncio.shield(counting)
        own = tenants.waiting[tenant]
        turns = (own + 1) / self._weights.quantum(tenant)
        return own + sum(
            min(number, math.ceil(turns * self._weights.quantum(other)))
            for other, number in tenants.waiting.items()
            if other != tenant
        )

    async def _count(self, queue: str) -> _Tenants:
        read_at = self._clock()
        tenants = _Tenants(Counter(await self._store.waiting_by_tenant(queue)), read_at)
        self._tenants[queue] = tenants
        return tenants

    def predicted_wait(self, queue: str, before: int | None = None) -> float | None:
        """The seconds that a new job of this queue would wait, if `before` jobs start before it; None: all that wait.
        Returns None if it is unknown.
        """
        state = self._queues.get(queue) or QueueState(queue)
        if state.paused or not self._fleet.serves(queue):
            return None
        kinds = [kind.name for kind in self._registry.queues.get(queue, [])]
        waiting = state.waiting + self._added[queue]
        if before is not None:
            waiting = min(waiting, before)
        return self._estimates.predicted_wait(kinds, waiting, state.running, self._fleet.slots(queue))

    def _over_backlog(self, job: Job, bounds: QueueAdmission) -> Overloaded | None:
        if bounds.backlog is None or _is_scheduled(job, self._store.now()):
            return None
        state = self._queues.get(job.queue) or QueueState(job.queue)
        waiting, most = state.waiting + self._added[job.queue], bounds.backlog * _share(job)
        if waiting + 1 <= most:
            return None
        wait = self.predicted_wait(job.queue)
        seconds = None if wait is None else (waiting + 1 - most) * wait / (waiting + 1)
        # Not how many wait: most of them may be those of other tenants.
        text = f"queue {job.queue} has reached its bound of {most:g} waiting jobs"
        return _overloaded(text, job.queue, wait, seconds)

    def _over_wait(
        self, job: Job, bounds: QueueAdmission, before: int | None = None
    ) -> Overloaded | None:
        """`before`: how many jobs start before this one; None: all that wait."""
        now = self._store.now()
        wait = self.predicted_wait(job.queue, before)
        if wait is None:
            return None
        share = _share(job)
        if bounds.wait is not None and not _is_scheduled(job, now) and wait > bounds.wait * share:
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
                f"requests are delayed by {delay:.2f} s; the bound is {bound:g} s",
            )
            raise Overloaded(
                f"the service is too busy for lists and statistics: requests are delayed by {delay:.2f} s. Try again in "
                f"{BUSY} s",
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


def _share(job: Job) -> float:
    """The part of a bound that applies to the priority of the job."""
    return LOW if job.priority < 0 else HIGH if job.priority > 0 else 1.0


def _is_scheduled(job: Job, now: float) -> bool:
    return job.run_at is not None and job.run_at > now


def _overloaded(text: str, queue: str, wait: float | None, seconds: float | None) -> Overloaded:
    retry = UNKNOWN if seconds is None else max(1, math.ceil(seconds))
    predicted = None if wait is None else round(wait, 1)
    return Overloaded(
        f"{text}. Try again in {retry} s",
        headers={"Retry-After": str(retry)},
        members={"queue": queue, "predictedWait": predicted, "retryAfter": retry},
    )
