"""Learned durations: the survival curve falls, quantiles rise, and data moves both."""

from __future__ import annotations

import math
import random
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bide.core.hazard import BINS, EDGES, LAST, Sketch

DURATIONS = st.lists(st.floats(0, 1e7), max_size=60)


def learned(durations: list[float]) -> Sketch:
    sketch = Sketch()
    for duration in durations:
        sketch.learn(duration)
    return sketch


@given(DURATIONS)
def test_survival_starts_at_one_and_only_falls(durations: list[float]) -> None:
    table = learned(durations).table()
    ages = [0.0, *EDGES, 2 * LAST]
    curve = [table.survival(age) for age in ages]
    assert curve[0] == 1.0
    assert all(0 <= b <= a for a, b in pairwise(curve))
    assert table.survival(-5) == 1.0
    assert all(hazard > 0 for hazard in table.hazards)


@given(DURATIONS, st.floats(0, 1e7))
def test_quantiles_rise_and_never_lie_in_the_past(durations: list[float], age: float) -> None:
    table = learned(durations).table()
    ends = [table.quantile(q, age) for q in (0.0, 0.1, 0.5, 0.9, 0.99)]
    assert all(math.isfinite(end) for end in ends)
    assert ends[0] >= age
    assert ends == sorted(ends)


@given(DURATIONS, st.floats(0.01, 0.98))
def test_a_quantile_is_where_survival_has_fallen_that_far(durations: list[float], q: float) -> None:
    table = learned(durations).table()
    assert table.survival(table.quantile(q)) == pytest.approx(1 - q, rel=1e-6)


@settings(deadline=None)
@given(st.floats(0.02, 1e5))
def test_learning_moves_the_median_to_the_data(duration: float) -> None:
    sketch = learned([duration] * 200)
    assert sketch.count == 200
    median = sketch.table().quantile(0.5)
    assert duration / 1.3 < median < duration * 1.3


def test_the_curve_follows_the_distribution_that_it_saw() -> None:
    rng = random.Random(7)
    table = learned([rng.lognormvariate(math.log(60), 0.5) for _ in range(600)]).table()
    assert table.quantile(0.5) == pytest.approx(60, rel=0.2)
    assert table.quantile(0.9) == pytest.approx(60 * math.exp(0.5 * 1.2816), rel=0.25)
    assert table.quantile(0.5, age=100) > 100


def test_old_observations_fade() -> None:
    sketch = learned([10.0] * 300 + [100.0] * 700)
    assert sketch.table().quantile(0.5) == pytest.approx(100, rel=0.3)


def test_a_long_life_of_learning_stays_finite() -> None:
    sketch = learned([5.0] * 6000)
    assert sketch.table().quantile(0.5) == pytest.approx(5, rel=0.3)
    assert all(math.isfinite(x) for x in sketch.ended + sketch.within)


@pytest.mark.parametrize("nonsense", [-1.0, math.inf, math.nan])
def test_what_is_no_duration_is_not_learned(nonsense: float) -> None:
    assert learned([nonsense]).count == 0


def test_the_table_is_made_anew_after_learning() -> None:
    sketch = Sketch()
    before = sketch.table()
    assert sketch.table() is before
    sketch.learn(10)
    assert sketch.table() is not before


@given(DURATIONS)
def test_a_sketch_survives_being_stored(durations: list[float]) -> None:
    sketch = learned(durations)
    again = Sketch.load(msgspec.json.decode(msgspec.json.encode(sketch.dump())))
    assert again.count == sketch.count == len(durations)
    for q in (0.1, 0.5, 0.9):
        assert again.table().quantile(q) == pytest.approx(sketch.table().quantile(q), rel=1e-9)
    again.learn(3.0)
    sketch.learn(3.0)
    assert again.table().quantile(0.5) == pytest.approx(sketch.table().quantile(0.5), rel=1e-6)


def test_bins_that_another_version_had_are_passed_over() -> None:
    sketch = Sketch.load({"count": 2, "bins": {"3": [1.0, 0.1], str(BINS): [1.0, 0.1], "-1": [1, 1]}})
    assert sum(sketch.ended) == 1.0
