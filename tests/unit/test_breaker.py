"""A breaker keeps requests from a host that fails, and finds out alone when it is well again."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from bide.core.pacing.backoff import Breaker

CAP, PATIENCE = 60.0, 60.0


def breaker(threshold: int = 3) -> Breaker:
    return Breaker(rng=random.Random(1), threshold=threshold, base=1.0, cap=CAP, patience=PATIENCE)


def opened() -> Breaker:
    made = breaker()
    for _ in range(3):
        made.spend(0.0)
        made.failed(0.0)
    return made


def test_it_opens_after_so_many_failures_in_a_row() -> None:
    made = breaker()
    for _ in range(2):
        made.failed(0.0)
    made.succeeded(0.0)
    for _ in range(2):
        made.failed(0.0)
    assert made.ready(0.0) <= 0.0
    made.failed(0.0)
    assert not made.closed
    assert 0.5 <= made.ready(0.0) <= 1.0


def test_one_probe_at_a_time() -> None:
    made = opened()
    at = made.ready(0.0)
    made.spend(at)
    assert made.ready(at) == at + PATIENCE
    made.succeeded(at + 1)
    assert made.closed
    assert made.ready(at + 1) <= at + 1


def test_a_failed_probe_opens_it_for_longer_up_to_the_cap() -> None:
    made, now, waits = opened(), 0.0, []
    for _ in range(12):
        waits.append(made.ready(now) - now)
        now = made.ready(now)
        made.spend(now)
        made.failed(now)
    assert all(2.0**i / 2 - 1e-9 <= w <= 2.0**i for i, w in enumerate(waits[:6]))
    assert all(CAP / 2 <= w <= CAP for w in waits[7:])


def test_a_lost_probe_gives_way_to_the_next() -> None:
    made = opened()
    at = made.ready(0.0)
    made.spend(at)
    made.spend(at + PATIENCE)
    made.succeeded(at + PATIENCE)
    assert made.closed


def test_what_was_sent_before_it_opened_changes_nothing() -> None:
    made = opened()
    until = made.ready(0.0)
    made.succeeded(0.1)
    made.failed(0.2)
    assert not made.closed
    assert made.ready(0.2) == until


def test_after_it_has_closed_it_begins_anew() -> None:
    made = opened()
    at = made.ready(0.0)
    made.spend(at)
    made.succeeded(at)
    made.failed(at)
    made.failed(at)
    assert made.closed


@given(st.lists(st.tuples(st.sampled_from(["spend", "succeeded", "failed"]), st.floats(0, 100))))
def test_it_never_closes_the_way_for_longer_than_the_cap_or_the_patience(
    events: list[tuple[str, float]],
) -> None:
    made, now = breaker(), 0.0
    for what, passed in events:
        now += passed
        if what == "spend":
            now = max(now, made.ready(now))
        getattr(made, what)(now)
        assert made.ready(now) - now <= max(CAP, PATIENCE) + 1e-6  # sums of floats


@given(st.integers(0, 1000), st.integers(1, 20))
def test_a_dead_host_is_asked_ever_less(seed: int, threshold: int) -> None:
    made = Breaker(rng=random.Random(seed), threshold=threshold)
    now, asked = 0.0, 0
    while now < 3600:
        now = max(now, made.ready(now))
        made.spend(now)
        made.failed(now)
        asked += 1
    assert asked <= threshold + 8 + 3600 / 30
