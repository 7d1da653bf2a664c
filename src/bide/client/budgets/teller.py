"""The exchange with the place: reads the record, lets the budget decide, writes it back, and begins again when another was
faster. It runs in a thread of its own and hands what came of it to the purse.

1. A grant is a moment: its request is sent then or within `moment` seconds, or never. That is less than the jitter which
   the pace of a documented limit allows for, so that the sum is exact in any stretch of time.
2. Who comes a little late is granted the moment that it was to come at, so that trips to the place cost no rate. Where
   moments are close together, or the place is far away, they are granted ahead: so those who share do not all come at
   the same moment, of whom one goes away with a grant.
3. Nothing is given back: a grant that was not used is lost.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from bide.client.budgets import record as records
from bide.client.budgets.place import NOTHING, Away, Place, Reply
from bide.client.budgets.record import Record
from bide.client.budgets.remote_clock import RemoteClock
from bide.core.budget import Budget, Limit
from bide.core.meter import SLACK

TRIES = 20
MOMENT, LONGEST_MOMENT = 0.02, 0.25
AHEAD = 0.1  # seconds from now in which a moment is granted where there are several in them
STEPPED = 1.0  # seconds by which a clock must have gone back to be taken for set
Heard = tuple[float, int, Mapping[str, str], float]


@dataclass
class Ask:
    """What a purse wants, in this machine's time."""

    now: float
    count: int = 0
    cost: float = 1.0
    heard: list[Heard] = field(default_factory=list)
    sent: list[float] = field(default_factory=list)  # moments of the server: what the answers are to
    lost: list[float] = field(
        default_factory=list
    )  # grants that were never sent, so that no answer is to come
    leaves: bool = False


@dataclass
class Told:
    """What came of it, in this machine's time but for `grants`."""

    budget: Budget
    grants: list[float]  # moments of the server
    next: float
    seat: float | None


def moment_of(limit: Limit | None) -> float:
    if limit is None or limit.requests >= 1e9:
        return MOMENT
    return min(LONGEST_MOMENT, SLACK / 2, limit.per / 100)


class Teller:
    """Of one budget."""

    def __init__(
        self,
        place: Place,
        name: str,
        limit: Limit | None,
        clock: RemoteClock,
        now: Callable[[], float],
        rng: random.Random,
    ) -> None:
        self._place = place
        self._name = name
        self._whole = limit
        self._limit = records.rest_of(limit)
        self._clock = clock
        self._now = now
        self._rng = rng
        self._me = secrets.token_hex(6)
        self._count = 0
        self._version: str | None = None  # None: to be read
        self._record: bytes | None = None  # the last that was true
        self.moment = moment_of(limit)
        self.on_lost: Callable[[], None] = lambda: None

    def look(self) -> Record | None:
        """What is there, for the first time."""
        self._read()
        return None if self._record is None else records.decode(self._record)

    def run(self, ask: Ask) -> Told:
        """Away when the place is; what was asked has not come about then, as far as is known."""
        for _ in range(TRIES):
            if self._version is None:
                self._read()
            assert self._version is not None
            now = self._clock.there(ask.now)
            record = self._current(now)
            budget = Budget(self._limit, rng=self._rng)
            budget.state = record.state
            budget.state.sent = [at for at in budget.state.sent if at not in ask.lost]
            answer(budget, ask.sent, [(self._clock.there(h[0]), *h[1:]) for h in ask.heard])
            grants = self._draw(budget, ask, now)
            if ask.leaves:
                records.unseated(record, self._me, now)
                seat = None
            else:
                seat = records.seated(record, self._me, self._whole, now)
            record.at = max(record.at, now)
            if self._swap(records.encode(record)):
                here = self._clock.here
                return Told(
                    budget, grants, here(budget.state.next), None if seat is None else here(seat)
                )
        raise Away("too many change the budget at the same time")

    def _draw(self, budget: Budget, ask: Ask, now: float) -> list[float]:
        trip = self._clock.trip
        lead = 1.5 * trip if trip > self.moment / 4 else 0.0
        earliest = now + lead
        rate = budget.rate(now)
        most = (
            ask.count if rate is None else min(ask.count, max(1, int(rate * (self.moment + 2 * lead))))
        )
        ahead = AHEAD if rate is not None and rate * AHEAD >= 1.0 else 0.0
        grants: list[float] = []
        while len(grants) < most:
            at = budget.ready(now, ask.cost)
            if at > earliest + max(lead, ahead):
                break
            if at < earliest - self.moment / 2:
                at = earliest
            budget.spend(at, ask.cost)
            grants.append(at)
        return grants

    # --- the record

    def _current(self, now: float) -> Record:
        if self._record is None:
            return records.fresh(self._token(), self._whole)
        record = records.decode(self._record)
        if record.at > now + STEPPED:
            record = records.turned_back(record, self._limit, now, self._rng)
        return record

    def _read(self) -> None:
        sent = self._now()
        reply = self._place.read(self._name)
        self._clock.measured(sent, reply.now, self._now())
        self._found(reply)

    def _swap(self, data: bytes) -> bool:
        assert self._version is not None
        version, sent, known = self._token(), self._now(), self._version
        self._version = None  # unless an answer comes
        reply = self._place.swap(self._name, known, version, data)
        self._clock.measured(sent, reply.now, self._now())
        if reply.swapped:
            self._version, self._record = version, data
        else:
            self._found(reply)
        return reply.swapped

    def _found(self, reply: Reply) -> None:
        self._version = reply.version
        ours = None if self._record is None else records.decode(self._record)
        if reply.version == NOTHING:
            if ours is not None:
                self.on_lost()
                self._record = records.encode(records.revived(ours, None, self._limit, reply.now))
            return
        theirs = records.decode(reply.data)
        if ours is not None and theirs.life != ours.life:
            theirs = records.revived(ours, theirs, self._limit, reply.now)
            self._record = records.encode(theirs)
        else:
            self._record = reply.data

    def _token(self) -> str:
        self._count += 1
        return f"{self._me}{self._count}"


def answer(budget: Budget, ours: list[float], heard: list[Heard]) -> None:
    """A budget takes each answer for that to the first that is under way, but what a dead process had under way is never
    answered: so ours is made the first."""
    sent, mine = budget.state.sent, iter(ours)
    for each in heard:
        at = next(mine, None)
        if at is not None:
            if at in sent:
                sent.remove(at)
            sent.insert(0, at)
        budget.heard(*each)
