"""The order in which jobs start: fair between tenants, and by priority and age within a tenant.

Deficit round robin: tenants take turns in the order of their names, and each turn adds the tenant's quantum, in jobs, to its
credit. A tenant of the default weight starts one job per turn, and one of weight 5 starts five.

1. Only tenants with claimable jobs take turns, so no capacity is unused while a job waits.
2. A tenant without claimable jobs keeps no credit, so it gains nothing by waiting.
3. A tenant that waits gets its turn before any other tenant gets a second one, no matter how many jobs the others have. This
   holds for claims of the same kinds. A process claims either all kinds of a queue or those that a hint has named.
4. Each process takes turns on its own. If each is fair, all of them together are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Generic, NamedTuple, TypeVar

import msgspec

from bide.core.jobs.record import Job

# A job overtakes jobs of its tenant whose priority is lower by n if they are at most n times this many seconds older.
PRIORITY_STEP = 3600.0
LEAST, MOST = 0.01, 1000.0  # quanta; a smaller or larger weight counts as these
MOST_TURNS = 1000  # states to remember
MUCH = 1000  # jobs that a claim may read, to choose some of them
T = TypeVar("T")
TurnKey = tuple[str, frozenset[str]]  # a queue, and kinds
Turns = dict[TurnKey, "Turn"]
# How many jobs of a tenant may run, and how many of this kind; None: any number.
RunningLimits = Callable[[str, str], tuple[int | None, int | None]]


def start_order(job: Job) -> float:
    """The place of a job among the waiting jobs of its tenant: the smallest starts first. It does not depend on the time, so
    an index can sort by it. A retry keeps its place; a new run of an ended job begins at its end.
    """
    since = job.due if job.run > 1 and job.due is not None else max(job.created_at, job.run_at or 0.0)
    return since - PRIORITY_STEP * job.priority


class Weights(msgspec.Struct, frozen=True):
    """The share of each tenant, relative to the others."""

    default: float = 1.0
    tenants: Mapping[str, float] = {}

    def quantum(self, tenant: str) -> float:
        """How many jobs the tenant starts per turn; less than 1: it starts one in some of its turns."""
        weight = self.tenants.get(tenant)
        return 1.0 if weight is None else min(max(weight / self.default, LEAST), MOST)


class Slice(NamedTuple):
    """The jobs that a claim reads: of up to `tenants` tenants with claimable jobs, in the order of their names, which begins
    after the tenant `after` and ends with it, the first `limit(tenant)` jobs each, by `start_order`.

    `alone`: the previous claim found jobs of the tenant `after` only, so probably this one does.
    """

    after: str
    tenants: int
    each: int
    alone: bool
    weights: Weights
    room: int  # how many jobs the claim wants

    def limit(self, tenant: str) -> int:
        quantum = self.weights.quantum(tenant)
        return self.each if quantum <= 1.0 else min(self.room, math.ceil(self.each * quantum) + 1)

    @property
    def other_limits(self) -> dict[str, int]:
        """The limits of the tenants with a weight of their own."""
        return {tenant: self.limit(tenant) for tenant in self.weights.tenants}


class Turn(msgspec.Struct, frozen=True):
    """Whose turn it is: that of the tenant after `after`. `credits` has what is left of the tenants' last turns. The rest is
    what the last claim has found: how many tenants, and which part of its jobs belonged to one of them.
    """

    after: str = ""
    credits: Mapping[str, float] = {}
    tenants: int = 1
    part: float = 1.0
    alone: bool = False

    def slice(self, room: int, weights: Weights) -> Slice:
        """What a claim of `room` jobs probably needs."""
        if self.alone:
            return Slice(self.after, 2, room, True, weights, room)
        each = max(1, math.ceil(room * self.part))
        # One more than needed, to find out whether there are others.
        tenants = room if self.tenants > room else max(math.ceil(room / each), self.tenants) + 1
        return Slice(self.after, tenants, each, False, weights, room)


def wider(slice_: Slice, found: int, room: int) -> Slice:
    """A slice that contains more, for a claim that has found too few jobs of `found` tenants."""
    if found < slice_.tenants:  # there are no other tenants
        each = room if found * room <= MUCH else 4 * slice_.each
        return slice_._replace(tenants=found + 1, each=each, alone=False)
    return slice_._replace(tenants=max(2 * slice_.tenants, room + 1), each=1, alone=False)


def pick(
    found: Mapping[str, Sequence[T]], turn: Turn, slice_: Slice, room: int, cut: AbstractSet[str]
) -> tuple[list[T], Turn] | None:
    """Choose up to `room` jobs, and the state after it. `found` has the jobs of each tenant in their order; `cut` names the
    tenants that may have more jobs than these. Return None if the choice depends on jobs that are not in `found`.
    """
    if not found:
        return [], turn
    complete = len(found) < slice_.tenants
    if complete and len(found) == 1:
        ((tenant, jobs),) = found.items()
        if tenant in cut and len(jobs) < room:
            return None
        return list(jobs[:room]), Turn(tenant, alone=True)
    picker = _Picker(found, turn, slice_, room, cut, complete)
    return (picker.chosen, picker.turn()) if picker.run() else None


class _Picker(Generic[T]):
    """One `pick` from several tenants."""

    def __init__(
        self,
        found: Mapping[str, Sequence[T]],
        turn: Turn,
        slice_: Slice,
        room: int,
        cut: AbstractSet[str],
        complete: bool,
    ) -> None:
        self.chosen: list[T] = []
        self._found, self._before, self._room, self._cut = found, turn, room, cut
        self._quantum = slice_.weights.quantum
        self._complete = complete
        self._after = turn.after
        self._credits = {t: left for t, left in turn.credits.items() if t in found or not complete}
        self._taken = dict.fromkeys(found, 0)

    def run(self) -> bool:
        """Return whether the choice is certain."""
        ring = sorted(self._found, key=lambda tenant: (tenant <= self._after, tenant))
        while ring:
            for tenant in ring:
                if not self._take_turn(tenant):
                    return False
                if len(self.chosen) == self._room:
                    return True
            exhausted = [t for t in ring if self._taken[t] == len(self._found[t])]
            if not self._complete or not self._cut.isdisjoint(exhausted):
                return False
            ring = [t for t in ring if t not in exhausted]
        return True

    def _take_turn(self, tenant: str) -> bool:
        """Choose the jobs of one turn. Return False if the tenant may have more jobs for it."""
        jobs, at, quantum = self._found[tenant], self._taken[tenant], self._quantum(tenant)
        credit = self._credits.pop(tenant, 0.0) + quantum
        number = min(int(credit), len(jobs) - at, self._room - len(self.chosen))
        self.chosen += jobs[at : at + number]
        self._taken[tenant] = at + number
        credit -= number
        exhausted = at + number == len(jobs)
        if exhausted and tenant not in self._cut:
            credit = 0.0
        if credit >= 1.0:  # the turn continues with the next claim
            self._credits[tenant] = credit - quantum
            return len(self.chosen) == self._room
        self._after = tenant
        if credit:
            self._credits[tenant] = credit
        return True

    def turn(self) -> Turn:
        found, chosen = len(self._found), len(self.chosen)
        part = 1 / found
        if chosen > found:
            part = max(part, max(n / self._quantum(t) for t, n in self._taken.items()) / chosen)
        tenants = found if self._complete else max(found, self._before.tenants)
        return Turn(self._after, self._credits, tenants, min(part, 1.0))


class FairTurns:
    """The turns of one process, by queue and kinds. A claim of other kinds has turns of its own: otherwise a tenant could
    lose its turn for one kind because it had just started a job of another.
    """

    def __init__(self) -> None:
        self.weights = Weights()
        self.running: RunningLimits | None = None
        self._turns: Turns = {}

    def get(self, key: TurnKey) -> Turn:
        return self._turns.get(key, _FIRST)

    def put(self, key: TurnKey, turn: Turn) -> None:
        if len(self._turns) >= MOST_TURNS:
            self._turns.clear()
        self._turns[key] = turn

    def begin(self, earlier: Turns | None) -> Turns:
        """Call it at the begin of a claim, and again if the claim is repeated, with the first result: the turns of the first
        try do not count then.
        """
        if earlier is None:
            return dict(self._turns)
        self._turns = dict(earlier)
        return earlier


_FIRST = Turn()
