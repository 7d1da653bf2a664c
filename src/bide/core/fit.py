"""From few observations to a whole hazard curve: families of durations, averaged by how well they fit, then corrected.

All works on hazard · age ("shape") over log-spaced bins, where a change of scale is a shift. The likelihood of a curve is
that of ends seen, of stretches in which ends were, and of time watched, so jobs that still go on count. First the
curves of two families (log-normal and Weibull, at every scale and in several widths) are averaged, each weighed by its
likelihood: a handful of ends is enough. Where a wide gap parts the ends, the same is done for both parts, as a rival.
Then each average is corrected bin by bin by what was seen against what it expected, in neighbourhoods as narrow as the
evidence supports: how well each neighbourhood foretells ends that are left out decides. For that, an end that nobody
saw is spread over its stretch by what was believed before, and once more by what the correction gives.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from itertools import accumulate, pairwise
from operator import mul, sub
from typing import NamedTuple

PRIOR_ENDS = 0.1  # ends that jobs of a sort not yet seen are worth
LOGNORMAL = (0.1, 0.14, 0.2, 0.28, 0.4, 0.56, 0.8, 1.13, 1.6)
WEIBULL = (1.5, 2.5, 5.0, 10.0)
COARSE = 2  # bins that the families take as one
BEFORE, BEYOND = 2, 10  # coarse bins around what was seen in which scales are tried
NEGLIGIBLE, HOPELESS = 7.0, 40.0  # log-likelihood below the best
SHIFTS = 4  # steps within a coarse bin
REACHES = (32, 16, 8, 4, 2, 1)  # bins: the neighbourhoods of the correction
FIRM = 1.0  # ends, seen and expected, that the average is worth against the correction
TRACE = 1e-3  # of an end or of watching: less is nothing
LITTLE = 0.02  # of an end between two edges: less is not worth the time
PASSES = 2  # in which unseen ends are spread
GAP, GAP_SHARE, MODE = (
    4,
    0.003,
    3.0,
)  # coarse bins with less than that part of all ends, and ends on either side
SPLIT = 3.0  # log-likelihood by which two modes must be better than one
NEARBY = 16  # coarse bins before the end of a stretch from which on scales are tried


class Cell(NamedTuple):
    """Ends that were between two edges of coarse bins."""

    low: int
    high: int
    ends: float


class Template:
    """A member of a family around scale 0: its shape in each bin, the logarithm, and the cumulative hazard up to it."""

    __slots__ = ("_between", "cumulative", "log", "shape")

    def __init__(self, cumulative: list[float], span: float) -> None:
        steps = pairwise(cumulative)
        self.shape = [min(1e6, max(1e-12, (b - a) / span)) for a, b in steps]
        self.log = [math.log(theta) for theta in self.shape]
        self.cumulative = [0.0, *accumulate(theta * span for theta in self.shape)]
        self._between: dict[tuple[int, int], float] = {}

    def between(self, low: int, high: int) -> float:
        """The logarithm of the chance to end between two edges, once the first is reached."""
        found = self._between.get((low, high))
        if found is None:
            gathered = self.cumulative[high] - self.cumulative[low]
            found = self._between[low, high] = math.log(max(-math.expm1(-gathered), 1e-30))
        return found


@cache
def _templates(bins: int, span: float) -> list[list[Template]]:
    """Each member of the families, and the same a part of a bin later."""
    found = []
    for part in range(SHIFTS):
        places = [(i - bins - part / SHIFTS) * span for i in range(2 * bins + 1)]
        lognormal = [Template([_lognormal(z / sigma) for z in places], span) for sigma in LOGNORMAL]
        weibull = [Template([math.exp(min(k * z, 300.0)) for z in places], span) for k in WEIBULL]
        found.append(lognormal + weibull)
    return [list(member) for member in zip(*found, strict=True)]


def _lognormal(z: float) -> float:
    """The cumulative hazard of a standard normal at z."""
    if z < 25.0:
        return -math.log(0.5 * math.erfc(z / math.sqrt(2.0)))
    return z * z / 2 + math.log(z) + 0.9189385  # its asymptote, where erfc has no digits left


def shapes(
    ended: Sequence[float],
    watched: Sequence[float],
    cells: Sequence[Cell],
    prior: Sequence[float],
    span: float,
    believed: list[float] | None = None,
) -> list[float]:
    """Hazard · age in each bin, from the ends seen in it and the log-time watched; `span` is a bin's log-width.

    What was `believed` before is where the spreading of unseen ends goes on from.
    """
    cells = [cell for cell in cells if cell.ends > LITTLE]
    if not any(watched) and not any(ended) and not cells:
        return list(prior)
    usual = prior[::COARSE]
    coarse = _average(_pairs(ended), _pairs(watched), cells, usual, COARSE * span)
    curve = average = _halves(coarse, len(ended))
    if believed is not None:
        curve = believed
    for _ in range(PASSES if cells else 1):
        n, e = _spread(curve, ended, watched, cells, span)
        apart = _two_modes(
            _Seen(_pairs(ended), _pairs(watched), cells), _pairs(n), _pairs(e), usual, COARSE * span
        )
        curve = _correct([average] if apart is None else [average, _halves(apart, len(n))], n, e)
    return curve


def _halves(coarse: list[float], bins: int) -> list[float]:
    return [theta for theta in coarse for _ in range(COARSE)][:bins]


def _spread(
    curve: list[float],
    ended: Sequence[float],
    watched: Sequence[float],
    cells: Sequence[Cell],
    span: float,
) -> tuple[list[float], list[float]]:
    """Ends and time watched, with the ends of the cells where a curve has them."""
    ended, watched = list(ended), list(watched)
    falls = [math.exp(-theta * span) for theta in curve]
    for low, high, ends in cells:
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


def _pairs(values: Sequence[float]) -> list[float]:
    return [sum(values[i : i + COARSE]) for i in range(0, len(values), COARSE)]


def _average(
    ended: list[float],
    watched: list[float],
    cells: Sequence[Cell],
    prior: Sequence[float],
    span: float,
) -> list[float]:
    """The families' curves, weighed by likelihood, as one."""
    bins = len(ended)
    seen = [i for i, n in enumerate(ended) if n > TRACE]
    seen += [max(cell.low, cell.high - NEARBY) for cell in cells]
    looked = seen + [i for i, e in enumerate(watched) if e > TRACE]
    if not looked:
        return list(prior)
    low, high = min(seen, default=max(looked)), max(*looked, *(min(c.high, bins - 1) for c in cells), 0)
    early = max(0, low - 8)  # before, about as many were watched in every bin
    young = watched[early] / span
    n, e = ended[low : high + 1], watched[early : high + 1]

    def fits(template: Template, at: int) -> float:
        ends: float = sum(map(mul, n, template.log[at + low : at + high + 1]))
        due: float = sum(map(mul, e, template.shape[at + early : at + high + 1]))
        return ends - due - young * (template.cumulative[at + early] - template.cumulative[at])

    places = range(bins - min(bins, high + BEYOND) + 1, bins - max(0, low - BEFORE) + 1)
    members = _templates(bins, span)
    models = [(fits(member[0], at), at, member[0]) for member in members for at in places]
    models = _weighed(models, cells)
    # Where each fits best, and only there, whole bins are too coarse a step for narrow ones.
    close = [
        (fits(template, at), at, template)
        for member, at in _best(models, members)
        for template in member[1:]
        for at in (at, at + 1)
        if at <= bins
    ]
    alive = _alive(models + _weighed(close, cells), bins)
    total = sum(ended) + sum(cell.ends for cell in cells)
    # A few may be of another sort than all that were seen: where hardly one of the models' jobs is left, a job that
    # goes on is one of those, and their hazard counts.
    others = alive[0] * PRIOR_ENDS / (total + 1.0)
    apart = accumulate((usual * span for usual in prior), initial=0.0)
    alive = [going + others * math.exp(-gathered) for going, gathered in zip(alive, apart, strict=True)]
    return [max(1e-9, math.log(a / b) / span) for a, b in pairwise(alive)]


def _weighed(
    models: list[tuple[float, int, Template]], cells: Sequence[Cell]
) -> list[tuple[float, int, Template]]:
    """The models with the chances of the cells; those are below 1, so who is far behind without them stays there."""
    if not cells:
        return models
    best = -math.inf
    found = []
    for fit, at, template in sorted(models, key=lambda model: -model[0]):
        if fit < best - NEGLIGIBLE:
            break
        whole = fit
        for low, high, ends in cells:
            whole += ends * template.between(at + low, at + high)
        best = max(best, whole)
        found.append((whole, at, template))
    return found


def _best(
    models: list[tuple[float, int, Template]], members: list[list[Template]]
) -> list[tuple[list[Template], int]]:
    """Of each member the place at which it fits best, unless it is hopeless there."""
    best: dict[Template, tuple[float, int]] = {}
    for fit, at, template in models:
        if template not in best or fit > best[template][0]:
            best[template] = (fit, at)
    least = max(fit for fit, _ in best.values()) - HOPELESS
    return [
        (member, best[member[0]][1])
        for member in members
        if member[0] in best and best[member[0]][0] > least
    ]


def _alive(models: list[tuple[float, int, Template]], bins: int) -> list[float]:
    """How many of the models' jobs reach each edge."""
    best = max(fit for fit, _, _ in models)
    alive = [0.0] * (bins + 1)
    for fit, at, template in models:
        if fit > best - NEGLIGIBLE:
            start = template.cumulative[at] + fit - best
            for i, to in enumerate(template.cumulative[at : at + bins + 1]):
                if to - start > 30.0:
                    break
                alive[i] += math.exp(start - to)
    return alive


class _Seen(NamedTuple):
    """Ends, time watched and stretches with ends, by coarse bins."""

    ended: list[float]
    watched: list[float]
    cells: Sequence[Cell]


def _two_modes(
    seen: _Seen, spread: list[float], exposed: list[float], prior: Sequence[float], span: float
) -> list[float] | None:
    """The families' curves for ends before and after a wide gap, each by itself; None when there is none.

    `spread` and `exposed` are ends and time watched with the stretches' ends where they are believed to be.
    """
    cut = _gap(spread)
    if cut is None:
        return None
    early, late = _parts(seen, spread, cut, span)
    # How many end before the gap, of all: by the hazards up to there, for some still go on.
    ends = zip(spread[:cut], exposed, strict=False)
    left = math.exp(-sum(n * span / e for n, e in ends if n > TRACE and e > 0.0))
    first = _survival(_average(*early, prior, span), span)
    second = _survival(_average(*late, prior, span), span)
    alive = [(1.0 - left) * a + left * b for a, b in zip(first, second, strict=True)]
    return [max(1e-9, math.log(a / b) / span) if b > 0.0 else 1.0 for a, b in pairwise(alive)]


def _parts(seen: _Seen, spread: list[float], cut: int, span: float) -> tuple[_Seen, _Seen]:
    """What was seen of the jobs that end before a bin, and of all others."""
    before, after = [], []
    for low, high, ends in seen.cells:
        whole, part = sum(spread[low:high]), sum(spread[low:cut])
        share = 1.0 if high <= cut else 0.0 if low >= cut or not whole else part / whole
        before.append(Cell(low, min(high, cut), ends * share))
        after.append(Cell(max(low, cut), high, ends * (1.0 - share)))
    before = [cell for cell in before if cell.ends > LITTLE]
    after = [cell for cell in after if cell.ends > LITTLE]
    early = seen.ended[:cut] + [0.0] * (len(spread) - cut)
    reach = list(accumulate(reversed([*early[1:], 0.0])))[::-1]
    crossed = [0.0] * (len(spread) + 1)
    for cell in before:
        crossed[0] += cell.ends
        crossed[cell.low] -= cell.ends
    theirs = [
        (more + through + n / 2) * span
        for more, through, n in zip(reach, accumulate(crossed[:-1]), early, strict=True)
    ]
    others = [max(0.0, e - t) for e, t in zip(seen.watched, theirs, strict=True)]
    late = [0.0] * cut + seen.ended[cut:]
    return _Seen(early, theirs, before), _Seen(late, others, after)


def _survival(thetas: list[float], span: float) -> list[float]:
    return [math.exp(-x) for x in accumulate((theta * span for theta in thetas), initial=0.0)]


def _gap(ended: Sequence[float]) -> int | None:
    """The middle of the widest stretch of coarse bins with hardly an end, between some on either side."""
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
    """Averages times what was seen over what was expected: in wide neighbourhoods first, then, of what that gives, in
    narrower ones. So a gap between two modes is found empty as a whole, not only bin by bin."""
    first, last = _busy(averages[0], ended, watched)
    ended, watched = ended[first:last], watched[first:last]
    seen = [(i, n) for i, n in enumerate(ended) if n > TRACE]
    found = []
    for k, average in enumerate(averages):
        for fit, curve in _narrowing(average[first:last], seen, ended, watched):
            found.append((fit - k * SPLIT, [*average[:first], *curve, *average[last:]]))
    best = max(fit for fit, _ in found)
    weights = [math.exp(fit - best) for fit, _ in found]
    mixed = [0.0] * len(averages[0])
    for weight, (_, curve) in zip(weights, found, strict=True):
        share = weight / sum(weights)
        if share > TRACE:
            mixed = [old + share * theta for old, theta in zip(mixed, curve, strict=True)]
    return mixed


def _narrowing(
    curve: list[float],
    seen: list[tuple[int, float]],
    ended: Sequence[float],
    watched: Sequence[float],
) -> list[tuple[float, list[float]]]:
    """A curve, and what each neighbourhood makes of it, with how well each foretells."""
    unseen = [curve[i] for i, _ in seen]  # the curve, as if one of the bin's own ends had not been seen
    found = [(_fit(seen, unseen, watched, curve), curve)]
    for reach in REACHES:
        near, due = around(ended, reach), around(list(map(mul, watched, curve)), reach)
        for k, (i, n) in enumerate(seen):
            without = due[i] * unseen[k] / curve[i]
            unseen[k] *= (max(0.0, near[i] - min(1.0, n)) + FIRM) / (without + FIRM)
        curve = [theta * (n + FIRM) / (x + FIRM) for theta, n, x in zip(curve, near, due, strict=True)]
        found.append((_fit(seen, unseen, watched, curve), curve))
    return found


def _busy(average: list[float], ended: Sequence[float], watched: Sequence[float]) -> tuple[int, int]:
    """The bins in which something was seen or expected, and as many around them as a neighbourhood reaches."""
    busy = [
        i
        for i, (n, e) in enumerate(zip(ended, watched, strict=True))
        if n > TRACE or e * average[i] > TRACE
    ]
    if not busy:
        return 0, len(average)
    return max(0, busy[0] - REACHES[0]), busy[-1] + REACHES[0] + 1


def _fit(
    seen: list[tuple[int, float]], unseen: list[float], watched: Sequence[float], curve: list[float]
) -> float:
    """The log-likelihood of a curve, each end foretold without itself."""
    ends: float = sum(n * math.log(theta) for (_, n), theta in zip(seen, unseen, strict=True))
    due: float = sum(map(mul, watched, curve))
    return ends - due


def around(values: Sequence[float], reach: int) -> Sequence[float]:
    """For each bin the sum of its neighbourhood: its own weighs 1, at `reach` bins away nothing does."""
    if reach == 1:
        return values
    for before in (reach - 1, 0):  # two running sums, back and forth, make a triangle
        sums = [0.0] * (before + 1) + list(accumulate(values))
        sums += [sums[-1]] * (reach - 1 - before)
        values = list(map(sub, sums[reach:], sums))
    return [value / reach for value in values]
