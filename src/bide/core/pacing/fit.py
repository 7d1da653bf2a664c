"""Estimates a whole hazard curve from few observations: the average of three families of curves, corrected by the
observed ends.

Everything works on hazard × age ("shape") over log-spaced bins, where a change of scale is a shift. The likelihood of a
curve counts ends that were seen, intervals that contain an end, and time watched, so running jobs count too. First,
log-normal, Weibull and uniform curves of every scale and several widths are averaged, weighted by likelihood: a handful
of ends is enough. Only uniform curves have a shortest and a longest duration.
Where a wide gap divides the ends, the same is done for both sides, as an alternative. Then each average is corrected
bin by bin by the ratio of observed to expected ends, in neighbourhoods as narrow as the evidence supports: the weight of
each neighbourhood is how well it predicts ends that are left out. For that, the ends of each interval are distributed
over its bins according to the previous curve, and once more according to the result.

docs/explanation/polling.md has the figures of each part.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from itertools import accumulate, pairwise
from operator import mul, sub
from typing import NamedTuple

PRIOR_ENDS = 0.1  # the weight, in ends, of jobs that differ from all that were seen
LOGNORMAL = (0.1, 0.14, 0.2, 0.28, 0.4, 0.56, 0.8, 1.13, 1.6)  # standard deviations of log(duration)
WEIBULL = (1.5, 2.5, 5.0, 10.0)  # shape parameters
UNIFORM = (1.4, 2.0, 2.8, 4.0, 8.0)  # the longest duration as a multiple of the shortest
COARSE = 2  # bins that the families treat as one
BEFORE, BEYOND = 2, 10  # coarse bins around the observations in which scales are tried
NEGLIGIBLE, HOPELESS = 7.0, 40.0  # log-likelihood below the best
SHIFTS = 4  # steps within a coarse bin
REACHES = (32, 16, 8, 4, 2, 1)  # bins: the neighbourhoods of the correction
FIRM = 1.0  # ends, observed and expected, that the average counts against the correction
LAST_PART = 0.02  # of the jobs of a uniform curve: they end with a constant hazard × age
TRACE = 1e-3  # of an end or of a bin of watching: less counts as nothing
LITTLE = 0.02  # of an end in an interval: less is not worth the time
PASSES = 2  # in which the ends of intervals are distributed
# A gap is GAP coarse bins with less than GAP_SHARE of all ends, and at least MODE ends on either side.
GAP, GAP_SHARE, MODE = 4, 0.003, 3.0
SPLIT = 3.0  # log-likelihood by which two modes must be better than one
NEARBY = 16  # coarse bins before the end of an interval in which scales are tried


class EndInterval(NamedTuple):
    """Ends that happened between two edges of coarse bins."""

    low: int
    high: int
    ends: float


class FamilyCurve:
    """A curve of a family at scale 0: its shape per bin, the logarithm, and the cumulative hazard."""

    __slots__ = ("_between", "cumulative", "log", "shape")

    def __init__(self, cumulative: list[float], span: float) -> None:
        steps = pairwise(cumulative)
        self.shape = [min(1e6, max(1e-12, (b - a) / span)) for a, b in steps]
        self.log = [math.log(theta) for theta in self.shape]
        self.cumulative = [0.0, *accumulate(theta * span for theta in self.shape)]
        self._between: dict[tuple[int, int], float] = {}

    def between(self, low: int, high: int) -> float:
        """Return the log-probability to end between two edges, once the first is reached."""
        found = self._between.get((low, high))
        if found is None:
            gathered = self.cumulative[high] - self.cumulative[low]
            found = self._between[low, high] = math.log(max(-math.expm1(-gathered), 1e-30))
        return found


Candidate = tuple[float, int, FamilyCurve]  # log-likelihood, scale, curve


@cache
def _families(bins: int, span: float) -> list[list[FamilyCurve]]:
    """Return each curve of the families, followed by the same curve shifted by parts of a coarse bin."""
    shifted = []
    for part in range(SHIFTS):
        places = [(i - bins - part / SHIFTS) * span for i in range(2 * bins + 1)]
        lognormal = [FamilyCurve([_cumulative(z / sigma) for z in places], span) for sigma in LOGNORMAL]
        weibull = [FamilyCurve([math.exp(min(k * z, 300.0)) for z in places], span) for k in WEIBULL]
        uniform = [FamilyCurve([_uniform(z, ratio) for z in places], span) for ratio in UNIFORM]
        shifted.append(lognormal + weibull + uniform)
    return [list(curves) for curves in zip(*shifted, strict=True)]


def _cumulative(z: float) -> float:
    """The cumulative hazard of a standard normal at z."""
    if z < 25.0:
        return -math.log(0.5 * math.erfc(z / math.sqrt(2.0)))
    return z * z / 2 + math.log(z) + 0.9189385  # its asymptote: erfc underflows here


def _uniform(z: float, ratio: float) -> float:
    """The cumulative hazard at age e^z of durations that are uniform between 1 / ratio and 1."""
    width = 1.0 - 1.0 / ratio
    last = math.log1p(-LAST_PART * width)
    if z < last:
        return max(0.0, math.log(width) - math.log1p(-math.exp(z)))
    return (z - last) / (LAST_PART * width) - math.log(LAST_PART)


def shapes(
    ended: Sequence[float],
    watched: Sequence[float],
    intervals: Sequence[EndInterval],
    prior: Sequence[float],
    span: float,
    previous: list[float] | None = None,
) -> list[float]:
    """Return hazard × age per bin, from the ends seen in it and the log-time watched; `span` is a bin's log-width.

    The ends of intervals are distributed according to the `previous` curve.
    """
    intervals = [interval for interval in intervals if interval.ends > LITTLE]
    if not any(watched) and not any(ended) and not intervals:
        return list(prior)
    usual = prior[::COARSE]
    observed = _Observations(_coarse(ended), _coarse(watched), intervals)
    average = _fine(_average(*observed, usual, COARSE * span), len(ended))
    curve = previous or average
    for _ in range(PASSES if intervals else 1):
        n, e = _distribute(curve, ended, watched, intervals, span)
        averages = [average]
        spread = _coarse(n)
        if (cut := _gap(spread)) is not None:
            two_modes = _two_modes(observed, cut, spread, _coarse(e), usual, COARSE * span)
            averages.append(_fine(two_modes, len(n)))
        curve = _correct(averages, n, e)
    return curve


def _fine(coarse: list[float], bins: int) -> list[float]:
    return [theta for theta in coarse for _ in range(COARSE)][:bins]


def _coarse(values: Sequence[float]) -> list[float]:
    return [sum(values[i : i + COARSE]) for i in range(0, len(values), COARSE)]


def _distribute(
    curve: list[float],
    ended: Sequence[float],
    watched: Sequence[float],
    intervals: Sequence[EndInterval],
    span: float,
) -> tuple[list[float], list[float]]:
    """Return ends and time watched, with the ends of the intervals distributed over their bins by a curve."""
    ended, watched = list(ended), list(watched)
    falls = [math.exp(-theta * span) for theta in curve]
    for low, high, ends in intervals:
        bins = range(COARSE * low, min(COARSE * high, len(curve)))
        left, alive = 1.0, []
        for i in bins:
            alive.append(left)
            left *= falls[i]
        scale = ends / max(1.0 - left, 1e-12)
        for i, before, after in zip(bins, alive, [*alive[1:], left], strict=True):
            ended[i] += scale * (before - after)
            watched[i] += scale * ((before + after) / 2 - left) * span
    return ended, watched


def _average(
    ended: list[float],
    watched: list[float],
    intervals: Sequence[EndInterval],
    prior: Sequence[float],
    span: float,
) -> list[float]:
    """Return the average of the families' curves, weighted by likelihood."""
    bins = len(ended)
    seen = [i for i, n in enumerate(ended) if n > TRACE]
    seen += [max(interval.low, interval.high - NEARBY) for interval in intervals]
    looked = seen + [i for i, e in enumerate(watched) if e > TRACE]
    if not looked:
        return list(prior)
    low = min(seen, default=max(looked))
    high = max(*looked, *(min(interval.high, bins - 1) for interval in intervals), 0)
    early = max(0, low - 8)  # before this bin, about as many jobs were watched in every bin
    young = watched[early] / span
    n, e = ended[low : high + 1], watched[early : high + 1]

    def likelihood(curve: FamilyCurve, at: int) -> float:
        ends: float = sum(map(mul, n, curve.log[at + low : at + high + 1]))
        expected: float = sum(map(mul, e, curve.shape[at + early : at + high + 1]))
        return ends - expected - young * (curve.cumulative[at + early] - curve.cumulative[at])

    scales = range(bins - min(bins, high + BEYOND) + 1, bins - max(0, low - BEFORE) + 1)
    families = _families(bins, span)
    found = [(likelihood(curve, at), at, curve) for curve, *_ in families for at in scales]
    found = _with_intervals(found, intervals)
    # A whole bin is too large a step for narrow curves, so shifted curves are tried near the best scale of each. Each
    # further shift starts one scale later: with the same scales for all, exact reports took one more poll per job.
    shifted = [
        (likelihood(curve, at), at, curve)
        for curves, best in _best_scales(found, families)
        for step, curve in enumerate(curves[1:])
        for at in (best + step, best + step + 1)
        if at <= bins
    ]
    alive = _survivors(found + _with_intervals(shifted, intervals), bins)
    total = sum(ended) + sum(interval.ends for interval in intervals)
    # A few jobs may differ from all that were seen. Where hardly any job of the curves survives, a running job is one
    # of those, and their hazard counts.
    others = alive[0] * PRIOR_ENDS / (total + 1.0)
    gathered = accumulate((usual * span for usual in prior), initial=0.0)
    alive = [left + others * math.exp(-x) for left, x in zip(alive, gathered, strict=True)]
    return [max(1e-9, math.log(a / b) / span) for a, b in pairwise(alive)]


def _with_intervals(found: list[Candidate], intervals: Sequence[EndInterval]) -> list[Candidate]:
    """Add the likelihood of the intervals. It only lowers, so candidates far behind without it are dropped."""
    if not intervals:
        return found
    best = -math.inf
    kept = []
    for fit, at, curve in sorted(found, key=lambda candidate: -candidate[0]):
        if fit < best - NEGLIGIBLE:
            break
        whole = fit
        for low, high, ends in intervals:
            whole += ends * curve.between(at + low, at + high)
        best = max(best, whole)
        kept.append((whole, at, curve))
    return kept


def _best_scales(
    found: list[Candidate], families: list[list[FamilyCurve]]
) -> list[tuple[list[FamilyCurve], int]]:
    """Return the scale at which each curve fits best, without curves that fit badly at every scale."""
    best: dict[FamilyCurve, tuple[float, int]] = {}
    for fit, at, curve in found:
        if curve not in best or fit > best[curve][0]:
            best[curve] = (fit, at)
    least = max(fit for fit, _ in best.values()) - HOPELESS
    return [
        (curves, best[curves[0]][1])
        for curves in families
        if curves[0] in best and best[curves[0]][0] > least
    ]


def _survivors(found: list[Candidate], bins: int) -> list[float]:
    """Return the weighted number of jobs that reach each edge."""
    best = max(fit for fit, _, _ in found)
    alive = [0.0] * (bins + 1)
    for fit, at, curve in found:
        if fit > best - NEGLIGIBLE:
            start = curve.cumulative[at] + fit - best
            for i, to in enumerate(curve.cumulative[at : at + bins + 1]):
                if to - start > 30.0:
                    break
                alive[i] += math.exp(start - to)
    return alive


class _Observations(NamedTuple):
    """Ends, time watched and intervals with ends, by coarse bins."""

    ended: list[float]
    watched: list[float]
    intervals: Sequence[EndInterval]


def _two_modes(
    observed: _Observations,
    cut: int,
    spread: list[float],
    exposed: list[float],
    prior: Sequence[float],
    span: float,
) -> list[float]:
    """Return the average for the ends before and after a bin in a wide gap, each fitted separately.

    `spread` and `exposed` are ends and time watched, with the ends of intervals distributed.
    """
    early, late = _split(observed, spread, cut, span)
    # The share of jobs that end before the gap follows from the hazards up to there, because some jobs still run.
    ends = zip(spread[:cut], exposed, strict=False)
    left = math.exp(-sum(n * span / e for n, e in ends if n > TRACE and e > 0.0))
    first = _survival(_average(*early, prior, span), span)
    second = _survival(_average(*late, prior, span), span)
    alive = [(1.0 - left) * a + left * b for a, b in zip(first, second, strict=True)]
    return [max(1e-9, math.log(a / b) / span) if b > 0.0 else 1.0 for a, b in pairwise(alive)]


def _split(
    observed: _Observations, spread: list[float], cut: int, span: float
) -> tuple[_Observations, _Observations]:
    """Return the observations of the jobs that end before a bin, and of all others."""
    before, after = [], []
    for low, high, ends in observed.intervals:
        whole, part = sum(spread[low:high]), sum(spread[low:cut])
        share = 1.0 if high <= cut else 0.0 if low >= cut or not whole else part / whole
        before.append(EndInterval(low, min(high, cut), ends * share))
        after.append(EndInterval(max(low, cut), high, ends * (1.0 - share)))
    before = [interval for interval in before if interval.ends > LITTLE]
    after = [interval for interval in after if interval.ends > LITTLE]
    early = observed.ended[:cut] + [0.0] * (len(spread) - cut)
    reach = list(accumulate(reversed([*early[1:], 0.0])))[::-1]
    crossed = [0.0] * (len(spread) + 1)
    for interval in before:
        crossed[0] += interval.ends
        crossed[interval.low] -= interval.ends
    theirs = [
        (more + through + n / 2) * span
        for more, through, n in zip(reach, accumulate(crossed[:-1]), early, strict=True)
    ]
    others = [max(0.0, e - t) for e, t in zip(observed.watched, theirs, strict=True)]
    late = [0.0] * cut + observed.ended[cut:]
    return _Observations(early, theirs, before), _Observations(late, others, after)


def _survival(thetas: list[float], span: float) -> list[float]:
    return [math.exp(-x) for x in accumulate((theta * span for theta in thetas), initial=0.0)]


def _gap(ended: Sequence[float]) -> int | None:
    """Return the middle of the widest gap between ends."""
    total, before, start, best, cut = sum(ended), 0.0, 0, GAP - 1, None
    for i, n in enumerate(ended):
        if n <= GAP_SHARE * total:
            continue
        if before >= MODE and total - before >= MODE and i - start > best:
            best, cut = i - start, (i + start) // 2
        before += n
        start = i + 1
    return cut


def _correct(
    averages: list[list[float]], ended: Sequence[float], watched: Sequence[float]
) -> list[float]:
    """Multiply the averages by observed over expected ends: in wide neighbourhoods first, then the result in narrower
    ones. So a gap between two modes is found empty as a whole, not only bin by bin."""
    first, last = _relevant(averages[0], ended, watched)
    ended, watched = ended[first:last], watched[first:last]
    seen = [(i, n) for i, n in enumerate(ended) if n > TRACE]
    found = []
    for k, average in enumerate(averages):
        for fit, curve in _corrections(average[first:last], seen, ended, watched):
            found.append((fit - k * SPLIT, [*average[:first], *curve, *average[last:]]))
    best = max(fit for fit, _ in found)
    weights = [math.exp(fit - best) for fit, _ in found]
    mixed = [0.0] * len(averages[0])
    for weight, (_, curve) in zip(weights, found, strict=True):
        share = weight / sum(weights)
        if share > TRACE:
            mixed = [old + share * theta for old, theta in zip(mixed, curve, strict=True)]
    return mixed


def _corrections(
    curve: list[float],
    seen: list[tuple[int, float]],
    ended: Sequence[float],
    watched: Sequence[float],
) -> list[tuple[float, list[float]]]:
    """Return the curve and its correction in each neighbourhood, each with how well it predicts left-out ends."""
    without_own = [curve[i] for i, _ in seen]  # the curve at each end, as if that end had not been seen
    found = [(_likelihood(seen, without_own, watched, curve), curve)]
    for reach in REACHES:
        near, expected = around(ended, reach), around(list(map(mul, watched, curve)), reach)
        for k, (i, n) in enumerate(seen):
            without = expected[i] * without_own[k] / curve[i]
            without_own[k] *= (max(0.0, near[i] - min(1.0, n)) + FIRM) / (without + FIRM)
        curve = [
            theta * (n + FIRM) / (x + FIRM) for theta, n, x in zip(curve, near, expected, strict=True)
        ]
        found.append((_likelihood(seen, without_own, watched, curve), curve))
    return found


def _relevant(average: list[float], ended: Sequence[float], watched: Sequence[float]) -> tuple[int, int]:
    """Return the range of bins with observed or expected ends, widened by the widest neighbourhood."""
    busy = [
        i
        for i, (n, e) in enumerate(zip(ended, watched, strict=True))
        if n > TRACE or e * average[i] > TRACE
    ]
    if not busy:
        return 0, len(average)
    return max(0, busy[0] - REACHES[0]), busy[-1] + REACHES[0] + 1


def _likelihood(
    seen: list[tuple[int, float]],
    without_own: list[float],
    watched: Sequence[float],
    curve: list[float],
) -> float:
    """Return the log-likelihood of a curve, each end predicted without itself."""
    ends: float = sum(n * math.log(theta) for (_, n), theta in zip(seen, without_own, strict=True))
    expected: float = sum(map(mul, watched, curve))
    return ends - expected


def around(values: Sequence[float], reach: int) -> Sequence[float]:
    """Return for each bin the sum of its neighbourhood: its own value weighs 1, those `reach` bins away nothing."""
    if reach == 1:
        return values
    for before in (reach - 1, 0):  # two running sums, forwards and backwards, make a triangle
        sums = [0.0] * (before + 1) + list(accumulate(values))
        sums += [sums[-1]] * (reach - 1 - before)
        values = list(map(sub, sums[reach:], sums))
    return [value / reach for value in values]
