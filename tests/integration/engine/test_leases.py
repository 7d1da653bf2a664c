"""Leases when an observer slept, when clocks jump, when nothing can be written, and when a database has lost claims."""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import psycopg
import pytest

from bide.core.clock import SystemClock
from bide.core.jobs.record import Job, Status
from bide.core.jobs.state_machine import Succeeded
from bide.server.config import Config, StoreConfig, UpkeepConfig, WorkerConfig
from bide.server.runner import runner, settlement
from bide.server.store.postgres.server import PostgresServer, prepare
from bide.server.store.postgres.store import PostgresStore
from bide.server.store.sqlite.store import SqliteStore
from bide.testing.engine.harness import EngineHarness, result
from tests.integration.cable import Cable
from tests.integration.test_store_full import Disk, full, room
from tests.integration.test_store_postgres import end_all
from tests.servers.postgres import Postgres

LEASE = 1.0
Start = Callable[..., Awaitable[EngineHarness]]


class StepClock(SystemClock):
    """A clock that a test sets forward, as a machine's is when it wakes."""

    ahead = 0.0

    def now(self) -> float:
        return super().now() + self.ahead


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Start]:
    """Starts services, each in a folder of its own, and stops them after the test."""
    harnesses: list[EngineHarness] = []

    async def start_(
        name: str = "one",
        url: str | None = None,
        prepared: Callable[[EngineHarness], None] | None = None,
    ) -> EngineHarness:
        harness = EngineHarness(
            "tests.apps.leases",
            Config(
                data=tmp_path / name,
                store=StoreConfig(url, connections=3),
                worker=WorkerConfig(workers=2, lease=LEASE, grace=1.0, drain=0.0),
                upkeep=UpkeepConfig(interval=0.05),
            ),
        )
        if prepared is not None:
            prepared(harness)
        await harness.start()
        harnesses.append(harness)
        return harness

    yield start_
    for harness in harnesses:
        await harness.stop()


class Work:
    """Handlers that run until they may end, and what they have done."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "ran"
        self.log.touch()
        self._gate = folder / "gate"
        self._gate.touch()

    async def start(self, harness: EngineHarness, *kinds: str) -> list[Job]:
        inputs = {"until": str(self._gate), "log": str(self.log)}
        return [await harness.started(kind, inputs) for kind in kinds]

    async def end(self, harness: EngineHarness, jobs: list[Job]) -> list[Job]:
        self.let_go()
        return [await harness.ended(job.id) for job in jobs]

    def let_go(self) -> None:
        self._gate.unlink(missing_ok=True)

    def ran(self) -> Counter[str]:
        return Counter(self.log.read_text().split())


@pytest.fixture
def work(tmp_path: Path) -> Work:
    return Work(tmp_path)


def unharmed(jobs: list[Job], work: Work) -> None:
    """Each has run once, to its end, and no worker was lost under it."""
    assert [(job.status, job.error) for job in jobs] == [(Status.DONE, None)] * len(jobs)
    assert [(job.fence, job.losses) for job in jobs] == [(1, 0)] * len(jobs)
    assert work.ran() == {job.id: 1 for job in jobs}


def schema_url(server: Postgres, place: Path) -> str:
    return f"{server.url}?schema=l{hashlib.sha256(str(place).encode()).hexdigest()[:16]}"


async def looked(harness: EngineHarness, leases: float) -> None:
    """Until the upkeep has observed for so many leases."""
    await asyncio.sleep(leases * LEASE)


# --- clocks


async def test_a_machine_that_slept_loses_no_lease(start: Start, work: Work) -> None:
    clock = StepClock()

    def on_this_clock(harness: EngineHarness) -> None:
        store = cast(SqliteStore, harness.store)
        store._wall = clock

    harness = await start(prepared=on_this_clock)
    jobs = await work.start(harness, "steady", "plain")
    clock.ahead += 60.0
    await looked(harness, 1.5)
    clock.ahead += 3600.0
    await looked(harness, 0.5)
    unharmed(await work.end(harness, jobs), work)


def stepping(server: Postgres, place: Path) -> tuple[str, Callable[[float], None]]:
    """A database whose clock is wrong by as much as one says: its `clock_timestamp` is found before the server's own."""
    url = schema_url(server, place)
    schema = PostgresServer(url).schema
    prepare(PostgresServer(url))
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(
            f"CREATE TABLE {schema}.clock_step AS SELECT 0.0::float8 AS seconds;"
            f"CREATE FUNCTION {schema}.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS $$ SELECT "
            f"pg_catalog.clock_timestamp() + (SELECT seconds FROM {schema}.clock_step) * interval '1 second' $$".encode(),
            prepare=False,
        )

    def step(seconds: float) -> None:
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute(f"UPDATE {schema}.clock_step SET seconds = {seconds}".encode())

    return f"{url}&options=-c%20search_path%3D{schema},pg_catalog", step


async def test_a_database_whose_clock_jumps_loses_no_lease_and_stops_no_job(
    start: Start, work: Work, postgres: Postgres, tmp_path: Path
) -> None:
    url, step = stepping(postgres, tmp_path)
    one = await start("one", url)
    jobs = await work.start(one, "steady", "plain")
    two = await start("two", url)
    before = one.store.now()
    await asyncio.to_thread(step, 3600.0)
    async with asyncio.timeout(10):
        while min(one.store.now(), two.store.now()) < before + 3600:
            await asyncio.sleep(0.01)
    await looked(one, 1.5)
    retried = await one.submit("again")
    await one.until(retried, lambda job: job.failures == 1)
    await asyncio.to_thread(step, 0.0)
    ahead = one.store.now()
    assert result(await one.ended(retried)) == 2, "its retry is due in a moment, not in an hour"
    assert one.store.now() >= ahead
    assert result(await two.run("again")) == 2
    await looked(one, 1.5)
    unharmed(await work.end(one, jobs), work)


# --- a database that was away


@pytest.fixture
async def cable(postgres: Postgres) -> AsyncIterator[Cable]:
    async with Cable(postgres.url) as cable:
        yield cable
    await asyncio.sleep(0.1)  # until its ends have noticed


async def test_a_failover_loses_no_lease(
    cable: Cable, start: Start, work: Work, postgres: Postgres, tmp_path: Path
) -> None:
    """A promoted standby has run for a long time: its start time does not show which workers could renew."""
    url = schema_url(postgres, tmp_path).replace(f":{postgres.port}/", f":{cable.port}/")
    one = await start("one", url)
    jobs = await work.start(one, "steady", "plain")  # which takes both of its children
    two = await start("two", url)
    jobs += await work.start(two, "steady")
    await cable.cut()
    await asyncio.sleep(2 * LEASE)
    await cable.mend()
    await looked(one, 2.0)
    unharmed(await work.end(one, jobs), work)


# --- nothing can be written


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Disk))
    yield
    room()


@pytest.mark.usefixtures("disk")
async def test_a_disk_that_is_full_for_longer_than_a_lease_discards_no_result(
    start: Start, work: Work
) -> None:
    harness = await start()
    jobs = await work.start(harness, "steady", "plain")
    full()
    work.let_go()
    async with asyncio.timeout(10):
        while any(worker.jobs for worker in harness.service.engine.workers()):
            await asyncio.sleep(0.01)
    await looked(harness, 2.5)
    room()
    unharmed(await work.end(harness, jobs), work)


async def test_a_database_that_is_full_for_longer_than_a_lease_discards_no_result(
    start: Start, work: Work, postgres: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another replica sees no renewal meanwhile; when the disk has space again, the result is stored first."""
    monkeypatch.setattr(settlement, "RETRY_AFTER", 0.1)  # in proportion to the lease
    monkeypatch.setattr(runner, "RENEW_RETRY", 0.1)
    url = schema_url(postgres, tmp_path)
    one = await start("one", url)
    jobs = await work.start(one, "steady", "plain")
    two = await start("two", url)
    schema = PostgresServer(url).schema
    tables = ("jobs", "events", "write_check")
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute(
            f"CREATE FUNCTION {schema}.no_room() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            "RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '53100'; END $$".encode()
        )
        # A transaction for each table: one that locks several tables can deadlock with those of the services.
        for table in tables:
            connection.execute(
                f"CREATE TRIGGER full_disk BEFORE INSERT OR UPDATE ON {schema}.{table} FOR EACH ROW "
                f"EXECUTE FUNCTION {schema}.no_room()".encode()
            )
        work.let_go()
        async with asyncio.timeout(10):
            while any(worker.jobs for worker in one.service.engine.workers()):
                await asyncio.sleep(0.01)
        await looked(two, 3.0)
        for table in tables:
            drop = f"DROP TRIGGER full_disk ON {schema}.{table}".encode()
            await asyncio.to_thread(connection.execute, drop)
    unharmed([await one.ended(job.id) for job in jobs], work)


# --- a database that has lost claims


def lose_claim(url: str, job: Job) -> None:
    """The row of a standby that did not receive the claim."""
    with PostgresServer(url).connect() as connection:
        connection.execute(
            "UPDATE jobs SET status = 'PENDING', version = 1, fence = 0, attempt = 0, owner = NULL, lease_until = NULL, "
            "started_at = NULL, due = created_at, ready = true WHERE id = %s",
            (job.id,),
        )


async def test_a_job_that_is_claimed_again_by_who_still_runs_it_runs_once_at_a_time(
    start: Start, work: Work, postgres: Postgres, tmp_path: Path
) -> None:
    url = schema_url(postgres, tmp_path)
    harness = await start("one", url)
    (job,) = await work.start(harness, "plain")
    await asyncio.to_thread(lose_claim, url, job)
    harness.service.engine.hint("default", "plain")
    async with asyncio.timeout(20):
        while work.ran()[job.id] < 2:
            running = [w.pid for w in harness.service.engine.workers() if job.id in w.jobs]
            assert len(running) <= 1
            await asyncio.sleep(0.01)
    (ended,) = await work.end(harness, [job])
    assert result(ended) == "plain"
    # No child was forgotten: as many jobs run at once as before.
    work = Work(tmp_path / "one")
    assert len(await work.end(harness, await work.start(harness, "plain", "plain"))) == 2


async def test_the_result_of_an_attempt_whose_claim_was_lost_is_not_taken_for_another_ones(
    start: Start, work: Work, postgres: Postgres, tmp_path: Path
) -> None:
    """Both have fence 1."""
    url = schema_url(postgres, tmp_path)
    one = await start("one", url)
    (stale,) = await work.start(one, "plain")
    two = await start("two", url)
    await one.store.pause("default", True)
    await asyncio.to_thread(lose_claim, url, stale)
    await one.service.engine.stop(0.0)  # so that the other one gets it
    await one.store.pause("default", False)
    two.service.engine.hint("default", "plain")
    taken = await two.until(stale.id, lambda job: job.running)
    assert (taken.fence, stale.fence) == (1, 1) and taken.owner != stale.owner
    late = Succeeded(job_id=stale.id, owner=stale.owner, fence=1, result=None)
    (refused,) = await one.store.apply([late])
    assert not isinstance(refused, Job)
    held = [(stale.id, 1)]
    assert await one.store.renew(stale.owner or "", held, LEASE) == held
    (ended,) = await work.end(two, [taken])
    assert result(ended) == "plain"


async def test_a_replica_forgets_what_a_lossy_failover_has_undone_and_wakes_who_waits(
    start: Start, work: Work, postgres: Postgres, tmp_path: Path
) -> None:
    url = schema_url(postgres, tmp_path)
    one = await start("one", url)
    (job,) = await work.start(one, "plain")
    two = await start("two", url)
    (done,) = await work.end(one, [job])
    assert (await two.ended(job.id)).version == done.version
    await one.store.pause("default", True)
    rendered = two.service.http._components.status_bodies
    rendered[job.id, f'"{done.version}.0"', ""] = b"as it was"
    last = (await two.store.events())[-1].id
    with two.service.notify.subscribe(job.id) as watch:
        with PostgresServer(url).connect() as connection:
            connection.execute("DELETE FROM events WHERE id > 1")
            connection.execute("SELECT setval('event_numbers', 1)")
            connection.execute("UPDATE jobs SET result = NULL, finished_at = NULL")
        await asyncio.to_thread(lose_claim, url, job)
        await asyncio.to_thread(end_all, url)
        # The writer wakes it, too, if its commit was under way. What runs before the feed is connected again takes the
        # numbers of the lost events, and only the timeline of a promoted server would show that.
        async with asyncio.timeout(30):
            while cast(PostgresStore, two.store)._feed._last > 1:
                assert await watch.wait(30.0), "a waiting request reads again"
    assert (await two.job(job.id)).status is Status.PENDING
    assert rendered == {}
    await one.store.pause("default", False)
    for harness in (one, two):
        harness.service.engine.hint("default", "plain")
    assert result(await two.ended(job.id)) == "plain"
    assert (await two.store.events())[-1].id <= last, (
        "its events have numbers that were published before"
    )
