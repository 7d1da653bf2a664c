"""How long a claim holds: lengths and the times that follow from them.

A worker renews at a third of the lease, so two renewals may be late before it is lost.
"""

from __future__ import annotations

LEASE = 30.0


def until(now: float, lease: float = LEASE) -> float:
    return now + lease


def renewal_interval(lease: float = LEASE) -> float:
    return lease / 3


def expired(lease_until: float | None, now: float) -> bool:
    return lease_until is not None and lease_until <= now
