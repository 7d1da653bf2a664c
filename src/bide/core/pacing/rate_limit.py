"""Enforces a limit of submissions per time: whether one more fits, and when it will.

`N/W` counts in a sliding window: in any time W, at most N are accepted. `N/W:B` is a bucket of B that N per W fill: in any
time T, at most B + N × T / W are accepted.

1. `spend` changes the state, the other functions do not. `wait` is exact: after that many seconds one more fits, if nothing
   else is accepted meanwhile.
2. The state has at most SLOTS + 2 entries. Submissions within W / SLOTS share an entry, which leaves the window with the
   last of them. So a steady flow gets up to 1 / SLOTS less than the limit, and never more.
3. A clock that goes back does not free anything.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from bide.core.pacing.budget import Limit

SLOTS = 64
ROUNDING = 1e-9  # of a bucket


class RateSlot(msgspec.Struct, array_like=True):
    """Submissions that leave the window together."""

    first: float
    last: float
    count: float


class RateState(msgspec.Struct, array_like=True):
    """What has been accepted: the entries of a window, or the spent part of a bucket at `at`."""

    slots: list[RateSlot] = []
    spent: float = 0.0
    at: float = 0.0
    total: float = 0.0  # submissions in all slots; less than their number if an earlier release has stored the state


class RateReport(msgspec.Struct, frozen=True):
    """One limit as the headers RateLimit and RateLimit-Policy report it."""

    policy: str
    limit: Limit
    remaining: int
    reset: float  # seconds until more is left; until all is left, if nothing is spent


def remaining(limit: Limit, state: RateState, now: float) -> int:
    """How many submissions are accepted now."""
    if limit.burst is not None:
        return max(0, math.floor(limit.burst - _spent(limit, state, now) + ROUNDING))
    return max(0, math.floor(limit.requests - _used(limit, state, now)))


def wait(limit: Limit, state: RateState, now: float) -> float:
    """Seconds until one more submission is accepted; 0 if it is accepted now."""
    if limit.burst is not None:
        excess = _spent(limit, state, now) + 1.0 - max(limit.burst, 1.0)
        return 0.0 if excess <= ROUNDING else excess * limit.per / limit.requests
    used = _used(limit, state, now)
    if used + 1 <= limit.requests:
        return 0.0
    for slot in state.slots:
        if slot.last > now - limit.per:
            used -= slot.count
            if used + 1 <= limit.requests:
                return slot.last + limit.per - now
    return 0.0


def reset(limit: Limit, state: RateState, now: float) -> float:
    """Seconds until more is left than now. If nothing is spent, the length of the window."""
    if limit.burst is not None:
        spent = _spent(limit, state, now)
        part = spent % 1.0 or 1.0
        return limit.per if spent <= ROUNDING else part * limit.per / limit.requests
    live = (slot for slot in state.slots if slot.last > now - limit.per)
    first = next(live, None)
    return limit.per if first is None else first.last + limit.per - now


def report(policy: str, limit: Limit, state: RateState, now: float) -> RateReport:
    left = remaining(limit, state, now)
    return RateReport(policy, limit, left, reset(limit, state, now) if left else wait(limit, state, now))


def spend(limit: Limit, state: RateState, now: float) -> None:
    """Count one accepted submission."""
    if limit.burst is not None:
        state.spent, state.at = _spent(limit, state, now) + 1.0, max(now, state.at)
        return
    slots = state.slots
    if slots and slots[0].last <= now - limit.per:
        state.slots = slots = [slot for slot in slots if slot.last > now - limit.per]
        state.total = _total(slots)
    elif state.total < len(slots):
        state.total = _total(slots)
    state.total += 1
    if slots and now - slots[-1].first <= limit.per / SLOTS:
        slots[-1].last = max(slots[-1].last, now)
        slots[-1].count += 1
    else:
        slots.append(RateSlot(now, now, 1))


def idle(limit: Limit, state: RateState, now: float) -> bool:
    """Whether the state equals that of a caller who has sent nothing."""
    if limit.burst is not None:
        return _spent(limit, state, now) <= ROUNDING
    return not state.slots or state.slots[-1].last <= now - limit.per


def _used(limit: Limit, state: RateState, now: float) -> float:
    """Submissions in the window. Slots are in the order of time, so only those before the window are read."""
    slots = state.slots
    used = state.total if state.total >= len(slots) else _total(slots)
    for slot in slots:
        if slot.last > now - limit.per:
            break
        used -= slot.count
    return used


def _total(slots: Sequence[RateSlot]) -> float:
    return sum(slot.count for slot in slots)


def _spent(limit: Limit, state: RateState, now: float) -> float:
    filled = max(0.0, now - state.at) * limit.requests / limit.per
    return max(0.0, state.spent - filled)
