"""Turns of tenants: whatever is submitted and claimed, no tenant waits for more than its share of the others' jobs."""

from __future__ import annotations

import math
from collections import Counter

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from bide.core.jobs.fair import FairTurns, Slice, Weights, pick, wider

KEY = ("q", frozenset({"k"}))  # of its turns
TENANTS = ("-", "a", "b", "c", "heavy", "light")
WEIGHTS = Weights(2.0, {"heavy": 7.0, "light": 0.5})


class Queue(RuleBasedStateMachine):
    """A queue whose jobs are numbers; a claim reads it like a store."""

    def __init__(self) -> None:
        super().__init__()
        self.turns = FairTurns()
        self.turns.weights = WEIGHTS
        self.waiting: dict[str, list[int]] = {}
        self.submitted = 0
        # By tenant that waits: how many jobs of each other tenant have started since its own last one.
        self.overtaken: dict[str, Counter[str]] = {}

    @rule(tenant=st.sampled_from(TENANTS), number=st.integers(1, 60))
    def submit(self, tenant: str, number: int) -> None:
        self.submitted += number
        self.waiting.setdefault(tenant, []).extend(range(self.submitted - number, self.submitted))
        self.overtaken.setdefault(tenant, Counter())

    @rule(room=st.integers(1, 40))
    def claim(self, room: int) -> None:
        total = sum(map(len, self.waiting.values()))
        turn = self.turns.get(KEY)
        slice_ = turn.slice(room, WEIGHTS)
        for _ in range(20):
            found = self.read(slice_)
            cut = {tenant for tenant, jobs in found.items() if len(jobs) >= slice_.limit(tenant)}
            picked = pick(found, turn, slice_, room, cut)
            if picked is not None:
                break
            slice_ = wider(slice_, len(found), room)
        assert picked is not None, "more jobs are read until there are enough"
        assert len(picked[0]) == min(room, total), "a worker is idle although a job waits"
        self.turns.put(KEY, picked[1])
        for job in picked[0]:
            self.start(job)

    def read(self, slice_: Slice) -> dict[str, list[int]]:
        ring = sorted(self.waiting, key=lambda tenant: (tenant <= slice_.after, tenant))
        if slice_.alone and ring == [slice_.after]:
            return {slice_.after: self.waiting[slice_.after][: slice_.each]}
        return {
            tenant: self.waiting[tenant][: slice_.limit(tenant)] for tenant in ring[: slice_.tenants]
        }

    def start(self, job: int) -> None:
        (tenant,) = (tenant for tenant, jobs in self.waiting.items() if job in jobs)
        assert self.waiting[tenant].pop(0) == job, "a tenant's jobs start in their order"
        for other, counts in self.overtaken.items():
            counts[tenant] += other != tenant
        if self.waiting[tenant]:
            self.overtaken[tenant] = Counter()
        else:
            del self.waiting[tenant], self.overtaken[tenant]

    @invariant()
    def no_tenant_waits_for_more_than_the_shares_of_the_others(self) -> None:
        for tenant, counts in self.overtaken.items():
            turns = math.ceil(1 / min(1.0, WEIGHTS.quantum(tenant)))
            for other, number in counts.items():
                assert number <= math.ceil((turns + 1) * WEIGHTS.quantum(other)), (tenant, counts)


TestQueue = Queue.TestCase


def drain(weights: Weights, claims: int, room: int) -> Counter[str]:
    """The starts of four tenants that never run out of jobs."""
    queue, started = Queue(), Counter[str]()
    queue.turns.weights = weights
    turn = queue.turns.get(KEY)
    for _ in range(claims):
        slice_ = turn.slice(room, weights)
        while True:
            ring = sorted(TENANTS[1:5], key=lambda tenant: (tenant <= slice_.after, tenant))
            found = {tenant: [tenant] * slice_.limit(tenant) for tenant in ring[: slice_.tenants]}
            picked = pick(found, turn, slice_, room, found.keys())
            if picked is not None:
                break
            slice_ = wider(slice_, len(found), room)
        turn = picked[1]
        started.update(picked[0])
    return started


def test_shares_are_exact_in_the_long_run() -> None:
    for room in (1, 3, 16):
        claims = 960 // room
        equal = drain(Weights(), claims, room)
        assert max(equal.values()) - min(equal.values()) <= 1
        weighted = drain(Weights(2.0, {"heavy": 7.0, "b": 1.0}), claims, room)
        unit = sum(weighted.values()) / (1 + 0.5 + 1 + 3.5)
        for tenant, share in {"a": 1, "b": 0.5, "c": 1, "heavy": 3.5}.items():
            assert abs(weighted[tenant] - share * unit) <= 4, weighted


def test_a_weight_far_from_the_others_is_bounded() -> None:
    weights = Weights(1.0, {"tiny": 1e-9, "huge": 1e9})
    assert (weights.quantum("tiny"), weights.quantum("huge"), weights.quantum("any")) == (
        0.01,
        1000.0,
        1.0,
    )
