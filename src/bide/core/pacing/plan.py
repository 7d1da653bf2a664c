"""The ages at which to poll a job so that delay and requests together cost least.

With S the probability that a job still runs and c the price of a request in seconds of delay, polling at ages
x1 < x2 < … has the expected cost Σ S(x_k−1)·(x_k − x_k−1 + c) minus the mean duration. The best next age from each age
follows backwards from the end. For the cost from age x, each next age y gives a straight line in S(x), so the best one
is on the lower envelope of these lines, and a whole plan takes one pass.
"""

from __future__ import annotations

import math
from bisect import bisect_right

from bide.core.pacing.hazard import BINS, EDGES, Sketch, SurvivalCurve

FINENESS = 0.35  # the step of the grid, in best intervals for the hazard at that age
COARSEST, FINEST = 2, 12  # steps per bin; where more would be needed, the hazard is nearly constant
EARLY, LATE = 1e-3, 10.0  # cumulative hazard: hardly a job ends before, hardly one survives after
LEVELS = 4  # per doubling of the price; plans exist only for these prices
# A curve and its plans take dozens of milliseconds to compute, so after WELL_KNOWN ends it happens once per RENEWAL seconds.
RENEWAL, WELL_KNOWN = 3.0, 50
MARKS, MOVED = (0.05, 0.5, 0.95), 0.1  # a curve has moved if one of these quantiles has, by this part


class Plan:
    """The next age to poll at, from any age, for one survival curve and one price."""

    __slots__ = ("_ages", "_costs", "_lefts", "_logs", "_nexts", "_tail", "price")

    def __init__(self, table: SurvivalCurve, price: float) -> None:
        self.price = price
        self._ages, self._logs, dense = _grid(table, price)
        hazard = table.hazards[min(bisect_right(EDGES, self._ages[-1]), BINS) - 1]
        self._tail = math.sqrt(2.0 * price / hazard) / self._ages[-1]  # beyond, intervals grow with age
        self._nexts, self._costs = _backwards(self._ages, self._logs, price, hazard)
        for i, pause in dense:
            self._nexts[i] = self._ages[i] + pause
        self._lefts: list[float] = []

    def next(self, age: float) -> float:
        """Return the age of the next poll after a poll at this age."""
        ages = self._ages
        i = bisect_right(ages, age)
        if i >= len(ages):
            return age * (1.0 + self._tail)
        low, before = ages[i - 1], self._nexts[i - 1]
        return before + (self._nexts[i] - before) * (age - low) / (ages[i] - low)

    def cost(self, age: float) -> float:
        """Return the expected delay and priced requests still to come, after a poll at about this age."""
        if not self._lefts:
            self._lefts = self._remaining()
        i = max(bisect_right(self._ages, age) - 1, 0)
        return max(self.price, (self._costs[i] - self._lefts[i]) * math.exp(self._logs[i]))

    def _remaining(self) -> list[float]:
        """Return S × mean remaining duration at each age of the grid."""
        ages, logs = self._ages, self._logs
        n = len(ages) - 1
        width, gathered = ages[n] - ages[n - 1], logs[n] - logs[n - 1]
        left = math.exp(-logs[n]) * width / gathered
        lefts = [0.0] * n + [left]
        for i in range(n - 1, -1, -1):
            width, gathered = ages[i + 1] - ages[i], logs[i + 1] - logs[i]
            left += math.exp(-logs[i]) * -math.expm1(-gathered) * width / gathered
            lefts[i] = left
        return lefts

    def outlook(self, table: SurvivalCurve) -> tuple[float, float]:
        """Return the expected requests and seconds of delay of a job that follows this plan from its start."""
        requests = known = age = 0.0
        alive = 1.0
        while alive > 1e-6 and requests < 1e5:
            to = self.next(age)
            requests += alive
            known += alive * (to - age)
            age, alive = to, table.survival(to)
        return requests, max(0.0, known - table.mean(age))


class Plans:
    """The plans of a sketch, one per price level, computed when needed."""

    __slots__ = ("_looks_at", "_marks", "_plans", "_table", "sketch", "version")

    def __init__(self, sketch: Sketch) -> None:
        self.sketch = sketch
        self.version = 0  # grows when the curve has moved so far that older plans should be replaced
        self._marks: list[float] = []
        self._table: SurvivalCurve | None = None
        self._plans: dict[int, Plan] = {}
        self._looks_at = -math.inf  # when to check for a new curve

    def at(self, price: float, now: float, dice: float = 0.5) -> Plan:
        """Return the plan for a price; `dice` in [0, 1) chooses between the levels above and below it."""
        if now >= self._looks_at and (table := self.sketch.table(exact=False)) is not self._table:
            self._table, self._plans = table, {}
            marks = [table.quantile(q) for q in MARKS]
            if not self._marks or any(
                abs(a - b) > MOVED * b for a, b in zip(marks, self._marks, strict=True)
            ):
                self._marks = marks
                self.version += 1
            if self.sketch.count > WELL_KNOWN:
                self._looks_at = now + RENEWAL
        level = math.floor(LEVELS * math.log2(price) + dice)
        plan = self._plans.get(level)
        if plan is None:
            assert self._table is not None
            plan = self._plans[level] = Plan(self._table, 2.0 ** (level / LEVELS))
        return plan


def _grid(
    table: SurvivalCurve, price: float
) -> tuple[list[float], list[float], list[tuple[int, float]]]:
    """Return ages, their cumulative hazards, and the best interval where the grid is too coarse for it."""
    ages, logs, dense = [0.0], [0.0], []
    cumulative = table.cumulative
    first = min(bisect_right(cumulative, EARLY), BINS) - 1
    last = min(max(bisect_right(cumulative, LATE), first + 1), BINS)
    for i in range(first, last):
        low, high, hazard = EDGES[i], EDGES[i + 1], table.hazards[i]
        pause = math.sqrt(2.0 * price / hazard)
        steps = max(COARSEST, math.ceil((high - low) / (FINENESS * pause)))
        if steps > FINEST:
            steps = FINEST
            dense += [(k, pause) for k in range(len(ages), len(ages) + steps)]
        width = (high - low) / steps
        for k in range(1, steps + 1):
            ages.append(low + k * width)
            logs.append(cumulative[i] + hazard * k * width)
    return ages, logs, dense


def _backwards(
    ages: list[float], logs: list[float], price: float, hazard: float
) -> tuple[list[float], list[float]]:
    """Return the best next age from each age, and S × the cost from there on, including the remaining duration."""
    n = len(ages) - 1
    pause = math.sqrt(2.0 * price / hazard)  # beyond the grid the hazard counts as constant
    cost = math.exp(-logs[n]) * (price / 2 + pause + 1.0 / hazard)
    nexts, costs = [0.0] * n + [ages[n] + pause], [0.0] * n + [cost]
    # The envelope of the lines age·q + cost for the values q = S still to come. These only grow, so the best line moves
    # from the first to the last, and a first line that is beaten once stays beaten.
    slopes, heights, best = [ages[n]], [cost], 0
    for i in range(n - 1, -1, -1):
        alive, slope = math.exp(-logs[i]), ages[i]
        value = slopes[best] * alive + heights[best]
        while best + 1 < len(slopes) and slopes[best + 1] * alive + heights[best + 1] <= value:
            best += 1
            value = slopes[best] * alive + heights[best]
        nexts[i] = slopes[best]
        costs[i] = cost = alive * (price - slope) + value
        while len(slopes) - 1 > best and (heights[-1] - heights[-2]) * (slopes[-2] - slope) >= (
            cost - heights[-2]
        ) * (slopes[-2] - slopes[-1]):
            slopes.pop()
            heights.pop()
        slopes.append(slope)
        heights.append(cost)
    return nexts, costs
