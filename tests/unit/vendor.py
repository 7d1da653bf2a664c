"""A vendor's rate limit in virtual time, and a greedy caller that obeys nothing but its budget."""

from __future__ import annotations

import heapq
import math
import random
from dataclasses import dataclass, field

from bide.core.pacing.budget import Budget
from bide.lab.scenario import JobGroup, Rules, Scenario
from bide.lab.simulated_api import SimulatedApi

WALL = 1_900_000_000.0


@dataclass
class Window:
    """A fixed window: `quota` requests, then none until it begins anew."""

    quota: int
    per: float
    phase: float = 0.0
    rounding: str = "ceil"
    advertised: bool = True
    left: int = 0
    number: int = -(10**9)

    def ask(self, at: float) -> tuple[bool, dict[str, str]]:
        number = math.floor((at - self.phase) / self.per)
        if number != self.number:
            self.number, self.left = number, self.quota
        granted = self.left > 0
        self.left -= granted
        reset = self.phase + (number + 1) * self.per - at
        return granted, tell(self.left, reset, self.quota, self.per, self.rounding, self.advertised)

    def most(self, span: float) -> float:
        return self.quota * (math.ceil(span / self.per) + 1)


@dataclass
class Bucket:
    """A token bucket; `reset` is when it is full, or when the next token comes."""

    requests: float
    per: float
    burst: float
    reset: str = "full"
    rounding: str = "ceil"
    advertised: bool = True
    level: float = field(init=False)
    at: float = 0.0

    def __post_init__(self) -> None:
        self.level = self.burst

    def ask(self, at: float) -> tuple[bool, dict[str, str]]:
        rate = self.requests / self.per
        self.level = min(self.burst, self.level + (at - self.at) * rate)
        self.at = at
        granted = self.level >= 1
        self.level -= granted
        missing = self.burst - self.level if self.reset == "full" else max(0.0, 1 - self.level)
        left = math.floor(self.level)
        return granted, tell(
            left, missing / rate, self.requests, self.per, self.rounding, self.advertised
        )

    def most(self, span: float) -> float:
        return self.burst + span * self.requests / self.per


class Lab:
    """The limit of a vendor of the lab, as its SimulatedApi enforces and advertises it."""

    def __init__(self, rules: Rules, seed: int = 0) -> None:
        jobs = JobGroup("any", 1, None, lambda rng: 1.0)
        self._world = SimulatedApi(Scenario("limit", 1, rules, (jobs,)), seed)

    def ask(self, at: float) -> tuple[bool, dict[str, str]]:
        answer = self._world.poll(at, ())
        return answer.status == 200, dict(answer.headers)


def tell(
    left: float, reset: float, quota: float, per: float, rounding: str, advertised: bool
) -> dict[str, str]:
    if not advertised:
        return {}
    told = {
        "ceil": str(math.ceil(reset)),
        "floor": str(math.floor(reset)),
        "exact": f"{max(reset, 0):.6f}",
    }
    return {
        "RateLimit": f'"default";r={left};t={told[rounding]}',
        "RateLimit-Policy": f'"default";q={quota:g};w={per:g}',
    }


@dataclass
class Drive:
    """The outcome."""

    sent: list[float] = field(default_factory=list)
    arrived: list[float] = field(default_factory=list)
    accepted: int = 0
    refused: int = 0
    unforeseen: int = 0  # refused although all use by others had been reported in a response


def drive(
    budget: Budget,
    server: Window | Bucket | Lab,
    duration: float,
    *,
    latency: float = 0.0,
    seed: int = 0,
    others: float = 0.0,
    retry_after: bool = False,
    demand: float = math.inf,
    silent: float = 0.0,
) -> Drive:
    """Sends whenever the budget is ready (at most `demand` per second); others share the credential at a mean rate. After
    the first a share of the answers is `silent`: granted, and without headers, as those to submissions."""
    rng = random.Random(seed)
    run = Drive()
    events: list[tuple[float, int, str, float, bool, dict[str, str]]] = []
    order = 0
    now, wanted, known = 100.0, 0.0, 0.0
    foreign = -1.0  # when another client last spent something
    knew: dict[float, float] = {}  # by the time of sending: up to when the vendor's state was known
    end = now + duration

    def push(
        at: float, what: str, sent: float = 0.0, ok: bool = True, headers: dict[str, str] | None = None
    ) -> None:
        nonlocal order
        order += 1
        heapq.heappush(events, (at, order, what, sent, ok, headers or {}))

    if others:
        push(now + rng.expovariate(others), "other")
    while now < end:
        due = max(budget.ready(now), wanted)
        if due <= now:
            budget.spend(now)
            run.sent.append(now)
            knew[now] = known
            push(now + rng.uniform(0, latency), "arrive", now)
            wanted = now + 1 / demand
            continue
        if not events or due < events[0][0]:
            now = due
            continue
        now, _, what, sent, ok, headers = heapq.heappop(events)
        if what == "other":
            foreign = now if server.ask(now)[0] else foreign
            push(now + rng.expovariate(others), "other")
        elif what == "arrive":
            ok, headers = server.ask(now)
            run.arrived.append(now)
            run.accepted += ok
            run.refused += not ok
            run.unforeseen += not ok and foreign <= knew[sent]
            if not ok and retry_after:
                headers = {**headers, "Retry-After": "5"}
            if silent and ok and known and rng.random() < silent:
                headers = {}
            push(now + rng.uniform(0, latency), "answer", now, ok, headers)
        else:
            known = max(known, sent)  # here: when it was counted
            budget.record_response(now, 200 if ok else 429, headers, WALL + now)
    return run
