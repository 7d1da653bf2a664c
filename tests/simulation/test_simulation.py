"""Whatever happens in whatever order, every job that was accepted ends, once, and nothing stale is written.

`python -m tests.simulation` runs random histories for longer.
"""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.servers.postgres import Postgres
from tests.simulation.faults import Mode
from tests.simulation.histories import (
    PAUSES,
    TOUR,
    MakeWorld,
    judged,
    on,
    operations,
    random_history,
    with_one_fault,
)
from tests.simulation.postgres import PostgresDatabase
from tests.simulation.sqlite import SqliteDatabase
from tests.simulation.world import DEEDS, Deed

sqlite = on(SqliteDatabase, "one")
deeds = st.lists(
    st.tuples(st.sampled_from(DEEDS), st.integers(0, 40), st.sampled_from(PAUSES)), max_size=25
)


@pytest.fixture(scope="module")
def replicas(postgres: Postgres) -> MakeWorld:
    """Two services on one PostgreSQL."""
    return on(partial(PostgresDatabase, postgres.url), "one", "two")


@settings(
    max_examples=200,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
    derandomize=True,
)
@given(seed=st.integers(0, 2**32), deeds=deeds)
def test_any_history(seed: int, deeds: list[Deed]) -> None:
    assert judged(sqlite, seed, deeds) == []


@pytest.mark.parametrize("seed", range(6))
def test_any_history_of_two_services_on_postgres(replicas: MakeWorld, seed: int) -> None:
    assert judged(replicas, seed, random_history(seed)) == []


# What was found once, and was wrong in a way of its own.
FOUND: dict[str, list[Deed]] = {
    "a service is stopped for longer than a lease": [("once", 3, 1.0), ("stop", 2, 40.0)],
    "the machine sleeps": [("once", 3, 1.0), ("sleep", 0, 5.0)],
    "the disk is full for longer than a lease": [("once", 3, 14.0), ("outage", 2, 30.0)],
}


@pytest.mark.parametrize("name", FOUND)
def test_no_job_is_taken_from_a_service_that_lives(name: str) -> None:
    assert judged(sqlite, 1, FOUND[name]) == []


def test_a_child_whose_spawn_fails_keeps_no_parent_waiting() -> None:
    wrong = {}
    for number in range(1, 16):
        with sqlite(1) as world:
            world.act([("upload", 0, 0.5)])
            world.failed += 1
            world.faults.plan(number, "refused")
            world.act([("relay", 4, 2.0)])
            if found := world.judge():
                wrong[number] = found
    assert wrong == {}


def test_nothing_stale_is_written_after_a_promotion_with_loss(replicas: MakeWorld) -> None:
    """The claim of an attempt is lost: another attempt has the same fence, and another owner."""
    claimed: list[Deed] = [("pause", 0, 0.5), ("once", 3, 0.5), ("once", 6, 0.5), ("replicate", 0, 10.0)]
    lost: list[Deed] = [("promote", 0, 0.05), ("resume", 0, 8.0)]
    for seed in (0, 2):
        assert judged(replicas, seed, [*claimed, *lost]) == []


@pytest.mark.parametrize("mode", ["refused", "late", "unheard"])
def test_each_operation_of_a_store_may_fail(mode: Mode) -> None:
    wrong = {}
    count = operations(sqlite, TOUR)
    assert count > 100
    for number in range(1, count + 1):
        found, _ = with_one_fault(sqlite, TOUR, number, mode)
        if found:
            wrong[number] = found
    assert wrong == {}


@pytest.mark.parametrize("mode", ["refused", "late", "unheard", "broken"])
def test_operations_of_postgres_may_fail(replicas: MakeWorld, mode: Mode) -> None:
    wrong = {}
    for number in range(3, operations(replicas, TOUR), 29):
        found, _ = with_one_fault(replicas, TOUR, number, mode)
        if found:
            wrong[number] = found
    assert wrong == {}


def test_the_same_seed_gives_the_same_history() -> None:
    def history() -> list[tuple[object, ...]]:
        with sqlite(7) as world:
            world.act(random_history(7))
            world.judge()
            # Ids begin with the time of day; all the rest is the same.
            events = world.database.rows("SELECT id, type, at FROM events")
            return [(number, type_, round(at - world.epoch, 4)) for number, type_, at in events]

    assert history() == history()
    assert len(history()) > 20
