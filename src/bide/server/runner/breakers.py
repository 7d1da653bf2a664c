"""The breakers as the runner uses them: a cache of their states, and the calls that were not reported yet.

1. A call through a closed breaker costs no write: the state is read at most once per CHECK_EVERY, and successful calls are
   reported together. A failed call is reported before its attempt ends.
2. While the store is unavailable, the last known state counts; a breaker that was never read is closed.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from bide.core.jobs.breaker import BreakerSettings, BreakerState, CallCount
from bide.server.registry import Registry
from bide.server.store import BreakerReport, BreakerStore, BreakerVerdict, StoreUnavailable

log = logging.getLogger("bide.engine")
CHECK_EVERY = 1.0  # seconds that a state may be old
REPORT_EVERY = 1.0  # seconds between two reports of successful calls


class BreakerAnswer(NamedTuple):
    """Whether a handler may call the dependency now, and whether its call is the probe."""

    allowed: bool
    probe: bool
    state: BreakerState


class BreakerCache:
    """The breakers of one process."""

    def __init__(
        self,
        registry: Registry,
        store: BreakerStore,
        now: Callable[[], float],
        jitter: Callable[[], float],
    ) -> None:
        """`now` is a monotonic clock; `jitter` returns a random number from 0 to 1."""
        self._registry = registry
        self._store = store
        self._now = now
        self._jitter = jitter
        self._states: dict[str, tuple[float, BreakerState]] = {}  # when it was read, and the state
        self._unreported: dict[str, CallCount] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._next_report = -math.inf

    def state(self, name: str) -> BreakerState:
        """The last known state."""
        return self._states[name][1] if name in self._states else BreakerState()

    def quick(self, name: str) -> BreakerAnswer | None:
        """The answer, if it needs no store."""
        known = self._states.get(name)
        if known is None or self._now() - known[0] >= CHECK_EVERY:
            return None
        state = known[1]
        if state.status == "closed":
            return BreakerAnswer(True, False, state)
        waits = state.status == "half-open" or self._store.now() < state.retry_at
        return BreakerAnswer(False, False, state) if waits else None

    async def enter(self, name: str, job_id: str, fence: int) -> BreakerAnswer:
        """Ask the store whether this attempt may call. One job of this process asks at a time."""
        async with self._locks.setdefault(name, asyncio.Lock()):
            if (answer := self.quick(name)) is not None and answer.state.prober != (job_id, fence):
                return answer
            try:
                state = await self._store.breaker(name)
                if state.status == "closed":
                    self._put(name, state)
                    return BreakerAnswer(True, False, state)
                entry = await self._store.enter_breaker(name, job_id, fence)
            except StoreUnavailable as error:
                log.warning("cannot read the breaker %r: %s", name, error)
                state = self.state(name)
                return BreakerAnswer(state.status == "closed", False, state)
            self._put(name, entry.state)
            probe = entry.allowed and entry.state.status != "closed"
            return BreakerAnswer(entry.allowed, probe, entry.state)

    def _put(self, name: str, state: BreakerState) -> None:
        known = self._states.get(name)
        if known is not None and known[1].status != state.status:
            log.warning("the breaker %r is %s; it was %s", name, state.status, known[1].status)
        self._states[name] = (self._now(), state)

    # --- calls that have ended

    def succeeded(self, name: str) -> None:
        known = self._unreported.get(name, CallCount())
        self._unreported[name] = CallCount(known.successes + 1, self._store.now())

    async def ended(
        self, name: str, job_id: str, prober: int | None, success: bool | None
    ) -> BreakerVerdict:
        """Report a failed call, or the call of a prober. `prober` is its fence."""
        calls = self._unreported.pop(name, CallCount())
        return await self._report(name, calls, job_id, prober, success)

    async def _report(
        self,
        name: str,
        calls: CallCount,
        job_id: str | None = None,
        prober: int | None = None,
        success: bool | None = False,
    ) -> BreakerVerdict:
        settings = self._registry.breakers.get(name, DEFAULTS)
        report = BreakerReport(name, settings, self._jitter(), calls, job_id, prober, success)
        try:
            verdict = await self._store.report_calls(report)
        except StoreUnavailable:
            later = self._unreported.get(name, CallCount())
            last = max(calls.last_success, later.last_success)
            self._unreported[name] = CallCount(calls.successes + later.successes, last)
            raise
        self._put(name, verdict.state)
        return verdict

    def tick(self, now: float) -> list[Awaitable[object]]:
        """Reports of successful calls to send now."""
        if not self._unreported or now < self._next_report:
            return []
        self._next_report = now + REPORT_EVERY
        unreported, self._unreported = self._unreported, {}
        return [self._report(name, calls) for name, calls in unreported.items() if calls.successes]


DEFAULTS = BreakerSettings()
