"""How many requests an API lets one credential send: when the next one may be sent, learned from every response.

In this order of trust: Retry-After of a refusal, the advertised limits (limits.py reads them, meter.py spends them), a
documented limit, and a search for a hidden limit where nothing is known (rate_search.py). The budget obeys all that apply.

1. `ready` changes nothing; the time it returns is valid until the next `spend` or `record_response`.
2. A refusal applies to every job of the credential: all pause, and after the pause one request is sent alone. The very
   first request is sent alone too, because its response may contain a limit.
3. No header stops all requests for longer than an hour at a time.
4. In any stretch of time, no more is sent than a documented limit allows: `burst + requests/per` × its length with a
   burst, `requests` in any `per` without.

For a request without a response, call `record_response(now, 0, {}, wall)`.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from bide.core.clock import LONG_AGO
from bide.core.pacing.limits import limit_headers, read_cost, read_limits, read_pause
from bide.core.pacing.meter import LEAST_SLACK, LONGEST_PAUSE, SLACK, Meter
from bide.core.pacing.rate_search import RateSearch

TRANSIT = 10.0  # seconds after which the API has counted a request, or never will
MOST_FLYING = 512  # requests on their way that are remembered
PROBE_HOLD = 2.0  # seconds for which the first request after a pause is the only one
MOST_METERS = 8
SLOWEST_FADES = 0.998  # per response
OVERTAKING = 1.25  # responses overtake each other, so the slowest took longer than it seems
FIRST_PAUSE, LONGEST_BACKOFF = 1.0, 60.0
UNLIMITED = 1e9  # requests: a documented limit of this many or more counts as none


class Limit(msgspec.Struct, frozen=True):
    """A documented limit, spent evenly unless it has a burst. Infinite `requests` means that the API has no limit."""

    requests: float
    per: float = 1.0
    burst: float | None = None

    @property
    def unlimited(self) -> bool:
        return self.requests >= UNLIMITED

    @property
    def gap(self) -> float:
        """Seconds between two requests at a steady pace."""
        if self.burst is None and self.requests < math.inf:
            # A little more than even, so that network jitter does not put one request too many into a window.
            return (self.per + min(SLACK, self.per / 50)) / self.requests
        return self.per / self.requests

    @property
    def depth(self) -> float:
        """Requests that may be sent at once; less than the burst, for the same reason."""
        return 1.0 if self.burst is None else max(1.0, self.burst - min(SLACK, self.per / 50) / self.gap)


_LIMIT = re.compile(
    r"(\d+(?:\.\d+)?)\s*/\s*(\d+(?:\.\d+)?)?\s*(ms|s|m|h|d)?(?::(\d+(?:\.\d+)?))?", re.ASCII
)
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def read_limit(text: str) -> Limit:
    """Read `60/1m`, `60/1m:10`, `5/s` or `100/60`; ValueError says what is wrong."""
    match = _LIMIT.fullmatch(text.strip())
    if match is None or not (match[2] or match[3]):
        raise ValueError(f"{text!r} is not a limit. Use 60/1m, or 60/1m:10 with a burst")
    requests, per = float(match[1]), float(match[2] or 1) * _SECONDS[match[3] or "s"]
    burst = float(match[4]) if match[4] else None
    if not (0 < requests < math.inf and 0 < per < math.inf) or (burst is not None and burst < 1):
        raise ValueError(f"{text!r} is not a limit: its numbers must be above 0, and a burst 1 or more")
    return Limit(requests, per, burst)


class RequestBudget(Protocol):
    """Grants requests: `Budget` in one process, or access to a budget that processes share."""

    def ready(self, now: float, cost: float = 1.0) -> float:
        """Return the earliest time at which `take` may succeed. Cheap, changes nothing."""

    def take(self, now: float, cost: float = 1.0) -> float:
        """Return a time not after `now` if the request is granted (and spent), else the time to try again."""

    def record_response(self, now: float, status: int, headers: Mapping[str, str], wall: float) -> None:
        """Learn from one response; status 0 means that there was none."""

    def rate(self, now: float) -> float | None:
        """Return the requests per second that all processes together can sustain; None without a limit."""


class BudgetState(msgspec.Struct, array_like=True):
    """The state of a budget, in a form that processes can share."""

    meters: dict[str, Meter] = {}
    search: RateSearch = msgspec.field(default_factory=RateSearch)
    sent: list[float] = []  # when the requests on their way were sent
    alone: bool = False  # the last request was sent when no other was on its way
    pace: float = LONG_AGO  # of the documented limit
    pause: float = LONG_AGO
    probe: float = LONG_AGO
    refusals: int = 0  # since the last success
    refused: float = LONG_AGO  # when the first of them arrived
    took: float = 0.0  # seconds from the first refusal to the next success, the last time
    met: bool = False  # there was a response; until then, one request is sent alone
    unit: float = 1.0  # the cost of a request, where requests differ
    next: float = LONG_AGO  # for a request of cost 1
    slowest: float = 0.0  # seconds of the slowest recent response; decays


class Budget:
    """The budget of one credential."""

    __slots__ = ("_depth", "_gap", "_limit", "_rng", "_seeking", "state")

    def __init__(self, limit: Limit | None = None, *, rng: random.Random, searches: bool = True) -> None:
        """Without `searches`, an API that reports no limit has none until it refuses a request."""
        self._limit = limit
        self._gap = limit.gap if limit else 0.0
        self._depth = limit.depth - 1.0 if limit else 0.0
        self._rng = rng
        self._seeking = limit is None and searches
        self.state = BudgetState()

    def ready(self, now: float, cost: float = 1.0) -> float:
        """Return when a request may be sent; a time not after `now` means at once."""
        s = self.state
        if cost == 1.0:
            return s.next
        at = s.next
        if self._gap:
            at = max(at, s.pace - (self._depth + 1.0 - min(cost, self._depth + 1.0)) * self._gap)
        for meter in s.meters.values():
            needed = cost * s.unit
            if meter.counted and meter.timed and not meter.flows and meter.level < needed <= meter.quota:
                at = max(at, min(meter.until, meter.at + LONGEST_PAUSE))
            elif meter.flows and needed <= meter.quota:
                at = max(at, meter.at + (needed - meter.level) * meter.window / meter.quota)
        return at

    def spend(self, now: float, cost: float = 1.0) -> None:
        """Count a request that is sent now."""
        s = self.state
        sent = s.sent
        next = s.pause
        if self._gap:
            s.pace = max(s.pace, now) + cost * self._gap
            next = max(next, s.pace - self._depth * self._gap)
        if s.meters:
            flying = self._flying(now)
            for meter in s.meters.values():
                meter.spend(now, cost * s.unit, flying * s.unit)
                next = max(next, meter.next)
        search = s.search
        if search.found or (self._seeking and not s.meters):
            search.spend(now, cost)
            next = max(next, search.next)
        if (s.refusals and now >= s.pause) or not (s.met or self._limit):
            s.probe = now + PROBE_HOLD
        s.next = max(next, s.probe)
        s.alone = not sent
        sent.append(now)
        if len(sent) > MOST_FLYING:
            del sent[0]

    def take(self, now: float, cost: float = 1.0) -> float:
        """Return what `ready` returns; if that is not after `now`, the request is spent."""
        at = self.ready(now, cost)
        if at <= now:
            self.spend(now, cost)
        return at

    def unspend(self, count: int) -> None:
        """Give back the last requests, which were not sent. Meters keep them as spent: their window may be a new one."""
        s = self.state
        del s.sent[max(0, len(s.sent) - count) :]
        s.pace -= count * self._gap
        s.search.pace -= count / s.search.rate
        self._plan()

    def record_response(self, now: float, status: int, headers: Mapping[str, str], wall: float) -> None:
        """Learn from one response. Pass status 429 for throttling in another form (Canvas's 403)."""
        s = self.state
        sent = s.sent
        took = now - sent[0] if sent else 0.0
        if sent:
            del sent[0]
        if not status:
            flying = self._flying(now) * s.unit
            for meter in s.meters.values():
                meter.lose(now, s.unit, flying)
            self._plan()
            return
        if not s.met:
            s.met, s.probe = True, LONG_AGO
            self._plan()
        s.slowest = max(took, SLOWEST_FADES * s.slowest)
        advertised = limit_headers(headers)
        if status == 429 or (status == 503 and advertised and read_pause(advertised, wall) is not None):
            self._refused(now, advertised or {}, wall, took)
        elif not (advertised or s.meters or s.refusals or s.search.found):
            if self._seeking:
                s.search.accept(now, took)
            return  # only the search's rate may have changed, so `next` is still right
        else:
            if advertised or s.meters:
                self._learn(now, advertised or {}, wall, took)
            if now >= s.pause:
                if s.refusals:
                    s.took = now - s.refused
                s.refusals, s.probe = 0, LONG_AGO
                if s.search.found or self._seeking:
                    s.search.accept(now, took)
        self._plan()

    def _learn(self, now: float, advertised: dict[str, str], wall: float, took: float) -> None:
        s = self.state
        limits = read_limits(advertised, wall)
        if not limits:  # perhaps the response is from a proxy
            flying = self._flying(now) * s.unit
            for known in s.meters.values():
                known.land(now, flying)
            return
        cost = read_cost(advertised)
        if cost is not None:
            # A higher cost counts at once, a lower one gradually.
            s.unit = max(cost, s.unit + 0.1 * (cost - s.unit)) if s.meters else cost
        flying = self._flying(now) * s.unit
        alone = s.alone and not s.sent
        slack = min(max(LEAST_SLACK, OVERTAKING * s.slowest), SLACK)
        for seen in limits:
            meter = s.meters.get(seen.name)
            if meter is None:
                if len(s.meters) >= MOST_METERS:
                    continue
                meter = s.meters[seen.name] = Meter(pace=now)
            meter.slack, meter.unit = slack, s.unit
            meter.update(seen, now, flying, alone, took)

    def _refused(self, now: float, advertised: dict[str, str], wall: float, took: float) -> None:
        s = self.state
        if advertised:
            self._learn(now, advertised, wall, took)
        explained = any(m.counted and m.level < s.unit for m in s.meters.values())
        for meter in s.meters.values():
            if meter.counted and meter.timed:
                meter.emptied(now)
        if not explained:
            s.search.refuse(now)
        asked = read_pause(advertised, wall)
        fresh = now >= s.pause  # the request was not on its way when an earlier one was refused
        if fresh:
            s.refusals += 1
            s.refused = now if s.refusals == 1 else s.refused
        wait = min(asked * self._rng.uniform(1.0, 1.05), LONGEST_PAUSE) if asked else 0.0
        if fresh and (not asked or s.refusals > 1):  # no Retry-After, or it did not help
            # The time that it took the last time is a good first guess.
            ceiling = min(LONGEST_BACKOFF, max(FIRST_PAUSE, s.took / 2) * 2.0 ** min(s.refusals - 1, 10))
            wait = max(wait, self._rng.uniform(0.5, 1.0) * ceiling)
        s.pause = max(s.pause, now + wait)
        s.probe = LONG_AGO

    def _plan(self) -> None:
        s = self.state
        next = max(s.pause, s.probe)
        if self._gap:
            next = max(next, s.pace - self._depth * self._gap)
        for meter in s.meters.values():
            next = max(next, meter.next)
        if s.search.found or (self._seeking and not s.meters):
            next = max(next, s.search.next)
        s.next = next

    def _flying(self, now: float) -> int:
        """Return how many requests are on their way and perhaps not counted yet."""
        sent = self.state.sent
        while sent and sent[0] < now - TRANSIT:
            del sent[0]
        return len(sent)

    def rate(self, now: float) -> float | None:
        """Return the requests per second that can be sustained; None without a limit."""
        s = self.state
        rates = [1.0 / self._gap] if self._gap else []
        rates += [r for m in s.meters.values() if (r := m.rate(now, s.unit)) is not None]
        if s.search.found:
            rates.append(s.search.rate)
        return min(rates, default=None)

    def dump(self, now: float) -> dict[str, Any]:
        """Return the state and the time that its times are relative to."""
        state = msgspec.to_builtins(self.state)
        return {"at": now, "state": state}

    @classmethod
    def load(
        cls, data: Mapping[str, Any], limit: Limit | None, *, now: float, ago: float, rng: random.Random
    ) -> Budget:
        """Return a budget dumped `ago` seconds ago, perhaps by another process with another monotonic clock."""
        budget = cls(limit, rng=rng)
        state = msgspec.convert(data["state"], BudgetState)
        by = now - max(0.0, ago) - float(data["at"])
        state.sent = []
        state.pace += by
        state.pause = min(state.pause + by, now + LONGEST_PAUSE)
        state.probe, state.refused = LONG_AGO, state.refused + by
        state.search.shift(by)
        for meter in state.meters.values():
            meter.shift(by)
        budget.state = state
        budget._plan()
        return budget
