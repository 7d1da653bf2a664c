"""How long a claim holds: lengths and the times that follow from them.

A worker renews at a third of the lease, so two renewals may be late before it is lost.
"""

from __future__ import annotations

LEASE = 30.0


def renewal_interval(lease: float = LEASE) -> float:
    return lease / 3
