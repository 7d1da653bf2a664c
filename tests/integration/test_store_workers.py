"""What workers need of the PostgreSQL store: word of their own jobs only, a roster, and where there is work."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest
import pytest_asyncio

from bide.core.jobs.state_machine import CancelAsked
from bide.server.store.postgres.store import PostgresStore
from bide.testing import ManualClock
from bide.testing.store import StoreHarness
from bide.testing.store.harness import LEASE
from tests.integration.test_store_postgres import url_of
from tests.servers.postgres import Postgres
from tests.waiting import eventually


class Process(StoreHarness):
    store: Any

    def __init__(self, url: str, clock: ManualClock, numbers: count[int], *, held_only: bool) -> None:
        super().__init__(lambda: PostgresStore(url, clock, held_only=held_only), clock)
        self._numbers = numbers


@pytest.fixture
def url(postgres: Postgres, tmp_path: Path) -> str:
    return url_of(postgres, tmp_path)


@pytest_asyncio.fixture
async def pair(url: str) -> AsyncIterator[tuple[Process, Process]]:
    """A service and a worker."""
    clock, numbers = ManualClock(), count(1)
    service = Process(url, clock, numbers, held_only=False)
    worker = Process(url, clock, numbers, held_only=True)
    await service.open()
    await worker.open()
    yield service, worker
    await service.store.close()
    await worker.store.close()


async def test_a_worker_hears_of_its_own_jobs_only(pair: tuple[Process, Process]) -> None:
    service, worker = pair
    mine, other = await service.put(), await service.put(queue="others")
    await worker.claim()
    (theirs,) = await service.claim(queue="others", owner="service")
    worker.published.clear()
    await service.apply(CancelAsked(job_id=other.id))
    await service.put()
    await service.succeed(theirs.job)
    await service.apply(CancelAsked(job_id=mine.id))
    await eventually(lambda: bool(worker.published))
    assert {event.job_id for event in worker.published} == {mine.id}
    assert worker.published[0].job["cancelAsked"]


async def test_a_worker_receives_the_event_of_a_job_that_was_taken_from_it(
    pair: tuple[Process, Process],
) -> None:
    service, worker = pair
    job = await service.put()
    (claim,) = await worker.claim()
    await service.store.void("worker")
    (lost,) = (await service.store.lost_and_late()).leases
    worker.published.clear()
    from bide.core.jobs.state_machine import HandedBack

    await service.apply(HandedBack(job_id=job.id, fence=lost.fence))
    # An event of the claim may arrive first.
    await eventually(lambda: [e.job["status"] for e in worker.published][-1:] == ["PENDING"])
    held = [(job.id, claim.job.fence)]
    assert await worker.store.renew("worker", held, LEASE) == held


async def test_a_worker_receives_the_events_of_the_time_without_its_connection(
    pair: tuple[Process, Process], url: str
) -> None:
    service, worker = pair
    job = await service.put()
    await worker.claim()
    worker.published.clear()
    channel = f"LISTEN {worker.store.server.channel}_held"
    with psycopg.connect(url.partition("?")[0], autocommit=True) as connection:
        ended = connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
            "AND (query = %s OR query LIKE 'SELECT extract%%')",
            (channel,),
        ).fetchall()
    assert ended
    await service.apply(CancelAsked(job_id=job.id))
    await eventually(lambda: any(event.job.get("cancelAsked") for event in worker.published))


async def test_a_worker_hears_of_a_pause(pair: tuple[Process, Process]) -> None:
    service, worker = pair
    assert await worker.claim() == []  # the pauses are known now
    await service.store.pause("default", True)
    before = worker.store._cache.pauses
    await service.put()
    await eventually(lambda: worker.store._cache.pauses > before or worker.store._cache.paused is None)
    assert await worker.claim() == []
    await service.store.pause("default", False)
    async with asyncio.timeout(10):
        while not await worker.claim():
            await asyncio.sleep(0.005)


async def test_a_worker_tells_no_poll_from_memory(pair: tuple[Process, Process]) -> None:
    service, worker = pair
    job = await service.put()
    for _ in range(3):
        assert (await worker.get(job.id)).version == 1
    await service.claim(owner="service")
    assert (await worker.get(job.id)).version == 2


async def test_the_roster_forgets_who_is_silent(pair: tuple[Process, Process]) -> None:
    service, worker = pair
    await worker.store.record_worker("one", '{"a": 1}')
    service.clock.advance(8)
    await worker.store.record_worker("two", "{}")
    await worker.store.record_worker("two", '{"b": 2}')
    assert await service.store.live_workers(10) == {"one": '{"a": 1}', "two": '{"b": 2}'}
    service.clock.advance(4)
    assert await service.store.live_workers(10) == {"two": '{"b": 2}'}
    await worker.store.remove_worker("two")
    assert await service.store.live_workers(100) == {"one": '{"a": 1}'}
    service.clock.advance(5000)
    await worker.store.record_worker("three", "{}")
    assert set(await service.store.live_workers(10**6)) == {"three"}  # no entry is kept forever


async def test_where_there_is_work_is_known_whatever_there_is_of_it(
    pair: tuple[Process, Process],
) -> None:
    service, worker = pair
    assert await service.store.waiting() == set()
    for queue, kind in [("a", "x"), ("a", "y"), ("a", "x"), ("b", "x"), ("c", "z")]:
        await service.put(queue=queue, kind=kind)
    await service.put(queue="later", run_at=service.clock.now() + 60)
    await service.store.pause("c", True)
    assert await service.store.waiting() == {("a", "x"), ("a", "y"), ("b", "x")}
    await worker.claim("x", queue="a")
    assert await service.store.waiting() == {("a", "y"), ("b", "x")}
