"""Histograms of durations."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from bide.core.jobs.histogram import LAST, bucket_of, lower_bound, quantile

DURATIONS = st.floats(0.001, 1e6)


@given(DURATIONS)
def test_a_duration_is_within_its_bucket(seconds: float) -> None:
    bucket = bucket_of(seconds)
    assert lower_bound(bucket) <= seconds * 1.000001
    if bucket < LAST:
        assert seconds <= lower_bound(bucket + 1) * 1.000001


@given(st.lists(DURATIONS, min_size=1), st.sampled_from([0.5, 0.95, 0.99]))
def test_a_quantile_is_close_to_the_exact_one(durations: list[float], part: float) -> None:
    found = quantile(Counter(map(bucket_of, durations)), part)
    assert found is not None
    exact = sorted(durations)[min(len(durations) - 1, max(0, -int(-part * len(durations) // 1) - 1))]
    assert exact / 1.2 <= found <= exact * 1.2


@given(st.lists(DURATIONS), st.lists(DURATIONS))
def test_the_merge_is_the_sum(one: list[float], two: list[float]) -> None:
    merged = Counter(map(bucket_of, one)) + Counter(map(bucket_of, two))
    assert quantile(merged, 0.5) == quantile(Counter(map(bucket_of, one + two)), 0.5)


def test_the_ends() -> None:
    assert quantile({}, 0.5) is None
    assert bucket_of(0.0) == bucket_of(-1.0) == 0
    assert bucket_of(1e12) == LAST
    assert quantile({0: 10}, 0.5) == 0.0005
