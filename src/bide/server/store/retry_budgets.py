"""The records of retry budgets inside a transaction. `core.jobs.retry_budget` decides."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from bide.core.jobs.retry import RETRIES
from bide.core.jobs.retry_budget import RetryBudget, RetryBudgetState, deposited, spent
from bide.core.jobs.state_machine import FailedForNow, RetryClaim
from bide.server.store import FirstAttempts, RecordAccess
from bide.server.store.transaction import encode

_read = msgspec.json.Decoder(RetryBudgetState).decode


def write_budget(tx: RecordAccess, kind: str, state: RetryBudgetState) -> None:
    tx.put_text("retry_budgets", kind, encode(state).decode())


def budget_state(
    tx: RecordAccess, kind: str, budget: RetryBudget, first_attempts: int = 0
) -> RetryBudgetState:
    text = tx.text("retry_budgets", kind)
    # JSON has no infinity: without a record, the whole minimum is available.
    known = RetryBudgetState(0.0, budget.minimum, tx.now) if text is None else _read(text)
    return deposited(known, budget, first_attempts, tx.now)


def claim(tx: RecordAccess, change: FailedForNow, wanted: RetryClaim) -> FailedForNow:
    """The change if the budget allows the retry; otherwise one that makes the job wait."""
    state = budget_state(tx, wanted.kind, wanted.budget, wanted.first_attempts)
    after = None if state.waiting else spent(state)
    if after is not None:
        write_budget(tx, wanted.kind, after)
        return change
    write_budget(tx, wanted.kind, replace(state, waiting=True))
    return replace(change, waits_for=f"{RETRIES} {wanted.kind}", due=max(wanted.due, change.retry_at))


def report(tx: RecordAccess, reports: Sequence[FirstAttempts]) -> None:
    for one in reports:
        write_budget(tx, one.kind, budget_state(tx, one.kind, one.budget, one.count))
