"""Concurrency keys: whatever happens to jobs, no key has more running jobs than allowed, and none waits without a reason."""

from __future__ import annotations

from collections import Counter

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from bide.core.jobs.fair import FairTurns
from bide.core.jobs.record import Job
from bide.core.jobs.state_machine import Change, HandedBack, Lost, Succeeded, cancel
from bide.server.store import ClaimRequest, NewJob, operations
from tests.memory_store import MemoryTransaction, Tables

KEYS = ("work a 1", "work a 2", "work b 1", "whole", None)
LIMITS = {"work": 2, "whole": 3}


class Limited(RuleBasedStateMachine):
    """A store in memory, whose operations run one after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = Tables()
        self.turns = FairTurns()
        self.number = 0

    def transaction(self) -> MemoryTransaction:
        self.number += 1
        return MemoryTransaction(self.tables, float(self.number))

    def jobs(self, *, held: bool) -> list[Job]:
        live = [job for job in self.tables.jobs.values() if not job.status.terminal]
        return [job for job in live if job.held is held]

    @rule(key=st.sampled_from(KEYS), tenant=st.sampled_from("ab"), number=st.integers(1, 6))
    def submit(self, key: str | None, tenant: str, number: int) -> None:
        tx = self.transaction()
        for _ in range(number):
            self.number += 1
            kind = "work" if key is None else key.split()[0]
            owner = key.split()[1] if key is not None and " " in key else tenant
            job = Job(
                f"{self.number:06}", kind, "q", tx.now, tx.now, owner, due=tx.now, concurrency_key=key
            )
            operations.insert(tx, NewJob(job, b"{}"))
        tx.flush()

    @rule(room=st.integers(1, 12), settled=st.booleans())
    def claim(self, room: int, settled: bool) -> None:
        tx = self.transaction()
        if settled and (held := self.jobs(held=True)):
            # In the same transaction, as workers do.
            job = held[0]
            operations.apply(tx, Succeeded(job_id=job.id, owner="w", fence=job.fence))
        request = ClaimRequest("q", ("work", "whole"), room, concurrency=LIMITS)
        claims = operations.claims(tx, "w", [request], room, 30.0, self.turns)
        tx.flush()
        if len(claims) < room:
            self.nothing_waits_without_a_reason()

    def nothing_waits_without_a_reason(self) -> None:
        running = Counter(job.concurrency_key for job in self.jobs(held=True))
        for job in self.jobs(held=False):
            assert job.concurrency_key is not None, "a job without a limit waits"
            assert running[job.concurrency_key] >= LIMITS[job.kind], job

    @precondition(lambda self: self.jobs(held=True))
    @rule(data=st.data(), how=st.sampled_from((Succeeded, HandedBack, Lost)))
    def release(self, data: st.DataObject, how: type[Change]) -> None:
        job = data.draw(st.sampled_from(self.jobs(held=True)))
        tx = self.transaction()
        operations.apply(tx, how(job_id=job.id, owner="w", fence=job.fence))
        tx.flush()

    @precondition(lambda self: self.jobs(held=False))
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        job = data.draw(st.sampled_from(self.jobs(held=False)))
        tx = self.transaction()
        operations.apply(tx, cancel(job))
        tx.flush()

    @invariant()
    def no_key_has_more_jobs_than_allowed(self) -> None:
        for key, number in Counter(job.concurrency_key for job in self.jobs(held=True)).items():
            assert key is None or number <= LIMITS[key.split()[0]]


TestLimited = Limited.TestCase
