"""The record of a budget that machines share, and how it changes after a backend or a clock has failed.

1. Times are the server's. If its clock is set back, all times in the record move with it; granted requests stay spent.
2. A record has a generation, which changes when the backend has lost the record. A process that knew the record before
   counts its burst as spent, so that no request of the last generation is granted twice.
3. A small part of a documented limit is reserved. The holder of a reservation may send one request per window on its
   own while the backend is unavailable; the shared part does not include it. A reservation expires HELD seconds after
   the last contact of its holder.
"""

from __future__ import annotations

import random
from typing import Any

import msgspec

from bide.core.clock import LONG_AGO
from bide.core.pacing.budget import Budget, BudgetState, Limit
from bide.core.pacing.meter import SLACK

HELD = 1800.0
# The requests of the limit per reservation, and the smallest limit that has a reservation.
REQUESTS_PER_RESERVATION, SMALLEST_LIMIT = 50, 20


class Reservation(msgspec.Struct, array_like=True):
    holder: str = ""
    until: float = LONG_AGO


class BudgetRecord(msgspec.Struct, array_like=True):
    generation: str
    written_at: float
    limit: tuple[float, float, float | None] | None
    state: BudgetState
    reservations: list[Reservation]

    @classmethod
    def new(cls, generation: str, limit: Limit | None) -> BudgetRecord:
        reservations = [Reservation() for _ in range(reservations_of(limit))]
        return cls(generation, LONG_AGO, limit_fields(limit), BudgetState(), reservations)

    @classmethod
    def decode(cls, data: bytes) -> BudgetRecord:
        return _decode(data)

    def encode(self) -> bytes:
        return _encode(self)

    def moved_back(self, limit: Limit | None, now: float, rng: random.Random) -> BudgetRecord:
        """Return the record with its times moved to `now`, because the server's clock was set back."""
        by = now - self.written_at
        data: dict[str, Any] = {"at": self.written_at, "state": msgspec.to_builtins(self.state)}
        state = Budget.load(data, limit, now=now, ago=0.0, rng=rng).state
        reservations = [Reservation(each.holder, each.until + by) for each in self.reservations]
        return BudgetRecord(self.generation, now, self.limit, state, reservations)

    def restored(self, newer: BudgetRecord | None, limit: Limit | None, now: float) -> BudgetRecord:
        """Return the record again after the backend lost it; `newer` is a record that another process has written since."""
        state = self.state
        if newer is not None:
            state.pause = max(state.pause, newer.state.pause)
            state.pace = max(state.pace, newer.state.pace)
            state.met = state.met or newer.state.met
        if limit is not None and not limit.unlimited:
            state.pace = max(state.pace, now + max(1.0, limit.depth) * limit.gap)
            state.next = max(state.next, state.pause, now + limit.gap)
        state.sent = []
        generation = self.generation if newer is None else newer.generation
        reservations = self.reservations if newer is None else newer.reservations
        for each in reservations:  # a process that this one does not know of may hold it
            each.until = now + HELD
        return BudgetRecord(generation, now, self.limit, state, reservations)

    def reserve(self, holder: str, limit: Limit | None, now: float) -> float | None:
        """Take or renew a reservation. Return when it expires, None if all are taken."""
        free = None
        for each in self.reservations:
            if each.holder == holder:
                each.until = now + HELD
                return each.until
            if free is None and limit is not None and each.until + 2 * reserved_interval(limit) < now:
                free = each
        if free is None:
            return None
        free.holder, free.until = holder, now + HELD
        return free.until

    def release(self, holder: str, now: float) -> None:
        for each in self.reservations:
            if each.holder == holder:
                each.holder, each.until = "", now


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(BudgetRecord).decode


def limit_fields(limit: Limit | None) -> tuple[float, float, float | None] | None:
    return None if limit is None else (limit.requests, limit.per, limit.burst)


def reservations_of(limit: Limit | None) -> int:
    if limit is None or limit.unlimited or limit.requests < SMALLEST_LIMIT:
        return 0
    most = int(limit.requests) // REQUESTS_PER_RESERVATION or 1
    return most if limit.burst is None else min(most, int(limit.burst) - 1)


def shared_part(limit: Limit | None) -> Limit | None:
    """Return the limit without the reserved requests."""
    reserved = reservations_of(limit)
    if limit is None or not reserved:
        return limit
    burst = None if limit.burst is None else limit.burst - reserved
    return Limit(limit.requests - reserved, limit.per, burst)


def reserved_interval(limit: Limit) -> float:
    """Return the seconds between two requests on one reservation."""
    return limit.per + min(SLACK, limit.per / 50)
