"""Learned durations: the survival curve falls, quantiles rise, and data moves both."""

from __future__ import annotations

import math
import random
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bide.core.pacing.hazard import BINS, BINS_PER_OCTAVE, EDGES, LAST, Sketch, _bin
from tests.examples import examples

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


@examples(15)
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


def test_what_another_version_had_begins_anew() -> None:
    old = {"count": 2, "bins": {"3": [1.0, 0.1]}}
    assert Sketch.load(old).count == 0
    bins = {"3": [1.0, 0.1, 0.0], str(BINS): [1.0, 0.1, 0.0], "-1": [1.0, 1.0, 0.0]}
    assert sum(Sketch.load({"count": 2, "perOctave": BINS_PER_OCTAVE, "bins": bins}).ended) == 1.0


# --- what is seen only now and then


def watched(durations: list[float], every: float) -> Sketch:
    """Jobs that are asked about at a fixed interval until they have ended."""
    sketch = Sketch()
    for duration in durations:
        age = 0.0
        while age + every < duration:
            sketch.survived(age, age + every)
            age += every
        sketch.learn_between(age, age + every)
    return sketch


def test_questions_now_and_then_tell_nearly_what_exact_ends_tell() -> None:
    rng = random.Random(3)
    durations = [rng.lognormvariate(math.log(60), 0.4) for _ in range(300)]
    exact, seen = learned(durations).table(), watched(durations, 7.0).table()
    for q in (0.1, 0.5, 0.9):
        assert seen.quantile(q) == pytest.approx(exact.quantile(q), rel=0.12)


def test_jobs_that_still_go_on_count() -> None:
    """Of a hundred, ten ended within a minute: that does not mean that jobs take less than a minute."""
    sketch = Sketch()
    for i in range(10):
        sketch.learn(30.0 + 3 * i)
    for _ in range(90):
        sketch.survived(0.0, 60.0)
    assert sketch.table().survival(60.0) == pytest.approx(0.9, abs=0.05)


def test_five_ends_are_enough_for_a_fair_idea() -> None:
    rng = random.Random(11)
    table = learned([rng.lognormvariate(math.log(300), 0.3) for _ in range(5)]).table()
    assert 200 < table.quantile(0.5) < 450
    assert table.survival(60.0) > 0.9
    assert table.quantile(0.99) < 3000


def test_two_modes_stay_two() -> None:
    rng = random.Random(2)
    table = learned(
        [rng.gauss(*((20, 1.5) if rng.random() < 0.6 else (300, 20))) for _ in range(200)]
    ).table()
    assert table.survival(40) == pytest.approx(0.4, abs=0.1)
    assert table.survival(150) > 0.8 * table.survival(40)


def test_a_gap_is_found_empty_from_few_ends_and_from_stretches() -> None:
    rng = random.Random(8)
    exact, seen = Sketch(), Sketch()
    for i in range(24):
        duration = rng.lognormvariate(math.log(600 if i % 3 == 0 else 30), 0.2)
        exact.learn(duration)
        low = 0.0
        for high in (rng.uniform(30, 40), rng.uniform(55, 70), rng.uniform(450, 550), 1200.0):
            if high >= duration:
                seen.learn_between(low, high)
                break
            seen.survived(low, high)
            low = high
        seen.table(exact=False)
    for table in (exact.table(), seen.table()):
        assert table.survival(90.0) == pytest.approx(1 / 3, abs=0.12)
        assert table.survival(300.0) > 0.93 * table.survival(90.0)


@examples(25)
@given(st.lists(st.tuples(st.floats(0, 1e7), st.floats(0, 1e7)), max_size=20))
def test_no_stretch_of_watching_makes_a_hazard_vanish(stretches: list[tuple[float, float]]) -> None:
    sketch = Sketch()
    for low, high in stretches:
        sketch.survived(low, high)
        sketch.learn_between(low, high)
    table = sketch.table()
    assert all(0 < hazard < math.inf for hazard in table.hazards)
    assert all(a - b >= 0 for a, b in pairwise(table.surviving))
    assert all(b - a >= 0 for a, b in pairwise(table.integral))


def test_the_integral_is_that_of_survival() -> None:
    table = learned([10.0, 20.0, 40.0]).table()
    low, high = EDGES.index(1.0), EDGES.index(64.0)
    steps = 20000
    width = 63.0 / steps
    area = sum(table.survival(1.0 + (i + 0.5) * width) for i in range(steps)) * width
    assert table.integral[high] - table.integral[low] == pytest.approx(area, rel=1e-4)


@pytest.mark.parametrize("bad", [(5.0, 4.0), (-1.0, 4.0), (0.0, math.inf), (math.nan, 1.0)])
def test_what_is_no_stretch_is_not_learned(bad: tuple[float, float]) -> None:
    sketch = Sketch()
    sketch.learn_between(*bad)
    sketch.survived(*bad)
    assert sketch.dump()["bins"] == {}


def test_what_nobody_saw_is_not_believed_because_it_was_believed_before() -> None:
    """Asked about once or twice a job, at first as the prior has it: the shares of the stretches must come out right."""
    rng = random.Random(5)
    sketch = Sketch()
    for _ in range(300):
        duration, low = rng.lognormvariate(math.log(40), 0.7), 0.0
        high = rng.uniform(40, 55)
        while high < duration:
            sketch.survived(low, high)
            low, high = high, high + rng.uniform(30, 45)
        sketch.learn_between(low, high)
        sketch.table(exact=False)
    table = sketch.table()
    assert table.quantile(0.5) == pytest.approx(40, rel=0.15)
    assert table.survival(10.0) > 0.85
    assert table.survival(90.0) == pytest.approx(0.123, abs=0.04)


def test_stretches_survive_being_stored() -> None:
    sketch = Sketch()
    for high in (50.0, 70.0, 100.0):
        sketch.learn_between(5.0, high)
    data = msgspec.json.decode(msgspec.json.encode(sketch.dump()))
    for q in (0.1, 0.5, 0.9):
        assert Sketch.load(data).table().quantile(q) == pytest.approx(sketch.table().quantile(q))
    data["cells"] += [[-1, 3, 1.0], [5, 5, 1.0], [0, BINS, 1.0]]
    assert Sketch.load(data).cells == Sketch.load(sketch.dump()).cells


# Exact ends, and stretches of at least four bins. Which bins a narrower one goes into depends on what is believed so far.
STRETCH = st.tuples(st.floats(0.1, 1e4), st.just(1.0) | st.floats(1.5, 20.0))
STRETCHES = st.lists(STRETCH, min_size=1, max_size=30)


def learn_stretches(sketch: Sketch, stretches: list[tuple[float, float]]) -> None:
    for low, factor in stretches:
        sketch.survived(0.0, low)
        sketch.learn_between(low, low * factor)


@examples(25)
@given(STRETCHES, STRETCHES)
def test_what_was_absorbed_counts_as_if_it_had_been_learned_here(
    before: list[tuple[float, float]], after: list[tuple[float, float]]
) -> None:
    direct, absorbing, other = Sketch(), Sketch(), Sketch()
    learn_stretches(direct, before)
    learn_stretches(absorbing, before)
    learn_stretches(direct, after)
    learn_stretches(other, after)
    absorbing.absorb(msgspec.json.decode(msgspec.json.encode(other.dump())))
    assert absorbing.count == direct.count
    for q in (0.1, 0.5, 0.9):
        assert absorbing.table().quantile(q) == pytest.approx(direct.table().quantile(q), rel=1e-6)


def test_absorbing_ignores_stretches_that_cannot_be() -> None:
    sketch, other = Sketch(), Sketch()
    other.learn_between(5.0, 50.0)
    data = other.dump()
    data["cells"] += [[-1, 3, 1.0], [5, 5, 1.0], [0, BINS, 1.0]]
    sketch.absorb(data)
    assert sketch.cells.keys() == other.cells.keys()


def test_who_outlives_all_others_is_of_another_sort() -> None:
    """The hazard near the end of all that was seen is high; of a job that hangs it must not stay so."""
    table = learned([60.0 + i % 10 for i in range(200)]).table()
    near, far = table.hazards[_bin(66.0)], table.hazards[_bin(600.0)]
    assert near > 0.05
    assert far < 0.01
    assert table.quantile(0.5, age=600.0) > 700


def test_the_mean_before_an_age() -> None:
    table = learned([10.0, 20.0, 40.0]).table()
    assert table.mean(0.0) == 0.0
    assert table.mean(0.01) == pytest.approx(0.01, rel=1e-3)
    assert table.mean(EDGES[100]) == pytest.approx(table.integral[100])
    assert table.mean() == pytest.approx(table.integral[-1])


def test_the_observed_quantile_is_not_beyond_what_was_observed() -> None:
    sketch = Sketch()
    assert sketch.observed_quantile(0.99) == 0.0
    rng = random.Random(1)
    durations = [rng.lognormvariate(0.0, 0.8) for _ in range(20)]
    for duration in durations:
        sketch.learn(duration)
    assert max(durations) <= sketch.observed_quantile(0.99) <= 1.1 * max(durations)
    assert 0.7 <= sketch.observed_quantile(0.5) <= 1.4
