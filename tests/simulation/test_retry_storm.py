"""Jobs that always fail, in virtual time: the retry budget of their kind limits the retries of all replicas."""

from __future__ import annotations

from functools import partial

import pytest

from tests.servers.postgres import Postgres
from tests.simulation.app import ran
from tests.simulation.histories import MakeWorld, on
from tests.simulation.postgres import PostgresDatabase
from tests.simulation.sqlite import SqliteDatabase

JOBS, SECONDS = 60, 600.0


def storms(make: MakeWorld) -> None:
    with make(1) as world:
        world.run(2.0)
        world.act([("storm", number, 0.1) for number in range(JOBS)])
        world.act([("cut", 3, SECONDS / 2), ("cut", 2, SECONDS / 2)])
        retries = sum(step == "storm" for _, step, _ in ran) - JOBS
        # Killed attempts run again, and use no retry.
        most = 0.2 * JOBS + 6.0 * (1 + SECONDS / 60) + 2 * len(world.replicas)
        assert most / 2 < retries <= most
        found = world.database.rows("SELECT DISTINCT status FROM jobs WHERE kind = 'storm'")
        assert {status for (status,) in found} <= {"RETRYING", "PROCESSING"}, "none of them fails"
        assert world.wrong == []


def test_a_retry_storm_is_limited() -> None:
    storms(on(SqliteDatabase, "one"))


@pytest.mark.soak
def test_a_retry_storm_of_two_replicas_is_limited(postgres: Postgres) -> None:
    storms(on(partial(PostgresDatabase, postgres.url), "one", "two"))
