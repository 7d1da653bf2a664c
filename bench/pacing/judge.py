"""From trials to verdicts: each figure with its limit and its 95 % interval."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.pacing.trial import BESIDE, DEFAULT_PRICE, FEWEST, Between, Point, Trial, at_equal
from bench.service.table import Line

TIE = 1.02  # at the physical limit
STARVED = 0.9  # of the budget: a policy that spends this much is limited by the budget alone
LEAST = 1e-3  # seconds: a shorter delay counts as none


@dataclass(frozen=True)
class Mean:
    value: float
    half: float  # of the 95 % interval

    @classmethod
    def of(cls, values: Sequence[float]) -> Mean:
        mean = math.fsum(values) / len(values)
        spread = math.sqrt(math.fsum((x - mean) ** 2 for x in values) / max(1, len(values) - 1))
        return cls(mean, 1.96 * spread / math.sqrt(len(values)))

    def __str__(self) -> str:
        return f"{self.value:.3g} ± {self.half:.2g}"


@dataclass(frozen=True)
class Duel:
    """Adaptive against one peer at equal requests."""

    peer: str
    ratio: Mean  # of mean delays
    total: float  # of the sums of all delays
    tail: float  # of p95s
    bar: float

    @property
    def excess(self) -> float:
        return self.total / self.bar


def duels(trials: Sequence[Trial]) -> list[Duel]:
    found = []
    for peer in trials[0].peers:
        theirs = [trial.peers[peer] for trial in trials]
        if mean_of(theirs, lambda point: point.requests) < FEWEST:
            continue
        ours = [
            at_equal(trial.adaptive, point.requests) for trial, point in zip(trials, theirs, strict=True)
        ]
        pairs = list(zip(ours, theirs, strict=True))
        found.append(
            Duel(
                peer,
                Mean.of([(o.mean + LEAST) / (t.mean + LEAST) for o, t in pairs]),
                sum(o.mean for o in ours) / max(LEAST, sum(t.mean for t in theirs)),
                sum(o.p95 for o in ours) / max(LEAST, sum(t.p95 for t in theirs)),
                TIE if starved(ours) and starved(theirs) else 1.0,
            )
        )
    return found


def starved(points: Sequence[Point] | Sequence[Between]) -> bool:
    """Whether the budget, not the policy, determined the number of requests."""
    return math.fsum(point.spent for point in points) / len(points) >= STARVED


def mean_of(points: Sequence[Point], of: Callable[[Point], float]) -> float:
    return math.fsum(of(point) for point in points) / len(points)


def lines(name: str, trials: Sequence[Trial], *, advertised: bool, constant: float | None) -> list[Line]:
    ours = [trial.adaptive[DEFAULT_PRICE] for trial in trials]
    requests = Mean.of([point.requests for point in ours])
    delay = Mean.of([point.mean for point in ours])
    detail = f"adaptive: {requests} requests per job, {delay} s"
    refusals = _refusals(name, trials, advertised)
    if constant is not None:
        late = mean_of(ours, lambda point: point.late_mean) / constant
        return [refusals, Line(f"{name}: delay after 50 jobs", late, "≤", 0.10, "of it", detail)]
    better = [peer for peer in trials[0].peers if dominates([t.peers[peer] for t in trials], ours)]
    fought = duels(trials)
    worst = max(fought, key=lambda duel: duel.excess)
    tail = max(fought, key=lambda duel: duel.tail)
    return [
        refusals,
        Line(
            f"{name}: peers with as few requests and less delay",
            len(better),
            "≤",
            0,
            "",
            " ".join([detail, *better]),
        ),
        Line(
            f"{name}: delay at equal requests",
            worst.total,
            "≤",
            worst.bar,
            "×",
            f"{worst.peer}: {worst.ratio}",
        ),
        Line(f"{name}: p95 at equal requests", tail.tail, "≤", 1.25, "×", tail.peer),
        _beside_oracle(name, trials),
    ]


def dominates(theirs: Sequence[Point], ours: Sequence[Point]) -> bool:
    """Whether a peer has as few requests and a lower mean delay."""
    tie = TIE if starved(theirs) and starved(ours) else 1.0
    return mean_of(theirs, lambda point: point.requests) <= mean_of(
        ours, lambda point: point.requests
    ) and mean_of(theirs, lambda point: point.mean) * tie < mean_of(ours, lambda point: point.mean)


def _beside_oracle(name: str, trials: Sequence[Trial]) -> Line:
    """Adaptive at its default price. The detail has the figures at other prices, which have no limit."""
    ratios = {price: beside_oracle(trials, price) for price in BESIDE}
    detail = f"{Mean.of(_each_beside_oracle(trials, DEFAULT_PRICE))}; at prices of " + ", ".join(
        f"{price:.2g}: {ratio:.3g}" for price, ratio in ratios.items()
    )
    return Line(f"{name}: delay beside the oracle's", ratios[DEFAULT_PRICE], "≤", 1.15, "×", detail)


def beside_oracle(trials: Sequence[Trial], price: float) -> float:
    pairs = [_both(trial, price) for trial in trials]
    return sum(ours for ours, _ in pairs) / sum(theirs for _, theirs in pairs)


def _each_beside_oracle(trials: Sequence[Trial], price: float) -> list[float]:
    return [ours / theirs for ours, theirs in (_both(trial, price) for trial in trials)]


def _both(trial: Trial, price: float) -> tuple[float, float]:
    ours = trial.adaptive[price]
    return ours.mean, at_equal(trial.oracle, ours.requests).mean


def _refusals(name: str, trials: Sequence[Trial], advertised: bool) -> Line:
    most = max(point.refused for trial in trials for point in trial.adaptive.values())
    return Line(f"{name}: refusals in a run", most, "≤", 0 if advertised else 30, "")
