"""A dependency fails for an hour of virtual time, and services and children are killed meanwhile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial

import msgspec
import pytest

from bide.core.jobs.breaker import BreakerState
from tests.servers.postgres import Postgres
from tests.simulation.app import Vendor, ran
from tests.simulation.histories import MakeWorld, on
from tests.simulation.postgres import PostgresDatabase
from tests.simulation.sqlite import SqliteDatabase
from tests.simulation.world import World

JOBS = 30


@pytest.fixture(autouse=True)
def vendor() -> Iterator[None]:
    Vendor.calls.clear()
    yield
    Vendor.down = Vendor.hangs = False


def rows(world: World) -> list[tuple[str, str, int]]:
    """Job, status and failures."""
    found = world.database.rows("SELECT id, status, failures FROM jobs WHERE kind = 'calls'")
    return [(job_id, status, failures) for job_id, status, failures in found]


def state(world: World) -> BreakerState:
    ((text,),) = world.database.rows("SELECT text FROM records WHERE collection = 'breakers'")
    return msgspec.json.decode(text, type=BreakerState)


def fails(make: MakeWorld, seed: int, minutes: int = 60, *, hangs: bool = False) -> None:
    with make(seed) as world:
        Vendor.down, Vendor.hangs = True, hangs
        world.run(2.0)
        world.act([("calls", number, 1.0) for number in range(JOBS)])
        for minute in range(1, minutes):
            if minute in (5, 30, 40):
                world.act([("cut", minute, 0.0)])  # kill -9 of a service and its children
            if minute in (10, 50):
                world.act([("kill", minute, 0.0)])  # kill -9 of a child
            world.run(60.0)
            assert minute < 5 or state(world).status != "closed"
        assert len(rows(world)) == JOBS
        assert {status for _, status, _ in rows(world)} <= {"RETRYING", "PROCESSING", "PENDING"}
        calls = Counter(Vendor.calls)
        # Five failures open the breaker, and each child may have one more call in progress. Then there are probes: one per
        # five minutes or less, and one more for each prober that was killed.
        children = 2 * len(world.replicas)
        assert 5 + minutes // 15 <= calls.total() <= 5 + children + 4 + minutes / 2.5 + 5
        assert max(failures for _, _, failures in rows(world)) <= 1
        before = Counter(job_id for job_id, step, _ in ran if step == "before")
        assert max(before.values()) == 1, "a finished step is not repeated"
        Vendor.down = Vendor.hangs = False
        world.run(420.0)
        assert {status for _, status, _ in rows(world)} == {"DONE"}
        assert state(world).status == "closed"
        assert world.wrong == []
        assert not world.database.rows("SELECT name FROM records WHERE collection = 'waiting_jobs'")


def test_no_job_fails_because_of_a_dependency_that_fails_for_an_hour() -> None:
    fails(on(SqliteDatabase, "one"), 1)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(2, 12))
@pytest.mark.parametrize("hangs", [False, True])
def test_no_job_fails_in_many_histories(seed: int, hangs: bool) -> None:
    fails(on(SqliteDatabase, "one"), seed, hangs=hangs)


@pytest.mark.soak
@pytest.mark.parametrize("seed", [1, 2])
def test_replicas_share_a_breaker(postgres: Postgres, seed: int) -> None:
    fails(on(partial(PostgresDatabase, postgres.url), "one", "two"), seed, 20, hangs=seed > 1)
