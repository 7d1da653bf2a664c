"""Whatever is asked of them, in whatever order and together: both stores give the same answers and keep the same record.

What is asked in one round shares a transaction in both, which is where a store that puts its writes off could differ. Two
processes take turns on the database, which is where one that remembers could.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bide.core.jobs.record import Child, Job
from bide.core.jobs.state_machine import (
    Begun,
    CancelAsked,
    Cancelled,
    Change,
    Delayed,
    Failed,
    FailedForNow,
    HandedBack,
    Lost,
    Parked,
    Refused,
    Released,
    Rerun,
    Spawned,
    StepKept,
    StepStarted,
    Succeeded,
)
from bide.server.store import Claim, ClaimRequest, Filter, NewJob, Store
from bide.server.store.postgres.server import PostgresServer, prepare
from bide.server.store.postgres.store import PostgresStore
from bide.server.store.sqlite.store import SqliteStore
from bide.testing import ManualClock
from bide.testing.store import StoreHarness
from bide.testing.store.harness import LEASE, OOPS
from tests.integration.test_store_postgres import TABLES
from tests.servers.postgres import Postgres

Call = Callable[[Store], Any]
ONE = msgspec.Raw(b"1")
numbers = st.integers(0, 5)
asked = st.tuples(
    st.sampled_from(
        ["insert"] * 3
        + ["claim"] * 3
        + ["change"] * 6
        + ["spawn", "delete", "purge", "pause", "renew", "log"]
    ),
    st.integers(0, 30),
    numbers,
    numbers,
)
rounds = st.lists(
    st.tuples(st.lists(asked, min_size=1, max_size=5), st.sampled_from([0, 0, 0, 1, 20, 40])),
    min_size=3,
    max_size=12,
)


def change_of(job: Job, which: int, number: int, now: float) -> Change:
    fence = job.fence - (number == 5)  # now and then a stale one
    owner = "another" if number == 4 else job.owner
    mine: dict[str, Any] = {"job_id": job.id, "owner": owner, "fence": fence}
    children = tuple(child.job_id for child in job.children)
    changes: list[Change] = [
        Succeeded(result=ONE, **mine),
        FailedForNow(error=OOPS, retry_at=now + 10 * number, **mine),
        Delayed(error=OOPS, retry_at=now, due=now + 20, waits_for="breaker vendor", **mine),
        Released(job_id=job.id, fence=job.fence, due=now + number),
        Failed(error=OOPS, **mine),
        Lost(**mine),
        HandedBack(**mine),
        StepStarted(name=f"s{number}", **mine),
        StepKept(name=f"s{number}", result=ONE, **mine),
        Parked(waiting_for=children[:number], **mine),
        Begun(started_at=now, **mine),
        CancelAsked(job_id=job.id),
        Cancelled(job_id=job.id),
        Rerun(job_id=job.id),
    ]
    return changes[which % len(changes)]


class Script:
    """Turns what was drawn into calls, which are made of both stores alike."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self._bench = StoreHarness(lambda: SqliteStore(Path("/nowhere"), self.clock), self.clock)
        self.jobs: list[Job] = []  # as they were before this round

    def call(self, what: str, which: int, a: int, b: int) -> Call | None:
        job = self.jobs[which % len(self.jobs)] if self.jobs else None
        match what:
            case "insert":
                new = self._new(a, b)
                return lambda store: store.insert([new])
            case "claim":
                kinds = ("work",) if a % 2 else ("work", "part")
                want = ClaimRequest(["default", "other"][b % 2], kinds, a + 1, begin=b)
                return lambda store: store.claim(
                    "w", [want, ClaimRequest("default", kinds, 2)], a + 2, LEASE
                )
            case "purge":
                return lambda store: store.purge(tombstones=30.0, keys=20.0, limit=a + 1)
            case "pause":
                return lambda store: store.pause("other", bool(a % 2))
        return None if job is None else self._about(what, job, which, a)

    def _about(self, what: str, job: Job, which: int, a: int) -> Call | None:
        match what:
            case "change":
                change = change_of(job, which + 7 * a, a, self.clock.now())
                return lambda store: store.apply([change])
            case "spawn":
                new = self._bench.new(kind="part", parent=job.id, keep=30.0)
                link = Child(new.job.id, "part", str(a))
                spawned = Spawned(job_id=job.id, owner=job.owner, fence=job.fence, child=link)
                return lambda store: store.spawn(spawned, new)
            case "delete":
                return lambda store: store.delete(job.id, job.version if a % 2 else None)
            case "renew":
                return lambda store: store.renew(job.owner or "w", [(job.id, job.fence)], LEASE)
            case _:
                lines = [{"message": str(a)}]
                return lambda store: store.log(job.id, job.owner or "w", job.fence, lines)

    def _new(self, a: int, b: int) -> NewJob:
        return self._bench.new(
            key=str(a) if a < 3 else None,
            fingerprint=bytes([b % 2]),
            queue=["default", "other"][b % 2],
            priority=a - b,
            keep=20.0 if b else None,
            run_at=self.clock.now() + 10 if a == 5 else None,
            deadline=self.clock.now() + 30 if b == 4 else None,
            labels={"a": str(a)} if b == 3 else {},
        )


def plain(answer: Any) -> Any:
    """What can be compared."""
    if isinstance(answer, Refused):
        return type(answer).__name__, answer.reason, answer.job
    if isinstance(answer, Claim):
        steps = {name: bytes(raw) for name, raw in answer.steps.items()}
        return answer.job, answer.input, steps, answer.children
    return [plain(item) for item in answer] if isinstance(answer, list) else answer


async def record(store: Store, jobs: list[Job]) -> Any:
    told = [
        (e.job_id, e.type, e.at, msgspec.to_builtins(e.job)) for e in await store.events(limit=10_000)
    ]
    leases = await store.leases()
    found = await store.lost_and_late(leases)
    return (
        await store.find(Filter(limit=1000)),
        await store.get([job.id for job in jobs]),
        told,
        await store.queues(),
        sorted((lease.owner, lease.until, lease.seconds) for lease in leases),
        sorted(job.id for job in found.leases),
        sorted(job.id for job in found.deadlines),
    )


async def play(drawn: list[tuple[list[tuple[str, int, int, int]], int]], url: str, folder: Path) -> None:
    script = Script()
    known: list[Job] = []
    sqlite = SqliteStore(folder / "bide.db", script.clock)
    processes = [PostgresStore(url, script.clock) for _ in range(2)]
    stores: list[Store] = [sqlite, *processes]
    for store in stores:
        await store.open(lambda events: None)
    try:
        for number, (asked_for, seconds) in enumerate(drawn):
            calls = [call for asked in asked_for if (call := script.call(*asked)) is not None]
            # The two take turns, so that each remembers what is true no more.
            turn = processes[number // 2 % 2]
            turn._job_cache.clear()  # word of changes takes a moment, which polls may be behind
            answers = []
            for store in (sqlite, turn):
                done = await asyncio.gather(*(call(store) for call in calls))
                woken = await store.wake()
                answers.append((plain(done), woken, await record(store, known)))
            assert answers[0] == answers[1]
            script.jobs = await sqlite.find(Filter(limit=1000))
            known = list({job.id: job for job in [*known, *script.jobs]}.values())
            script.clock.advance(seconds)
    finally:
        for store in stores:
            await store.close()


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rounds)
def test_both_stores_agree(
    postgres: Postgres, drawn: list[tuple[list[tuple[str, int, int, int]], int]]
) -> None:
    url = f"{postgres.url}?schema=agree"
    prepare(PostgresServer(url))
    with PostgresServer(url).connect() as connection:
        connection.execute("; ".join(f"DELETE FROM {t}" for t in TABLES).encode(), prepare=False)
    with TemporaryDirectory() as folder:
        asyncio.run(play(drawn, url, Path(folder)))
