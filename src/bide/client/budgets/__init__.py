"""Budgets that several processes share.

Rules that every implementation keeps, and that `bide.testing.budgets` checks:
1. All budgets opened under one name draw on one budget. Together they never send more than it allows, in any stretch
   of time.
2. `take` either grants, which counts at once for every process, or returns the time to try again and changes nothing.
3. A refusal, or limits in headers, that one process receives reach the others soon. They obey these from their next
   `take`.
4. If a process dies, only the requests that were granted to it are lost.
5. A name reveals nothing about the credential: see `fingerprint`.

`now` is the machine's monotonic clock, the same in all processes.
"""

from __future__ import annotations

import hashlib
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class StorableBudget(Protocol):
    """A budget that can be stored for the next process; see `Budget.load`."""

    def dump(self, now: float) -> dict[str, Any]: ...


def fingerprint(credential: str, salt: bytes) -> str:
    """Return a name for a credential that does not reveal it, not even to a reader that tries out keys."""
    return hashlib.blake2b(credential.encode(), digest_size=16, key=salt[:64]).hexdigest()
