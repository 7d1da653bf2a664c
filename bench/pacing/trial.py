"""One scenario with one seed: every peer, a grid of tuned ones, the oracle, and adaptive at a row of prices."""

from __future__ import annotations

import math
from dataclasses import dataclass

from bide.lab.policies import PEERS
from bide.lab.run import Figures, simulate
from bide.lab.scenario import Scenario, read_scenario

FIXED = (1, 2, 3, 5, 7, 10, 15, 20, 30, 45, 60, 90, 120, 180, 300, 600, 1200)
BACKOFFS = tuple(
    f"backoff:{first},{factor},{cap}"
    for first in (1, 5, 20)
    for factor in (1.5, 2)
    for cap in (20, 60, 300)
    if cap > first
)
DEFAULT_PRICE = 1.0
STEP = 3.0  # between two prices
LOWEST, HIGHEST = 1e-4, 2e4
FEWEST = 1.5  # requests a job: peers that spend less are not compared at equal requests
ORACLE = (0.4, 0.65, 1.0, 1.5, 2.5)


@dataclass(frozen=True)
class Point:
    requests: float  # a job
    mean: float
    p95: float
    refused: int
    late_mean: float  # of the jobs after the first 50

    @classmethod
    def of(cls, figures: Figures) -> Point:
        late = figures.delays[50:] or figures.delays
        mean = math.fsum(late) / len(late)
        return cls(figures.per_job, figures.mean, figures.quantile(0.95), figures.refused, mean)


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
    """Prices from the default up until hardly anything is asked, and down until as much is asked as by anybody."""

    def at(price: float) -> Point:
        return Point.of(simulate(scenario, "adaptive", seed, price))

    points = {DEFAULT_PRICE: at(DEFAULT_PRICE)}
    price, last = DEFAULT_PRICE, points[DEFAULT_PRICE]
    while last.requests < most and price > LOWEST:
        price /= STEP
        before, last = last, at(price)
        points[price] = last
        if last.requests < 1.1 * before.requests:
            break  # the budget is all that there is
    price, last = DEFAULT_PRICE, points[DEFAULT_PRICE]
    while last.requests > FEWEST and price < HIGHEST:
        price *= STEP
        last = points[price] = at(price)
    return points


def at_equal(points: dict[float, Point], requests: float) -> tuple[float, float]:
    """Mean and p95 of the delay at so many requests a job: between two prices on logarithmic scales.

    Where the budget does not allow so many, with as many as it does.
    """
    row = sorted(points.values(), key=lambda point: point.requests)
    if requests >= row[-1].requests:
        return row[-1].mean, row[-1].p95
    high = next(i for i, point in enumerate(row) if point.requests > requests)
    if high == 0:
        return row[0].mean, row[0].p95
    a, b = row[high - 1], row[high]
    part = math.log(requests / a.requests) / math.log(b.requests / a.requests)
    return _between(a.mean, b.mean, part), _between(a.p95, b.p95, part)


def _between(a: float, b: float, part: float) -> float:
    least = 1e-6
    return math.exp((1 - part) * math.log(max(a, least)) + part * math.log(max(b, least)))
