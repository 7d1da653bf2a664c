"""Whatever happens in whatever order, every job that was accepted ends, once, and nothing stale is written.

`python -m tests.simulation` runs random histories for longer.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
import time
from collections.abc import Iterable
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.servers.postgres import Postgres
from tests.simulation.faults import MODES, Mode
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
from tests.simulation.world import DEEDS, Deed, Replica

sqlite = on(SqliteDatabase, "one")
SAMPLE, SQLITE_SAMPLE = 79, 5  # one of so many operations, another sample each day
DAY = int(time.time() // 86_400)
SQLITE_MODES: tuple[Mode, ...] = ("refused", "late", "unheard")
deeds = st.lists(
    st.tuples(st.sampled_from(DEEDS), st.integers(0, 40), st.sampled_from(PAUSES)), max_size=25
)


@pytest.fixture(scope="module")
def replicas(postgres: Postgres) -> MakeWorld:
    """Two services on one PostgreSQL."""
    return on(partial(PostgresDatabase, postgres.url), "one", "two")


def drawn(examples: int) -> settings:
    """The same examples in every run."""
    return settings(
        max_examples=examples,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.explicit, Phase.generate, Phase.shrink],
        derandomize=True,
    )


@drawn(60)
@given(seed=st.integers(0, 2**32), deeds=deeds)
def test_any_history(seed: int, deeds: list[Deed]) -> None:
    assert judged(sqlite, seed, deeds) == []


@pytest.mark.soak
@drawn(400)
@given(seed=st.integers(0, 2**32), deeds=deeds)
def test_many_histories(seed: int, deeds: list[Deed]) -> None:
    assert judged(sqlite, seed, deeds) == []


@pytest.mark.parametrize(
    "seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(3, 12))]
)
def test_any_history_of_two_services_on_postgres(replicas: MakeWorld, seed: int) -> None:
    assert judged(replicas, seed, random_history(seed)) == []


# Histories that found bugs.
FOUND: dict[str, list[Deed]] = {
    "a service is stopped for longer than a lease": [("once", 3, 1.0), ("stop", 2, 40.0)],
    "the machine sleeps": [("once", 3, 1.0), ("sleep", 0, 5.0)],
    "the disk is full for longer than a lease": [("once", 3, 14.0), ("outage", 2, 30.0)],
}


@pytest.mark.parametrize("name", FOUND)
def test_no_job_is_taken_from_a_service_that_lives(name: str) -> None:
    assert judged(sqlite, 1, FOUND[name]) == []


def test_a_job_that_is_cancelled_and_run_again_does_not_fail_because_of_its_cancelled_child() -> None:
    history: list[Deed] = [
        ("quick", 0, 0.05),
        ("family", 0, 0.05),
        ("cancel", 0, 0.0),
        ("rerun", 0, 0.0),
    ]
    assert judged(sqlite, 0, history) == []


def test_a_child_whose_spawn_fails_keeps_no_parent_waiting() -> None:
    wrong = {}
    for number in range(1, 16):
        with sqlite(1) as world:
            world.act([("upload", 0, 1.0)])
            assert world.uploads  # which the handler passes on
            world.failed += 1
            world.faults.plan(number, "refused")
            world.act([("relay", 4, 2.0)])
            if found := world.judge():
                wrong[number] = found
    assert wrong == {}


@pytest.mark.parametrize("kind", ["relay", "lonely"])
def test_no_error_of_a_spawn_keeps_a_parent_waiting(kind: str) -> None:
    """Also one that says nothing about whether the store is available."""
    with sqlite(1) as world:
        world.act([("upload", 0, 1.0)])
        assert world.uploads
        engine = world.replicas["one"].engine
        prepare, failures = engine.prepare_spawn, iter([sqlite3.DatabaseError("malformed")])

        async def fails_once(*what: object) -> object:
            for error in failures:
                raise error
            return await prepare(*what)

        engine.prepare_spawn = fails_once
        world.failed += 1
        world.act([(kind, 4, 2.0)])
        assert next(failures, None) is None
        assert world.judge() == []


def test_nothing_stale_is_written_after_a_promotion_with_loss(replicas: MakeWorld) -> None:
    """The claim of an attempt is lost: another attempt has the same fence, and another owner."""
    claimed: list[Deed] = [("pause", 0, 0.5), ("once", 3, 0.5), ("once", 6, 0.5), ("replicate", 0, 10.0)]
    lost: list[Deed] = [("promote", 0, 0.05), ("resume", 0, 8.0)]
    for seed in (0, 2):
        assert judged(replicas, seed, [*claimed, *lost]) == []


def test_the_files_of_what_was_deleted_do_not_return_with_a_promotion(replicas: MakeWorld) -> None:
    """reliability.md: the record returns, and a request for its files is 404."""
    with replicas(1) as world:
        world.act([("maker", 5, 5.0), ("replicate", 0, 0.0)])
        (job_id,) = world.acknowledged
        file = f"/jobs/{job_id}/files/made.txt"
        assert world.ask("GET", file).body == b"5"
        assert world.ask("DELETE", f"/jobs/{job_id}").status == 204
        assert world.ask("GET", file).status == 410
        world.act([("promote", 0, 20.0)])
        for number in range(2):
            assert world.ask("GET", f"/jobs/{job_id}", number).json()["status"] == "DONE"
            assert world.ask("GET", file, number).status == 404
        assert world.ask("DELETE", f"/jobs/{job_id}").status == 204
        assert world.judge() == ["maker 5 is lost"]  # as the caller wanted


def found_wrong(
    make: MakeWorld, faults: Iterable[tuple[int, Mode]]
) -> dict[tuple[int, Mode], list[str]]:
    """What is wrong after each of the faults, one at a time: the number of an operation, and how it fails."""
    found = {fault: with_one_fault(make, TOUR, *fault)[0] for fault in faults}
    return {fault: wrong for fault, wrong in found.items() if wrong}


def test_a_sample_of_the_operations_of_sqlite_may_fail() -> None:
    """The next test has all operations and all ways; a failure names both."""
    count = operations(sqlite, TOUR)
    assert count > 100
    numbers = range(1 + DAY % SQLITE_SAMPLE, count + 1, SQLITE_SAMPLE)
    modes = islice(cycle(SQLITE_MODES), DAY // SQLITE_SAMPLE % len(SQLITE_MODES), None)
    assert found_wrong(sqlite, zip(numbers, modes, strict=False)) == {}


@pytest.mark.soak
@pytest.mark.parametrize("mode", SQLITE_MODES)
def test_each_operation_of_a_store_may_fail_in_each_way(mode: Mode) -> None:
    numbers = range(1, operations(sqlite, TOUR) + 1)
    assert found_wrong(sqlite, ((number, mode) for number in numbers)) == {}


def test_a_sample_of_the_operations_of_postgres_may_fail(replicas: MakeWorld) -> None:
    """The next test has all operations and all ways; a failure names both."""
    numbers = range(1 + DAY % SAMPLE, operations(replicas, TOUR) + 1, SAMPLE)
    modes = islice(cycle(MODES), DAY // SAMPLE % len(MODES), None)
    assert found_wrong(replicas, zip(numbers, modes, strict=False)) == {}


@pytest.mark.soak
@pytest.mark.parametrize("mode", MODES)
def test_each_operation_of_postgres_may_fail_in_each_way(replicas: MakeWorld, mode: Mode) -> None:
    count = operations(replicas, TOUR)
    assert count > 100
    assert found_wrong(replicas, ((number, mode) for number in range(1, count + 1))) == {}


def folders() -> set[Path]:
    places = {Path(tempfile.gettempdir()), Path("/dev/shm")}
    return {path for place in places for path in place.glob(f"bide-simulation-{os.getpid()}-*")}


def test_a_world_leaves_no_folder_also_after_a_failure() -> None:
    with sqlite(1) as world:
        world.act([("upload", 0, 1.0)])
        assert folders()
    assert folders() == set()
    with pytest.raises(AssertionError, match="nothing will ever happen"), sqlite(1) as world:
        world.act([("maker", 0, 0.05)])
        raise AssertionError("nothing will ever happen again")
    assert folders() == set()
    with (
        patch.object(Replica, "__init__", side_effect=OSError("no service")),
        pytest.raises(OSError, match="no service"),
    ):
        sqlite(1)
    assert folders() == set()


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
