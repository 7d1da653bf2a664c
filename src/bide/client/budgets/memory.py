"""Budgets of this process alone: one `Budget` a name, handed to everybody who asks for it."""

from __future__ import annotations

import random

from bide.core.budget import Budget, Limit


class MemoryBudgets:
    def __init__(self, rng: random.Random | None = None) -> None:
        self._rng = rng or random.Random()
        self._budgets: dict[str, Budget] = {}

    def open(self, name: str, limit: Limit | None = None) -> Budget:
        budget = self._budgets.get(name)
        if budget is None:
            budget = self._budgets[name] = Budget(limit, rng=self._rng)
        return budget

    def close(self) -> None:
        self._budgets.clear()
