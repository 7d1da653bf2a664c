"""From trials to verdicts: each figure beside its bar, with its 95 % interval."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.pacing.trial import DEFAULT_PRICE, FEWEST, Point, Trial, at_equal
from bench.service.table import Line

TIE = 1.02  # at the physical limit


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
    starved: bool


def duels(trials: Sequence[Trial]) -> list[Duel]:
    found = []
    for peer in trials[0].peers:
        theirs = [trial.peers[peer] for trial in trials]
        if _mean(theirs, lambda point: point.requests) < FEWEST:
            continue
        ours = [
            at_equal(trial.adaptive, point.requests) for trial, point in zip(trials, theirs, strict=True)
        ]
        least = 1e-3
        found.append(
            Duel(
                peer,
                Mean.of([(o[0] + least) / (t.mean + least) for o, t in zip(ours, theirs, strict=True)]),
                sum(o[0] for o in ours) / max(least, sum(t.mean for t in theirs)),
                sum(o[1] for o in ours) / max(least, sum(t.p95 for t in theirs)),
                starved(theirs),
            )
        )
    return found


def starved(points: Sequence[Point]) -> bool:
    """Whether the budget, and not its own interval, decided how often a policy asked."""
    return any(point.refused for point in points)


def _mean(points: Sequence[Point], of: Callable[[Point], float]) -> float:
    return math.fsum(of(point) for point in points) / len(points)


def lines(name: str, trials: Sequence[Trial], *, advertised: bool, constant: float | None) -> list[Line]:
    ours = [trial.adaptive[DEFAULT_PRICE] for trial in trials]
    requests = Mean.of([point.requests for point in ours])
    delay = Mean.of([point.mean for point in ours])
    found = [_refusals(name, trials, advertised)]
    detail = f"adaptive: {requests} requests a job, {delay} s"
    if constant is not None:
        late = _mean(ours, lambda point: point.late_mean) / constant
        found.append(Line(f"{name}: delay after 50 jobs", late, "≤", 0.10, "of it", detail))
        return found
    better = [
        peer
        for peer in trials[0].peers
        if _dominates([trial.peers[peer] for trial in trials], requests.value, delay.value)
    ]
    found.append(
        Line(
            f"{name}: peers as sparing and faster",
            len(better),
            "≤",
            0,
            "",
            f"{detail} {' '.join(better)}",
        )
    )
    fought = duels(trials)
    worst = max(fought, key=lambda duel: duel.total / (TIE if duel.starved else 1.0))
    bar = TIE if worst.starved else 1.0
    found.append(
        Line(
            f"{name}: delay at equal requests",
            worst.total,
            "≤",
            bar,
            "×",
            f"{worst.peer}: {worst.ratio}",
        )
    )
    tail = max(fought, key=lambda duel: duel.tail)
    found.append(Line(f"{name}: p95 at equal requests", tail.tail, "≤", 1.25, "×", tail.peer))
    ratios = [
        trial.adaptive[DEFAULT_PRICE].mean
        / at_equal(trial.oracle, trial.adaptive[DEFAULT_PRICE].requests)[0]
        for trial in trials
    ]
    total = sum(point.mean for point in ours) / sum(
        at_equal(trial.oracle, trial.adaptive[DEFAULT_PRICE].requests)[0] for trial in trials
    )
    found.append(Line(f"{name}: delay beside the oracle's", total, "≤", 1.15, "×", str(Mean.of(ratios))))
    return found


def _dominates(theirs: Sequence[Point], requests: float, delay: float) -> bool:
    tie = TIE if starved(theirs) else 1.0
    return (
        _mean(theirs, lambda point: point.requests) <= requests
        and _mean(theirs, lambda point: point.mean) * tie < delay
    )


def _refusals(name: str, trials: Sequence[Trial], advertised: bool) -> Line:
    most = max(point.refused for trial in trials for point in trial.adaptive.values())
    return Line(f"{name}: refusals in a run", most, "≤", 0 if advertised else 30, "")
