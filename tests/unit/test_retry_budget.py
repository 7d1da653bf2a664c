"""The retry budget of a kind, in virtual time."""

from __future__ import annotations

import heapq
import random

from hypothesis import given
from hypothesis import strategies as st

from bide.core.jobs.retry_budget import RetryBudget, RetryBudgetState, available, deposited, spent

BUDGET = RetryBudget()


@given(
    st.lists(st.tuples(st.integers(0, 500), st.integers(0, 500), st.floats(0.0, 300.0)), max_size=40),
    st.floats(0.0, 2.0),
    st.floats(1.0, 100.0),
)
def test_retries_stay_within_the_budget(
    rounds: list[tuple[int, int, float]], ratio: float, minimum: float
) -> None:
    """Rounds of first attempts, wishes for retries, and the seconds until the next round."""
    budget = RetryBudget(ratio, minimum)
    state, now, first, granted = RetryBudgetState(0.0, minimum, 0.0), 0.0, 0, 0
    for attempts, wishes, pause in rounds:
        first += attempts
        state = deposited(state, budget, attempts, now)
        assert available(state) >= 0
        for _ in range(wishes):
            after = spent(state)
            if after is None:
                break
            state, granted = after, granted + 1
        assert granted <= ratio * first + minimum * (1 + now / 60) + 1e-6
        now += pause


def test_a_kind_with_few_jobs_can_always_retry() -> None:
    state, now = RetryBudgetState(0.0, BUDGET.minimum, 0.0), 0.0
    for _ in range(200):
        now += 1.0
        after = spent(deposited(state, BUDGET, 0, now))
        assert after is not None
        state = after


def test_what_was_earned_long_ago_does_not_pay_for_a_storm() -> None:
    state = deposited(RetryBudgetState(0.0, BUDGET.minimum, 0.0), BUDGET, 100_000, 0.0)
    assert available(state) == 20_060
    assert available(deposited(state, BUDGET, 0, 3600.0)) == 60


def storm(budget: RetryBudget | None, minutes: int = 10, rate: int = 50) -> tuple[int, int]:
    """First attempts and retries of a kind whose jobs all fail, with up to 20 retries each."""
    rng, first, retries = random.Random(1), 0, 0
    state, waiting = RetryBudgetState(0.0, BUDGET.minimum, 0.0), 0
    due: list[float] = []
    for second in range(minutes * 60):
        now, failed = float(second), rate
        first += rate
        if budget is not None:
            state = deposited(state, budget, rate, now)
        while due and due[0] <= now:
            heapq.heappop(due)
            retries += 1
            failed += rng.random() < 0.95  # one of twenty has no retries left
        for _ in range(failed + waiting):
            after = state if budget is None else spent(state)
            if after is None:
                break
            state = after
            failed -= 1
            heapq.heappush(due, now + rng.uniform(0.0, 4.0))
        waiting += failed
    return first, retries


def test_the_budget_stops_a_retry_storm() -> None:
    first, retries = storm(None)
    assert retries > 5 * first, "without a budget, the load multiplies"
    first, retries = storm(BUDGET)
    assert retries <= 0.2 * first + 60 * 11
