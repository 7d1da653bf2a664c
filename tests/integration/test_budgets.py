"""Shared budgets: the suite."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from bide.client.budgets import Budgets, fingerprint
from bide.client.budgets.memory import MemoryBudgets
from bide.testing.budgets import BudgetsSuite


class TestMemoryBudgets(BudgetsSuite):
    """In one process those who share have one and the same."""

    @pytest.fixture(autouse=True)
    def shared(self) -> None:
        self.one = MemoryBudgets(random.Random(1))

    def budgets(self, place: Path) -> Budgets:
        return self.one


def test_a_fingerprint_tells_nothing_of_the_credential() -> None:
    one = fingerprint("secret", b"salt")
    assert "secret" not in one
    assert one == fingerprint("secret", b"salt") != fingerprint("secret", b"other")
