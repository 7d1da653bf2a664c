"""Counts what a tenant has used of its limits, in the transaction that stores a job.

1. The use of a tenant is one record, which is locked until the transaction ends. So limits are exact, also for several
   replicas, and a killed process loses no count.
2. A job that waits is counted when it is inserted, and not when it starts: `free` says how many may be inserted until the
   jobs must be counted again. So the number of waiting jobs is never above the limit because of insertions.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from bide.core.pacing.rate_limit import RateState, idle, spend, wait
from bide.server.store import JobLimits, LimitReached, NewJob, RecordAccess, TenantUse
from bide.server.store.transaction import Transaction

_decode = msgspec.json.Decoder(TenantUse).decode


def free_key(policy: str, most: int) -> str:
    """A changed limit has another key, so the jobs are counted again."""
    return f"{policy}={most}"


def read_use(text: str | None) -> TenantUse:
    return TenantUse() if text is None else _decode(text)


def admit(tx: Transaction, new: NewJob) -> TenantUse | LimitReached:
    """Count a new job, or return the limit that refuses it."""
    limits, tenant, now = new.limits, new.job.tenant, tx.now
    assert limits is not None
    use = tx.tenant_use(tenant)
    if not limits.force:
        if (reached := _over_rate(use, limits, now)) is not None:
            return reached
        for policy, most in limits.waiting:
            if use.free.get(free_key(policy, most), 0) < 1:
                return LimitReached("waiting", policy, most, 0.0, use)
    _spend(use, limits, now)
    for policy, most in limits.waiting:
        key = free_key(policy, most)
        use.free[key] = max(0, use.free.get(key, 0) - 1)
    use.inserted += 1
    tx.change_tenant_use(tenant)
    return use


def admit_later(records: RecordAccess, tenant: str, limits: JobLimits) -> TenantUse | LimitReached:
    """Count the submission of an upload that will become a job, or return the limit that refuses it."""
    assert isinstance(records, Transaction)
    use = records.tenant_use(tenant)
    if (reached := _over_rate(use, limits, records.now)) is not None:
        return reached
    _spend(use, limits, records.now)
    records.change_tenant_use(tenant)
    return use


def take_place(tx: Transaction, tenant: str, waiting: Sequence[tuple[str, int]]) -> LimitReached | None:
    """Count a job that waits again, because a caller retries it; or return the limit that refuses it."""
    use = tx.tenant_use(tenant)
    keys = [(policy, most, free_key(policy, most)) for policy, most in waiting]
    for policy, most, key in keys:
        if use.free.get(key, 0) < 1:
            return LimitReached("waiting", policy, most, 0.0, use)
    for _, _, key in keys:
        use.free[key] -= 1
    use.inserted += 1
    tx.change_tenant_use(tenant)
    return None


def _over_rate(use: TenantUse, limits: JobLimits, now: float) -> LimitReached | None:
    for policy, limit in limits.rates:
        state = use.rates.get(policy)
        if state is not None and (seconds := wait(limit, state, now)) > 0:
            return LimitReached("submit", policy, limit.requests, seconds, use)
    return None


def _spend(use: TenantUse, limits: JobLimits, now: float) -> None:
    for policy, limit in limits.rates:
        state = use.rates.get(policy)
        if state is None or idle(limit, state, now):
            state = use.rates[policy] = RateState()
        spend(limit, state, now)


def set_free(
    records: RecordAccess, tenant: str, policy: str, most: int, waiting: int, inserted: int
) -> TenantUse:
    """Record that `waiting` jobs waited, counted after `inserted` jobs had been inserted."""
    assert isinstance(records, Transaction)
    use = records.tenant_use(tenant)
    # Jobs that were inserted since then may not be in that count.
    free = max(0, most - waiting - (use.inserted - inserted))
    use.free = {k: n for k, n in use.free.items() if k.rpartition("=")[0] != policy}
    use.free[free_key(policy, most)] = free
    records.change_tenant_use(tenant)
    return use
