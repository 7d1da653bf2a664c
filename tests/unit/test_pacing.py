"""When to ask again: finite, never negative, and worth its price."""

from __future__ import annotations

import math
import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bide.core.pacing.hazard import EDGES, LAST, Sketch, SurvivalCurve
from bide.core.pacing.intervals import (
    LONGEST_HINT,
    Hints,
    index,
    interval,
    remaining_by_progress,
    retry_after,
)
from tests.examples import examples


def table(durations: list[float]) -> SurvivalCurve:
    sketch = Sketch()
    for duration in durations:
        sketch.learn(duration)
    return sketch.table()


DURATIONS = st.lists(st.floats(0, 1e6), max_size=30)


@given(DURATIONS, st.floats(0, 1e7), st.floats(0.01, 100))
def test_an_interval_is_finite_and_positive(durations: list[float], age: float, price: float) -> None:
    wait = interval(table(durations), age, price)
    assert math.isfinite(wait)
    assert wait >= price * 0.999, "in no less time can so many seconds be lost"


@given(DURATIONS, st.floats(0, 1e5))
def test_a_higher_price_waits_longer(durations: list[float], age: float) -> None:
    curve = table(durations)
    waits = [interval(curve, age, price) for price in (0.1, 1.0, 10.0)]
    assert waits == sorted(waits)


@examples(12)
@given(DURATIONS, st.floats(0, 1e4), st.floats(0.1, 10))
def test_the_delay_lost_in_expectation_is_the_price(
    durations: list[float], age: float, price: float
) -> None:
    """∫ (1 − S(u)/S(age)) du over the interval, summed by hand."""
    curve = table(durations)
    wait = interval(curve, age, price)
    edges = sorted({age, age + wait, *(e for e in EDGES if age < e < age + wait)})
    lost, alive = 0.0, curve.survival(age)
    for low, high in pairwise(edges):
        width = (high - low) / 200
        lost += sum(width * (1 - curve.survival(low + (i + 0.5) * width) / alive) for i in range(200))
    assert lost == pytest.approx(price, rel=0.01)


@examples(25)
@given(DURATIONS, st.floats(0, 1e4), st.floats(0.1, 1e4))
def test_the_index_is_the_integral_summed_by_hand(
    durations: list[float], asked: float, silence: float
) -> None:
    curve = table(durations)
    age = asked + silence
    edges = sorted({asked, age, *(e for e in EDGES if asked < e < age)})
    lost, start = 0.0, curve.cumulative_at(asked)
    for low, high in pairwise(edges):
        width = (high - low) / 50
        lost += sum(
            width * -math.expm1(start - curve.cumulative_at(low + (i + 0.5) * width)) for i in range(50)
        )
    assert index(curve, asked, age) == pytest.approx(lost, rel=0.01, abs=1e-6 * silence)


@given(DURATIONS, st.floats(0, 1e6), st.floats(0.01, 100))
def test_the_index_reaches_the_price_after_the_interval(
    durations: list[float], age: float, price: float
) -> None:
    curve = table(durations)
    wait = interval(curve, age, price)
    assert index(curve, age, age + wait) == pytest.approx(price, rel=1e-3, abs=1e-6)
    assert index(curve, age, age) == 0.0


def asks(curve: SurvivalCurve, end: float) -> list[float]:
    """The ages at which a client polls until it sees the end."""
    ages = [interval(curve, 0.0)]
    while ages[-1] < end:
        ages.append(ages[-1] + interval(curve, ages[-1]))
    return ages


def test_learning_saves_requests_and_delay() -> None:
    rng = random.Random(3)
    naive, wise = table([]), table([rng.gauss(60, 2) for _ in range(200)])
    assert len(asks(wise, 60.0)) < len(asks(naive, 60.0)) / 2
    assert asks(wise, 60.0)[-1] - 60 < 5
    assert interval(wise, 0.0) > 20
    assert interval(wise, 58.0) < 5


@given(DURATIONS, st.floats(-10, 1e8))
def test_hints_are_finite_and_never_negative(durations: list[float], age: float) -> None:
    wait = Hints(table(durations)).after(age)
    assert 0 <= wait < math.inf


def test_a_hint_is_the_interval_at_the_edge_of_its_bin() -> None:
    curve = table([30.0] * 50)
    hints = Hints(curve)
    for edge in (EDGES[1] * 1.01, 1.01, 10.5, 33.0, LAST * 3):
        below = max(e for e in EDGES if e <= edge)
        assert hints.after(edge) == interval(curve, below)


@given(st.floats(0, 1e12))
def test_the_header_is_whole_seconds_between_one_and_an_hour(wait: float) -> None:
    value = retry_after(wait)
    assert isinstance(value, int)
    assert 1 <= value <= LONGEST_HINT
    assert value >= min(wait, LONGEST_HINT)


@pytest.mark.parametrize(
    ("elapsed", "percent", "left"),
    [
        (30, 50.0, 30),
        (10, 10.0, 90),
        (10, 100.0, 0),
        (10, 120.0, 0),
        (10, None, None),
        (10, 0.5, None),
        (0, 50.0, None),
    ],
)
def test_progress_says_what_is_left_where_it_says_anything(
    elapsed: float, percent: float | None, left: float | None
) -> None:
    assert remaining_by_progress(elapsed, percent) == left
