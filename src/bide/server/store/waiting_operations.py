"""The operations that start waiting jobs, inside a transaction: those that wait for a breaker, or for the retry budget of
their kind.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from bide.core.jobs.breaker import next_batch
from bide.core.jobs.record import Job
from bide.core.jobs.retry_budget import RetryBudget, spent
from bide.core.jobs.state_machine import Released
from bide.server.store import operations
from bide.server.store.breaker_operations import prober_lives, read_state, write_state
from bide.server.store.retry_budgets import budget_state, write_budget
from bide.server.store.transaction import Transaction

SPREAD = 0.5  # seconds over which retries start that are released together


def release_breaker(tx: Transaction, name: str, waiting: Mapping[str, str]) -> int:
    state = read_state(tx.text("breakers", name))
    room, after = next_batch(state, prober_lives=prober_lives(tx, state), now=tx.now)
    removed = released = 0
    for record, fence in waiting.items():
        if released >= room:
            break
        tx.put_text("waiting_jobs", record, None)
        removed += 1
        job_id = record.rpartition(" ")[2]
        # Spread over the time until the next batch.
        due = tx.now + (released / room * (after.next_release - tx.now) if room > 1 else 0.0)
        if isinstance(operations.apply(tx, Released(job_id=job_id, fence=int(fence), due=due)), Job):
            released += 1  # otherwise it was cancelled, or another replica has released it
    if released:
        write_state(tx, name, state, after)
    return removed


def release_retries(
    tx: Transaction,
    kind: str,
    budget: RetryBudget | None,
    waiting: Mapping[str, str],
    last: bool,
) -> int:
    state = budget_state(tx, kind, budget or RetryBudget())
    removed = released = 0
    for record, fence in waiting.items():
        after = state if budget is None else spent(state)
        if after is None:
            break
        removed += 1
        tx.put_text("waiting_jobs", record, None)
        job_id = record.rpartition(" ")[2]
        job = tx.job(job_id)
        # Not before the end of its own backoff.
        backoff = 0.0 if job is None else job.next_attempt_at or 0.0
        due = max(backoff, tx.now + SPREAD * released / len(waiting))
        if isinstance(operations.apply(tx, Released(job_id=job_id, fence=int(fence), due=due)), Job):
            released += 1
            state = after
    write_budget(tx, kind, replace(state, waiting=not last or removed < len(waiting)))
    return removed
