"""The Budgets port: who shares a credential's budget.

Rules that every implementation keeps, and that `bide.testing.budgets` checks:
1. All purses of one name draw on one budget: together they never send more than it allows, in any stretch of time.
2. `take` either grants, which counts at once for all of them, or tells the moment to try again and changes nothing.
3. What one of them hears is soon obeyed by all; a refusal, and what headers tell, with their next `take`.
4. A process that dies at any moment takes nothing with it but what it had been granted.
5. A name says nothing about the credential: see `fingerprint`.

`now` is the machine's monotonic clock, the same in all processes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from bide.core.budget import Limit


class Purse(Protocol):
    """One caller's access to a budget; the same words as `core.budget.Budget`, which is one."""

    def ready(self, now: float, cost: float = 1.0) -> float:
        """The moment from which it is worth trying; cheap, and changes nothing."""
        ...

    def take(self, now: float, cost: float = 1.0) -> float:
        """Not after `now`: granted, and spent. Otherwise the moment to try again."""
        ...

    def heard(self, now: float, status: int, headers: Mapping[str, str], wall: float) -> None:
        """One answer; status 0 for none."""
        ...

    def rate(self, now: float) -> float | None:
        """Requests a second that all of them together can sustain; None when nothing limits them."""
        ...


@runtime_checkable
class Remembers(Protocol):
    """A purse whose budget can be kept for the next process; see `Budget.load`."""

    def dump(self, now: float) -> dict[str, Any]: ...


class Budgets(Protocol):
    def open(self, name: str, limit: Limit | None = None) -> Purse:
        """A purse on the budget of this name, which is made when it is new. All must name the same limit."""
        ...

    def close(self) -> None: ...


def fingerprint(credential: str, salt: bytes) -> str:
    """A name for a credential from which nobody can tell it: not from a file, not by trying."""
    return hashlib.blake2b(credential.encode(), digest_size=16, key=salt[:64]).hexdigest()
