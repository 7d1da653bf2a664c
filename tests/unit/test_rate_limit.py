"""A limit of submissions per time, as the service enforces it."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bide.core.pacing.budget import Limit, read_limit
from bide.core.pacing.rate_limit import SLOTS, RateState, idle, remaining, report, reset, spend, wait

LIMITS = st.builds(
    Limit,
    st.integers(1, 40).map(float),
    st.sampled_from([0.5, 1.0, 60.0, 3600.0]),
    st.one_of(st.none(), st.integers(1, 20).map(float)),
)
# Times between two submissions, as parts of the window.
GAPS = st.lists(st.floats(0.0, 0.3), min_size=1, max_size=200)


def accept(limit: Limit, gaps: list[float]) -> tuple[list[float], RateState, float]:
    """The times of accepted submissions."""
    state, now, accepted = RateState(), 1_700_000_000.0, []
    for gap in gaps:
        now += gap * limit.per
        if wait(limit, state, now) == 0.0:
            spend(limit, state, now)
            accepted.append(now)
    return accepted, state, now


@given(limit=LIMITS, gaps=GAPS)
def test_no_window_has_more_than_the_limit(limit: Limit, gaps: list[float]) -> None:
    accepted, state, _ = accept(limit, gaps)
    assert len(state.slots) <= SLOTS + 2
    for i, begin in enumerate(accepted):
        for j in range(i, len(accepted)):
            length, count = accepted[j] - begin, j - i + 1
            if limit.burst is None:
                assert length >= limit.per * (1 - 1e-6) or count <= limit.requests
            else:
                assert count <= limit.burst + limit.requests * length / limit.per + 1e-3


@given(limit=LIMITS, gaps=GAPS)
def test_the_wait_is_exact(limit: Limit, gaps: list[float]) -> None:
    _, state, now = accept(limit, gaps)
    seconds = wait(limit, state, now)
    assert (seconds == 0.0) == (remaining(limit, state, now) >= 1)
    if seconds:
        assert wait(limit, state, now + seconds * 1.0001 + 1e-5) == 0.0
        # A time in seconds since 1970 has a resolution of 0.2 microseconds.
        assert wait(limit, state, now + seconds * 0.98 - 1e-5) > 0.0


def test_a_burst_of_the_whole_limit_is_accepted_again_after_one_window() -> None:
    limit, state = read_limit("100/1m"), RateState()
    for _ in range(100):
        assert wait(limit, state, 1000.0) == 0.0
        spend(limit, state, 1000.0)
    assert remaining(limit, state, 1000.0) == 0
    assert wait(limit, state, 1010.0) == pytest.approx(50.0)
    assert remaining(limit, state, 1060.0) == 100
    assert idle(limit, state, 1060.0)


def test_a_steady_flow_gets_nearly_the_whole_limit() -> None:
    limit = read_limit("100/1m")
    accepted, _, _ = accept(limit, [0.002] * 5000)  # five per limit, for ten minutes
    assert 100 * 10 * (1 - 1.2 / SLOTS) <= len(accepted) <= 100 * 10 + 100


def test_a_bucket_fills_evenly() -> None:
    limit, state = read_limit("60/1m:3"), RateState()
    for _ in range(3):
        assert wait(limit, state, 5.0) == 0.0
        spend(limit, state, 5.0)
    assert wait(limit, state, 5.0) == pytest.approx(1.0)
    assert wait(limit, state, 5.75) == pytest.approx(0.25)
    spend(limit, state, 6.0)
    assert remaining(limit, state, 6.0) == 0
    assert remaining(limit, state, 100.0) == 3


def test_a_report_has_what_is_left_and_when_there_is_more() -> None:
    limit, state = read_limit("2/10s"), RateState()
    assert report("default", limit, state, 0.0).remaining == 2
    spend(limit, state, 100.0)
    assert reset(limit, state, 103.0) == pytest.approx(7.0)
    spend(limit, state, 104.0)
    told = report("default", limit, state, 104.0)
    assert told.remaining == 0
    assert told.reset == pytest.approx(6.0)


@given(limit=LIMITS, gaps=GAPS)
def test_a_clock_that_goes_back_frees_nothing(limit: Limit, gaps: list[float]) -> None:
    _, state, now = accept(limit, gaps)
    assert remaining(limit, state, now - limit.per / 2) <= remaining(limit, state, now)
    assert math.isfinite(wait(limit, state, now - limit.per))


@given(limit=LIMITS, gaps=GAPS)
def test_a_state_of_an_earlier_release_counts_the_same(limit: Limit, gaps: list[float]) -> None:
    _, state, now = accept(limit, gaps)
    assert state.total == sum(slot.count for slot in state.slots)
    stored = msgspec.json.encode(msgspec.to_builtins(state)[:3])  # it had no total
    earlier = msgspec.json.decode(stored, type=RateState)
    for at in (now, now + limit.per / 2, now + 2 * limit.per):
        assert report("default", limit, earlier, at) == report("default", limit, state, at)
    spend(limit, earlier, now)
    spend(limit, state, now)
    assert earlier == state
