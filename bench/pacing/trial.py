"""One scenario with one seed: every peer, a grid of tuned ones, and adaptive and the oracle at a row of prices."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

from bide.lab.policies import PEERS
from bide.lab.scenario import Scenario, read_scenario
from bide.lab.simulation import Figures, simulate

FIXED = (1, 2, 3, 5, 7, 10, 15, 20, 30, 45, 60, 90, 120, 180, 300, 600, 1200)
BACKOFFS = tuple(
    f"backoff:{first},{factor},{cap}"
    for first in (1, 5, 20)
    for factor in (1.5, 2)
    for cap in (20, 60, 300)
    if cap > first
)
DEFAULT_PRICE = 1.0
STEP = 3.0  # between two prices of adaptive
SHORT = STEP**0.5  # above the prices around the default: there the curve that is read between them bends
SATURATED = 1.25  # times as many requests as at the price before: if fewer, the budget is exhausted
LOWEST, HIGHEST = 1e-4, 2e4
FEWEST = 1.5  # requests per job: peers that spend less are not compared at equal requests
BESIDE = tuple(STEP**i for i in (-1, 0, 1))  # the prices at which adaptive is compared with the oracle
AROUND = (STEP**-2, *BESIDE, STEP**2)
# Closer together, because its curve is interpolated between them.
ORACLE = tuple(STEP ** (i / 2) for i in range(-3, 4))


@dataclass(frozen=True)
class Point:
    requests: float  # per job
    mean: float
    p95: float
    refused: int
    spent: float  # of the budget
    late_mean: float  # of the jobs after the first 50

    @classmethod
    def of(cls, figures: Figures) -> Point:
        late = figures.delays[50:] or figures.delays
        return cls(
            requests=figures.per_job,
            mean=figures.mean,
            p95=figures.quantile(0.95),
            refused=figures.refused,
            spent=figures.spent,
            late_mean=math.fsum(late) / len(late),
        )


@dataclass(frozen=True)
class Between:
    """The figures of a policy at some number of requests."""

    mean: float
    p95: float
    spent: float


@dataclass(frozen=True)
class Trial:
    peers: dict[str, Point]
    adaptive: dict[float, Point]
    oracle: dict[float, Point]


def peers() -> list[str]:
    return [*PEERS, *(f"fixed:{s}" for s in FIXED), *BACKOFFS]


def trial(name: str, seed: int) -> Trial:
    scenario = read_scenario(name)
    found = {peer: Point.of(simulate(scenario, peer, seed)) for peer in peers()}
    oracle = {price: Point.of(simulate(scenario, "oracle", seed, price)) for price in ORACLE}
    most = max(point.requests for point in found.values())
    return Trial(found, _adaptive(scenario, seed, most), oracle)


def _adaptive(scenario: Scenario, seed: int, most: float) -> dict[float, Point]:
    """Prices from the default up to hardly any request, and down to as many requests as the busiest peer."""

    def at(price: float) -> Point:
        return Point.of(simulate(scenario, "adaptive", seed, price))

    points = {price: at(price) for price in AROUND}
    price, last = min(points), points[min(points)]
    before = points[AROUND[1]]
    while last.requests < most and price > LOWEST and last.requests > SATURATED * before.requests:
        price /= STEP
        before, last = last, at(price)
        points[price] = last
    price, last = max(points), points[max(points)]
    while last.requests > FEWEST and price < HIGHEST:
        price *= SHORT
        last = points[price] = at(price)
    return points


def at_equal(points: dict[float, Point], requests: float) -> Between:
    """Return the figures at this many requests per job, interpolated between two prices on logarithmic scales.

    If the budget allows fewer, with as many as it allows.
    """
    row = sorted(points.values(), key=lambda point: point.requests)
    requests = min(max(requests, row[0].requests), row[-1].requests)
    for a, b in pairwise(row):
        if a.requests <= requests <= b.requests and a.requests < b.requests:
            part = math.log(requests / a.requests) / math.log(b.requests / a.requests)
            spent = a.spent + part * (b.spent - a.spent)
            return Between(_between(a.mean, b.mean, part), _between(a.p95, b.p95, part), spent)
    return Between(row[0].mean, row[0].p95, row[0].spent)


def _between(a: float, b: float, part: float) -> float:
    least = 1e-6
    return math.exp((1 - part) * math.log(max(a, least)) + part * math.log(max(b, least)))
