"""The SQLite store passes the suite, and what only a file can get wrong."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sqlite3
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from bide.core.clock import Clock
from bide.core.errors import SetupError
from bide.core.jobs.record import Job, Status
from bide.core.jobs.state_machine import PriorityChanged, Succeeded
from bide.server.registry import Registry
from bide.server.store import (
    EventFilter,
    Filter,
    Inserted,
    NewJob,
    RecordAccess,
    Store,
    StoreUnavailable,
    migrations,
)
from bide.server.store.migrations import scripts
from bide.server.store.sqlite.file import PLENTY, WAL_PIECE, WAL_SIZE, SqliteFile, prepare
from bide.server.store.sqlite.store import SqliteStore
from bide.server.store.sqlite.transaction import MAX_INPUT
from bide.server.waiting_jobs import PAGE, WaitingJobs
from bide.testing import ManualClock
from bide.testing.store import StoreHarness, StoreSuite
from tests.waiting import eventually

NEWEST = scripts("sqlite")[-1][0]


class TestSqliteStore(StoreSuite):
    def store(self, place: Path, clock: Clock) -> Store:
        return SqliteStore(place / "bide.db", clock)


def hear_nothing(events: Sequence[object]) -> None:
    pass


def test_migrations_are_applied_once(tmp_path: Path) -> None:
    path = tmp_path / "bide.db"
    assert prepare(path) == [number for number, _ in scripts("sqlite")]
    assert prepare(path) == []
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA user_version").fetchone() == (NEWEST,)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()


def test_a_failed_migration_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "bide.db"
    prepare(path)
    broken = (NEWEST + 1, "CREATE TABLE half (x); CREATE TABLE half (x)")
    monkeypatch.setattr(migrations, "scripts", lambda dialect: [*scripts(dialect), broken])
    with pytest.raises(SetupError):
        prepare(path)
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT name FROM sqlite_master WHERE name = 'half'").fetchone() is None
    assert connection.execute("PRAGMA user_version").fetchone() == (NEWEST,)
    connection.close()


def test_a_file_is_described_without_a_store(tmp_path: Path) -> None:
    path = tmp_path / "what? 100%" / "bide.db"
    path.parent.mkdir()
    file = SqliteFile(path)
    assert (file.describe(), file.identity()) == ("none yet", None)
    assert list(path.parent.iterdir()) == [], "looking makes no file"
    assert file.migrate()[-1] == NEWEST
    assert file.describe() == f"schema {NEWEST}, 0 jobs, integrity ok"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT id FROM store_id").fetchone() == (file.identity(),)
    path.write_bytes(b"no database" * 1000)
    assert file.identity() is None
    with pytest.raises(SetupError, match=r"cannot be read.*Restore it from a backup"):
        file.describe()


async def test_data_of_a_newer_bide_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "bide.db"
    prepare(path)
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {NEWEST + 1}")
    connection.close()
    with pytest.raises(SetupError, match=rf"version {NEWEST + 1}.*install the newer bide"):
        await SqliteStore(path).open(hear_nothing)


async def test_a_file_that_is_no_database_is_named_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "bide.db"
    path.write_bytes(b"these are not the pages of a database " * 200)
    with pytest.raises(SetupError, match=r"bide\.db cannot be used.*backup.*move it away"):
        await SqliteStore(path).open(hear_nothing)


async def test_a_damaged_database_is_found_at_the_start(tmp_path: Path) -> None:
    path = tmp_path / "bide.db"
    prepare(path)
    data = bytearray(path.read_bytes())
    data[4096:] = b"\xa5" * (len(data) - 4096)
    path.write_bytes(data)
    with pytest.raises(SetupError, match="Restore it from a backup"):
        await SqliteStore(path).open(hear_nothing)


async def test_a_list_of_a_damaged_database_says_that_the_store_is_unavailable(tmp_path: Path) -> None:
    harness = await a_bench(tmp_path)
    path = tmp_path / "bide.db"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xa5" * (path.stat().st_size - 4096))
    with pytest.raises(StoreUnavailable, match="Restore it from a backup"):
        await harness.store.find(Filter())
    await harness.store.close()


async def a_bench(tmp_path: Path) -> StoreHarness:
    clock = ManualClock()
    harness = StoreHarness(lambda: SqliteStore(tmp_path / "bide.db", clock), clock)
    await harness.open()
    return harness


async def test_an_operation_that_raises_takes_no_other_with_it(tmp_path: Path) -> None:
    harness = await a_bench(tmp_path)
    first = harness.new()
    calls = [harness.store.insert([new]) for new in (first, harness.new(), first, harness.new())]
    done = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(d) for d in done] == [list, list, sqlite3.IntegrityError, list]
    assert len(await harness.claim()) == 3
    events = await harness.store.events()
    assert len(events) == 6
    await asyncio.sleep(0)  # published right after the write returns
    assert [e.id for e in harness.published] == [e.id for e in events]
    await harness.store.close()


async def test_all_of_an_insert_or_nothing(tmp_path: Path) -> None:
    harness = await a_bench(tmp_path)
    good, twice = harness.new(key="k"), harness.new()
    with pytest.raises(sqlite3.IntegrityError):
        await harness.store.insert([good, twice, twice])
    assert await harness.store.events() == []
    assert await harness.claim() == []
    (again,) = await harness.store.insert([good])
    assert isinstance(again, Inserted)
    assert again.created, "its key was not used up"
    await harness.store.close()


async def test_what_is_queued_shares_a_commit(tmp_path: Path) -> None:
    commits: list[str] = []
    store = SqliteStore(tmp_path / "bide.db", ManualClock())
    await store.open(hear_nothing)
    store._connection.set_trace_callback(lambda sql: commits.append(sql) if sql == "COMMIT" else None)
    await asyncio.gather(*(store.pause(str(number), True) for number in range(500)))
    assert len(await store.queues()) == 500
    await store.close()
    assert len(commits) < 50


async def test_what_a_future_resolved_for_is_in_the_files(tmp_path: Path) -> None:
    harness = await a_bench(tmp_path)
    job = await harness.run(key="k")
    crashed = tmp_path / "crashed"
    crashed.mkdir()
    for file in tmp_path.glob("bide.db*"):
        shutil.copy(file, crashed)
    later = await a_bench(crashed)
    assert await later.get(job.id) == job
    assert [e.job["status"] for e in await later.store.events()] == ["PENDING", "PROCESSING"]
    await later.store.close()
    await harness.store.close()


@pytest.mark.parametrize("free", [1 << 40, 1 << 20])
async def test_the_write_ahead_log_gets_its_length_before_it_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int
) -> None:
    monkeypatch.setattr("bide.server.store.sqlite.store.WAL_DELAY", 0.0)
    monkeypatch.setattr("bide.server.store.sqlite.store.WAL_PAUSE", 0.0)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=free))
    wal = tmp_path / "bide.db-wal"
    harness = await a_bench(tmp_path)
    jobs = [await harness.put(queue=str(number)) for number in range(WAL_SIZE // WAL_PIECE)]
    if free < PLENTY:
        assert wal.stat().st_size < WAL_SIZE / 2
    else:
        await eventually(lambda: wal.stat().st_size >= WAL_SIZE)
        assert wal.stat().st_size < WAL_SIZE + WAL_PIECE
    jobs.append(await harness.put())
    crashed = tmp_path / "crashed"
    crashed.mkdir()
    for file in tmp_path.glob("bide.db*"):
        shutil.copy(file, crashed)
    later = await a_bench(crashed)
    assert [await later.get(job.id) for job in jobs] == jobs
    await later.store.close()
    await harness.store.close()


async def test_writes_under_way_at_the_close_are_carried_out(tmp_path: Path) -> None:
    harness = await a_bench(tmp_path)
    new = harness.new()
    inserting = harness.store.insert([new])
    await harness.reopen()
    (done,) = await inserting
    assert isinstance(done, Inserted)
    assert await harness.statuses(new.job.id) == [Status.PENDING]
    await harness.store.close()


async def test_a_closed_store_takes_no_more_writes(tmp_path: Path) -> None:
    harness = await a_bench(tmp_path)
    await harness.store.close()
    with pytest.raises(RuntimeError, match="closed"):
        await harness.store.insert([harness.new()])


async def test_a_caller_that_has_left_harms_nobody(tmp_path: Path) -> None:
    harness = await a_bench(tmp_path)
    left = asyncio.ensure_future(harness.store.insert([harness.new()]))
    left.cancel()
    job = await harness.put()
    assert isinstance(await harness.get(job.id), Job)
    assert len(await harness.claim()) == 2
    await harness.store.close()


async def test_asking_for_the_queues_counts_no_rows(tmp_path: Path) -> None:
    """It is done on the event loop, and counting takes longer the more jobs wait."""
    clock = ManualClock()
    harness = StoreHarness(lambda: SqliteStore(tmp_path / "bide.db", clock), clock)
    await harness.open()
    store = harness.store
    assert isinstance(store, SqliteStore)
    try:
        for i in range(3):
            await harness.put(queue="video", run_at=clock.now() + 5 if i == 0 else None)
        asked: list[str] = []
        store._reader.set_trace_callback(asked.append)
        (video,) = await store.queues()
        store._reader.set_trace_callback(None)
        assert (video.waiting, video.scheduled) == (2, 1)
        assert not any("jobs" in sql for sql in asked)
    finally:
        await store.close()


@pytest.mark.parametrize("reopened", [False, True], ids=["from memory", "from the file"])
async def test_many_jobs_are_claimed_and_settled_in_order(tmp_path: Path, reopened: bool) -> None:
    """New jobs are cached until they are claimed; after a restart, the same jobs are read from the file."""
    harness = await a_bench(tmp_path)
    store = harness.store
    await harness.run()  # the next claim expects jobs of this tenant only
    new = [harness.new(kind="odd" if i % 2 else "even", input=b'{"n":%d}' % i) for i in range(150)]
    await store.insert(new)
    long = harness.new(kind="even", input=b'"%s"' % (b"x" * 2 * MAX_INPUT))
    later = harness.new(kind="odd", run_at=harness.clock.now() + 5)
    await store.insert([long, later])
    first, deleted, waits = new[149].job, new[10].job, new[20].job
    await harness.apply(PriorityChanged(job_id=first.id, priority=5))
    await store.delete(deleted.id)
    await store.pause("default", True)
    assert await harness.claim("even", "odd", limit=200) == []
    await store.pause("default", False)
    if reopened:
        await harness.reopen()
    await harness.claim("even", "odd", limit=1)  # is this the only tenant?
    claims = await harness.claim("even", "odd", limit=200)
    expected = [n for n in new if n.job not in (deleted, first)] + [long]
    assert [c.job.id for c in claims] == [n.job.id for n in expected]
    assert [c.input for c in claims] == [n.input for n in expected]
    assert (await harness.get(first.id)).running
    assert all([c.job == await harness.get(c.job.id) for c in claims])
    ends = [
        Succeeded(job_id=c.job.id, owner="worker", fence=c.job.fence, result=msgspec.Raw(c.input))
        for c in claims
        if c.job.id != waits.id
    ]
    done = [job for job in await harness.store.apply(ends) if isinstance(job, Job)]
    assert {job.status for job in done} == {Status.DONE}
    assert len(done) == len(claims) - 1
    assert all([job == await harness.get(job.id) for job in done])
    for ended in (new[0], long):
        events = await harness.store.events(job_id=ended.job.id)
        assert [e.job["status"] for e in events] == ["PENDING", "PROCESSING", "DONE"]
    assert not (await harness.get(waits.id)).status.terminal
    await harness.store.close()


async def test_a_submission_to_an_idle_service_searches_no_jobs(tmp_path: Path) -> None:
    """Its claim is in the same commit. A scheduled job that has become due is found nevertheless."""
    harness = await a_bench(tmp_path)
    store = harness.store
    assert isinstance(store, SqliteStore)

    async def submitted() -> tuple[list[str], list[str]]:
        """The ids of the claimed jobs, and the statements that search jobs."""
        asked: list[str] = []
        store._connection.set_trace_callback(
            lambda sql: asked.append(sql) if "ready = 1" in sql else None
        )
        inserting = store.insert([harness.new()])
        claims = await harness.claim()
        store._connection.set_trace_callback(None)
        await inserting
        return [claim.job.id for claim in claims], asked

    assert [len(found) for found in await submitted()] == [1, 0]
    scheduled = await harness.put(run_at=harness.clock.now() + 5)
    assert [len(found) for found in await submitted()] == [1, 0]
    harness.clock.advance(10)
    await store.wake()
    claimed, asked = await submitted()
    assert (claimed[0], len(claimed)) == (scheduled.id, 2)
    assert asked
    await store.close()


@pytest.mark.parametrize("number", [0, PAGE - 1, PAGE, PAGE + 1])
async def test_all_breakers_are_known(tmp_path: Path, number: int) -> None:
    """They are read as a page, unless there are more."""
    harness = await a_bench(tmp_path)
    names = [f"vendor-{i:03}" for i in range(number)]

    def put(records: RecordAccess) -> None:
        for name in names:
            records.put_text("breakers", name, "{}")

    await harness.store.change_records(put)
    assert list(await WaitingJobs(harness.store, Registry()).states()) == names
    await harness.store.close()


async def test_counts_do_not_know_what_was_rolled_back(tmp_path: Path) -> None:
    clock = ManualClock()
    harness = StoreHarness(lambda: SqliteStore(tmp_path / "bide.db", clock), clock)
    await harness.open()
    store = harness.store
    job = await harness.put(queue="video")
    with pytest.raises(sqlite3.IntegrityError):
        await store.insert([harness.new(queue="video"), NewJob(job, b"{}")])
    (video,) = await store.queues()
    assert video.waiting == 1
    await store.close()


# --- time


async def test_after_a_start_with_a_clock_that_was_ahead_time_converges_over_restarts(
    tmp_path: Path,
) -> None:
    right, numbers = ManualClock(), count(1)

    async def run(clock: ManualClock, seconds: float) -> tuple[float, float]:
        """One start of the service; the store's first and last time, each with an event."""
        harness = StoreHarness(lambda: SqliteStore(tmp_path / "bide.db", clock), clock)
        harness._numbers = numbers
        await harness.store.open(hear_nothing)
        first = harness.store.now()
        await harness.put()
        clock.advance(seconds)
        await harness.put()
        last = harness.store.now()
        await harness.store.close()
        return first, last

    _, last = await run(ManualClock(right.now() + 3600), 0.0)
    for _ in range(8):
        first, after = await run(right, 600.0)
        assert last <= first < after, "time never goes back, and never stands still"
        last = after
    assert last > right.now()
    for _ in range(5):
        first, after = await run(right, 600.0)
        assert last <= first < after
        last = after
    assert last == right.now()


async def test_an_older_copy_of_the_database_begins_a_new_epoch(tmp_path: Path) -> None:
    clock, path = ManualClock(), tmp_path / "jobs.db"
    harness = StoreHarness(lambda: SqliteStore(path, clock), clock)
    await harness.open()
    await harness.put()
    await harness.store.close()
    copy = path.read_bytes()
    harness.store = SqliteStore(path, clock)
    await harness.open()
    await harness.put()
    (epoch,) = set(harness.epochs)
    await harness.store.close()
    path.write_bytes(copy)
    harness.store = SqliteStore(path, clock)
    await harness.open()
    assert harness.epochs[-1] != epoch
    # A copy in another folder, without the mark.
    again = harness.epochs[-1]
    await harness.store.close()
    (tmp_path / "events.mark").unlink()
    harness.store = SqliteStore(path, clock)
    await harness.open()
    assert harness.epochs[-1] not in (epoch, again)
    # It is a numbering like any other.
    again = harness.epochs[-1]
    await harness.put()
    await harness.reopen()
    assert harness.epochs[-1] == again
    await harness.store.close()


async def test_the_floor_of_the_log_does_not_fall_if_the_clock_was_set_back(tmp_path: Path) -> None:
    harness = await a_bench(tmp_path)
    clock, floors = harness.clock, []
    assert isinstance(clock, ManualClock)
    for behind in (0, 1000):  # the later event has the earlier time
        clock._now -= behind
        await harness.store.delete((await harness.put()).id)
    for seconds in (500, 1000):
        clock.advance(seconds)
        await harness.store.purge(tombstones=100.0, keys=100.0)
        floors.append((await harness.store.read_log(EventFilter())).floor)
    last = (await harness.store.read_log(EventFilter())).last
    assert floors == [last, last]
    await harness.store.close()


async def test_a_new_epoch_can_be_requested(tmp_path: Path) -> None:
    clock, path = ManualClock(), tmp_path / "jobs.db"
    harness = StoreHarness(lambda: SqliteStore(path, clock), clock)
    await harness.open()
    await harness.store.close()
    epoch = SqliteFile(path).begin_epoch()
    assert epoch != harness.epochs[-1]
    harness.store = SqliteStore(path, clock)
    await harness.open()
    assert harness.epochs[-1] == epoch
    await harness.store.close()
