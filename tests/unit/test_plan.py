"""Plans: never in the past, rarer at a higher price, and as good as any plan that a search by brute force finds."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator
from itertools import accumulate, chain, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bide.core.pacing.advice import Load, advise
from bide.core.pacing.hazard import EDGES, Sketch, SurvivalCurve
from bide.core.pacing.plan import Plan, Plans
from tests.examples import examples

DURATIONS = st.lists(st.floats(0.01, 1e5), max_size=20)
PRICES = st.floats(0.01, 1000)


def table(durations: list[float]) -> SurvivalCurve:
    sketch = Sketch()
    for duration in durations:
        sketch.learn(duration)
    return sketch.table()


def spread(seed: int, median: float, sigma: float, count: int = 400) -> list[float]:
    rng = random.Random(seed)
    return [rng.lognormvariate(math.log(median), sigma) for _ in range(count)]


def costs(asks: Iterable[float], curve: SurvivalCurve, price: float) -> Iterator[float]:
    """Delay and priced requests of a list of ages, up to each of them. They only rise."""
    terms = (curve.survival(low) * (high - low + price) for low, high in pairwise(chain([0.0], asks)))
    return accumulate(terms, initial=-curve.mean())


def costs_at_least(cost: float, asks: Iterable[float], curve: SurvivalCurve, price: float) -> bool:
    """Stops where that is certain, because lists of short intervals are long."""
    return any(so_far >= cost for so_far in costs(asks, curve, price))


def walk(plan: Plan, curve: SurvivalCurve) -> list[float]:
    ages = [plan.next(0.0)]
    while curve.survival(ages[-1]) > 1e-6:
        ages.append(plan.next(ages[-1]))
    return ages


@examples(30)
@given(DURATIONS, PRICES, st.floats(0, 1e7))
def test_the_next_age_is_finite_and_later(durations: list[float], price: float, age: float) -> None:
    to = Plan(table(durations), price).next(age)
    assert age < to < math.inf


@examples(15)
@given(DURATIONS)
def test_a_higher_price_asks_less_often(durations: list[float]) -> None:
    curve = table(durations)
    requests = [Plan(curve, price).outlook(curve)[0] for price in (0.1, 1.0, 10.0, 100.0)]
    assert all(b <= a * 1.05 for a, b in pairwise(requests))


@pytest.mark.parametrize(
    ("sigma", "price"),
    [
        (0.5, 4.0),
        *(pytest.param(*case, marks=pytest.mark.soak) for case in ((0.1, 30.0), (0.5, 0.5), (1.2, 4.0))),
    ],
)
def test_no_other_list_of_ages_costs_less(sigma: float, price: float) -> None:
    """Against fixed intervals from any start, and against its own ages moved about."""
    curve = table(spread(1, 60.0, sigma))
    ours = walk(Plan(curve, price), curve)
    *_, best = costs(ours, curve, price)
    end = ours[-1]
    for every in (1, 2, 3, 5, 8, 12, 20, 30, 45, 60, 90, 150):
        for start in (0, 20, 40, 60):
            other = (float(start + every * k) for k in range(1, 1 + int((end - start) / every) + 1))
            assert costs_at_least(best * 0.98, other, curve, price)
    rng = random.Random(5)
    for _ in range(60):
        moved = sorted(age * rng.uniform(0.93, 1.07) for age in ours)
        assert costs_at_least(best * 0.98, moved, curve, price)


def test_a_known_duration_is_asked_about_once_just_after_it() -> None:
    curve = table([60.0] * 100)
    plan = Plan(curve, 1.0)
    assert 60.0 <= plan.next(0.0) < 66.0
    requests, delay = plan.outlook(curve)
    assert requests < 1.5
    assert delay < 6.0


def test_a_job_outside_of_all_that_was_seen_is_still_asked_about() -> None:
    plan = Plan(table([60.0] * 100), 1.0)
    age = 600.0
    for _ in range(20):
        to = plan.next(age)
        assert to - age < age
        age = to


@pytest.mark.parametrize("price", [0.5, 8.0])
def test_the_cost_to_come_is_what_the_plan_comes_to(price: float) -> None:
    curve = table(spread(3, 100.0, 0.4))
    plan = Plan(curve, price)
    requests, delay = plan.outlook(curve)
    assert plan.cost(0.0) == pytest.approx(price * requests + delay, rel=0.05)
    assert plan.cost(EDGES[-1] * 2) > 0


def test_plans_are_renewed_when_something_was_learned() -> None:
    plans = Plans(Sketch())
    before, version = plans.at(1.0, 0.0), plans.version
    assert plans.at(1.0, 0.0) is before
    for _ in range(10):
        plans.sketch.learn(500.0)
    assert plans.at(1.0, 0.0) is not before
    assert plans.version > version


# --- advice


def test_a_budget_that_is_enough_is_called_enough() -> None:
    load = Load(10, table(spread(1, 300.0, 0.4)))
    for allowed in (None, 10.0):
        advice = advise([load], allowed, 1.0)
        assert advice.enough
        assert advice.delay == advice.wanted
        assert "enough" in str(advice)


def test_a_small_budget_gets_numbers_to_act_on() -> None:
    load = Load(100, table(spread(1, 300.0, 0.4)))
    advice = advise([load], 0.5, 1.0, batch=20)
    assert not advice.enough
    assert advice.needed > 0.5
    assert advice.ask_for is not None
    assert advice.ask_for >= 60 * advice.needed
    assert advice.batched is not None
    assert advice.wanted <= advice.batched < advice.delay
    for number in (advice.ask_for, 20):
        assert f"{number:.0f}" in str(advice)


@examples(10)
@given(st.floats(1, 1e4), st.floats(0.01, 10))
def test_less_budget_never_means_less_delay(waiting: float, allowed: float) -> None:
    load = Load(waiting, table([50.0, 60.0, 80.0]))
    assert advise([load], allowed / 2, 1.0).delay >= advise([load], allowed, 1.0).delay * 0.999


def test_advice_about_nothing_is_calm() -> None:
    assert advise([], 1.0, 1.0).enough


def test_where_many_end_plans_are_made_anew_every_three_seconds() -> None:
    plans = Plans(Sketch())
    for _ in range(100):
        plans.sketch.learn(60.0)
    first = plans.at(1.0, 10.0)
    for _ in range(200):
        plans.sketch.learn(6.0)
    assert plans.at(1.0, 12.9) is first
    assert plans.at(1.0, 13.0) is not first
