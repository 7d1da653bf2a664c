"""The conformance suite of shared budgets. Say how to open them:

    class TestMyBudgets(BudgetsSuite):
        def budgets(self, place: Path) -> BudgetOpener:
            return MyBudgets(place)

The suite calls `budgets` several times with one place; each result stands for one process that shares. Needs pytest.
"""

from __future__ import annotations

import bisect
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from bide.core.pacing.budget import Limit, RequestBudget

WALL = 1_900_000_000.0
CALLERS = 3


class BudgetOpener(Protocol):
    def open(self, name: str, limit: Limit | None = None) -> RequestBudget:
        """Return access to the budget of this name. All processes name the same limit."""
        ...

    def close(self) -> None: ...


class BudgetsSuite:
    """Every rule of `bide.client.budgets` that can be observed from outside."""

    def budgets(self, place: Path) -> BudgetOpener:
        """Return what one process opens its budgets with; those of the same place share."""
        raise NotImplementedError

    @pytest.fixture
    def callers(self, tmp_path: Path) -> Iterator[list[BudgetOpener]]:
        made = [self.budgets(tmp_path) for _ in range(CALLERS)]
        yield made
        for one in made:
            one.close()

    @pytest.mark.parametrize("limit", [Limit(60, 60.0), Limit(60, 60.0, 10), Limit(1000, 1.0, 50)])
    def test_together_they_never_send_more_than_the_limit(
        self, callers: list[BudgetOpener], limit: Limit
    ) -> None:
        budgets = [caller.open("one", limit) for caller in callers]
        sent = self.spend_greedily(budgets, limit.per * 4 / limit.requests, 400)
        for span in (limit.per / 20, limit.per / 3, limit.per):
            for i, start in enumerate(sent):
                inside = bisect.bisect_left(sent, start + span) - i
                if limit.burst is not None:
                    assert inside <= limit.burst + limit.requests / limit.per * span + 1e-6
                elif span <= limit.per:
                    assert inside <= limit.requests
        assert len(sent) > 100

    @staticmethod
    def spend_greedily(budgets: list[RequestBudget], longest: float, tries: int) -> list[float]:
        rng, now, sent = random.Random(3), 100.0, []
        for _ in range(tries):
            now += rng.uniform(0, longest)
            for budget in rng.sample(budgets, len(budgets)):
                while budget.take(now) <= now:
                    sent.append(now)
                    budget.record_response(now, 200, {}, WALL)
        return sent

    def test_a_take_that_is_not_granted_tells_when_and_changes_nothing(
        self, callers: list[BudgetOpener]
    ) -> None:
        first, second, _ = (caller.open("one", Limit(60, 60.0)) for caller in callers)
        assert first.take(100.0) <= 100.0
        at = second.take(100.0)
        assert 100.9 < at < 101.1
        assert second.ready(100.0) == first.ready(100.0) == at
        assert second.take(at) <= at

    def test_a_refusal_that_one_hears_pauses_all(self, callers: list[BudgetOpener]) -> None:
        budgets = [caller.open("one", Limit(1000, 1.0, 100)) for caller in callers]
        assert budgets[0].take(100.0) <= 100.0
        budgets[0].record_response(100.1, 429, {"Retry-After": "30"}, WALL)
        for budget in budgets:
            assert 130.1 <= budget.take(100.2) <= 132.0

    def test_what_headers_tell_one_all_obey(self, callers: list[BudgetOpener]) -> None:
        budgets = [caller.open("one") for caller in callers]
        headers = {"RateLimit": '"a";r=3;t=50', "RateLimit-Policy": '"a";q=60;w=60'}
        assert budgets[0].take(100.0) <= 100.0
        budgets[0].record_response(100.1, 200, headers, WALL)
        sent, now = 0, 100.1
        while now < 149.0:
            now += 0.5
            sent += sum(budget.take(now) <= now for budget in budgets)
        assert sent == 3
        rates = {budget.rate(now) for budget in budgets}
        assert len(rates) == 1
        assert None not in rates

    def test_names_do_not_share(self, callers: list[BudgetOpener]) -> None:
        one, other = callers[0].open("one", Limit(1, 60.0)), callers[0].open("other", Limit(1, 60.0))
        assert one.take(100.0) <= 100.0
        assert other.take(100.0) <= 100.0
        assert one.take(100.0) > 100.0

    def test_the_same_name_is_the_same_budget(self, callers: list[BudgetOpener]) -> None:
        assert callers[0].open("one") is callers[0].open("one")

    def test_nothing_limits_what_is_known_to_have_no_limit(self, callers: list[BudgetOpener]) -> None:
        budgets = [caller.open("one", Limit(float("inf"))) for caller in callers]
        for i in range(1000):
            assert budgets[i % CALLERS].take(100.0 + i / 1e4) <= 100.0 + i / 1e4
        assert budgets[0].rate(101.0) is None

    @pytest.mark.parametrize("began", [-5000.0, 0.0])
    def test_the_moment_zero_of_the_clock_means_nothing(
        self, callers: list[BudgetOpener], began: float
    ) -> None:
        """The monotonic clock of a machine that has just booted is near zero."""
        documented, refused, advertised, sought = (
            callers[0].open(name, limit)
            for name, limit in [
                ("documented", Limit(60, 60.0)),
                ("refused", Limit(1000, 1.0, 100)),
                ("advertised", None),
                ("sought", None),
            ]
        )
        assert documented.take(began) <= began
        assert began + 0.9 < documented.take(began) < began + 1.1
        assert refused.take(began) <= began
        refused.record_response(began, 429, {"Retry-After": "30"}, WALL)
        assert began + 30.0 <= refused.take(began) <= began + 32.0
        assert advertised.take(began) <= began
        headers = {"RateLimit": '"a";r=30;t=30', "RateLimit-Policy": '"a";q=60;w=60'}
        advertised.record_response(began, 200, headers, WALL)
        assert advertised.take(began + 1.0) <= began + 3.0
        now = began
        for _ in range(20):
            if sought.take(now) <= now:
                sought.record_response(now, 200, {}, WALL)
            now += 1.0
        assert sought.take(now) <= now
