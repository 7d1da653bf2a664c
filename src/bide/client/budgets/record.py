"""What machines that share a budget keep of it, and how it is read after a place or a clock has failed them.

1. Times are the server's. A clock that was set back shifts all of them; what was granted stays granted.
2. A record has a life: another one when its place had lost it. Whoever knew it before takes its burst for spent, so
   that nothing which was sent in the last life is sent again.
3. A little of a documented limit is kept apart, in seats: who holds one may send one request a window on its own while
   the place is away, and nobody else counts on it. A holder that is gone loses its seat after SEAT seconds.
"""

from __future__ import annotations

import random
from typing import Any

import msgspec

from bide.core.budget import Budget, Limit, State
from bide.core.clock import LONG_AGO
from bide.core.meter import SLACK

SEAT = 1800.0
APART = 50  # one seat for so many requests of the limit
FEWEST = 20  # requests of a limit that can spare one


class Seat(msgspec.Struct, array_like=True):
    holder: str = ""
    until: float = LONG_AGO


class Record(msgspec.Struct, array_like=True):
    life: str
    at: float  # when it was written
    limit: tuple[float, float, float | None] | None
    state: State
    seats: list[Seat]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Record).decode


def encode(record: Record) -> bytes:
    return _encode(record)


def decode(data: bytes) -> Record:
    return _decode(data)


def named(limit: Limit | None) -> tuple[float, float, float | None] | None:
    return None if limit is None else (limit.requests, limit.per, limit.burst)


def seats_of(limit: Limit | None) -> int:
    if limit is None or not FEWEST <= limit.requests < 1e9:
        return 0
    most = int(limit.requests) // APART or 1
    return most if limit.burst is None else min(most, int(limit.burst) - 1)


def rest_of(limit: Limit | None) -> Limit | None:
    """What is left for all together."""
    apart = seats_of(limit)
    if limit is None or not apart:
        return limit
    burst = None if limit.burst is None else limit.burst - apart
    return Limit(limit.requests - apart, limit.per, burst)


def window(limit: Limit) -> float:
    """Seconds between two requests on one seat."""
    return limit.per + min(SLACK, limit.per / 50)


def fresh(life: str, limit: Limit | None) -> Record:
    return Record(life, LONG_AGO, named(limit), State(), [Seat() for _ in range(seats_of(limit))])


def turned_back(record: Record, limit: Limit | None, now: float, rng: random.Random) -> Record:
    """The server's clock says an earlier time than when it was written: all of it moves along."""
    by = now - record.at
    data: dict[str, Any] = {"at": record.at, "state": msgspec.to_builtins(record.state)}
    state = Budget.load(data, limit, now=now, ago=0.0, rng=rng).state
    seats = [Seat(seat.holder, seat.until + by) for seat in record.seats]
    return Record(record.life, now, record.limit, state, seats)


def revived(ours: Record, theirs: Record | None, limit: Limit | None, now: float) -> Record:
    """A record that its place had lost, from what this process knew of it; `theirs` was begun by another since then."""
    state = ours.state
    if theirs is not None:
        state.pause = max(state.pause, theirs.state.pause)
        state.pace = max(state.pace, theirs.state.pace)
        state.met = state.met or theirs.state.met
    if limit is not None and limit.requests < 1e9:
        state.pace = max(state.pace, now + max(1.0, limit.depth) * limit.gap)
        state.next = max(state.next, state.pause, now + limit.gap)
    state.sent = []
    life = ours.life if theirs is None else theirs.life
    seats = ours.seats if theirs is None else theirs.seats
    for seat in seats:  # somebody may hold it of whom this process has not heard
        seat.until = now + SEAT
    return Record(life, now, ours.limit, state, seats)


def seated(record: Record, holder: str, limit: Limit | None, now: float) -> float | None:
    """Takes or keeps a seat; until when it is this one's, None when all are taken."""
    free = None
    for seat in record.seats:
        if seat.holder == holder:
            seat.until = now + SEAT
            return seat.until
        if free is None and limit is not None and seat.until + 2 * window(limit) < now:
            free = seat
    if free is None:
        return None
    free.holder, free.until = holder, now + SEAT
    return free.until


def unseated(record: Record, holder: str, now: float) -> None:
    for seat in record.seats:
        if seat.holder == holder:
            seat.holder, seat.until = "", now
