"""Search after an upgrade: indexes and terms of jobs that an earlier release has stored, while others submit."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import time
from itertools import product
from pathlib import Path

import psycopg
import pytest

from bide.core.errors import ErrorInfo, QueryTimeout
from bide.core.jobs.record import Job, Status
from bide.core.wire.http import job_id
from bide.server.store import Filter, Term, migrations
from bide.server.store.postgres.server import PostgresServer, prepare
from bide.server.store.postgres.store import PostgresStore
from bide.server.store.rows import FIELDS, values_of
from bide.server.store.sqlite import index_builds
from bide.server.store.sqlite.store import SqliteStore
from bide.testing.clock import ManualClock
from bide.testing.store import StoreHarness
from tests.servers.postgres import Postgres

OPS = Filter(terms=(Term("label.team", "ops"),), limit=100)


@pytest.fixture
def url(postgres: Postgres, tmp_path: Path) -> str:
    return f"{postgres.url}?schema=u{abs(hash(tmp_path)) % 10**9}"


async def test_sqlite_makes_old_jobs_searchable_in_batches(tmp_path: Path) -> None:
    harness = StoreHarness(lambda: SqliteStore(tmp_path / "bide.db", ManualClock()), ManualClock())
    await harness.open()
    ids = [(await harness.put(labels={"team": "ops"} if n % 2 else {})).id for n in range(10)]
    await harness.store.close()
    with contextlib.closing(sqlite3.connect(tmp_path / "bide.db", isolation_level=None)) as file:
        file.execute("DELETE FROM search_terms")  # as an earlier release leaves it
        file.execute("INSERT INTO search_backfill SELECT '', max(id) FROM jobs")
    await _reopen(harness)
    assert await harness.store.find(OPS) == []
    calls = 1
    while await harness.store.index_old(3):
        calls += 1
    assert calls == 4
    assert [job.id for job in await harness.store.find(OPS)] == ids[1::2][::-1]
    assert not await harness.store.index_old()
    await harness.store.close()


async def test_a_large_sqlite_file_is_indexed_while_the_service_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In every state between two steps a list is complete, or it is refused with the reason."""
    path = tmp_path / "bide.db"
    jobs = _fill_old_file(path)
    monkeypatch.setattr(index_builds, "LARGE", 10)
    harness = StoreHarness(lambda: SqliteStore(path, ManualClock(2000.0)), ManualClock(2000.0))
    await harness.open()
    jobs.append(await harness.put(labels={"team": "ops"}))
    newest = sorted(jobs, key=lambda job: job.id, reverse=True)
    statuses = [
        frozenset[Status](),
        *(frozenset({s}) for s in (Status.DONE, Status.ERROR, Status.PENDING)),
    ]
    refused = states = 0
    more = True
    while more:
        for status, kind in product(statuses, (None, "mail")):
            expected = [j for j in newest if j.status in (status or Status) and kind in (None, j.kind)]
            filter = Filter(tenant="-", status=status, kind=kind, limit=100)
            assert await harness.store.find(filter) == expected, (states, filter)
            assert await harness.store.count(filter, 100) == len(expected), (states, filter)
        failed = Filter(tenant="-", code="BROKEN", limit=100)
        assert await harness.store.find(failed) == [job for job in newest if job.error is not None]
        try:
            found = await harness.store.find(Filter(tenant="-", order="longest", limit=100))
        except QueryTimeout as error:
            assert "after an upgrade" in error.detail
            refused += 1
        else:
            assert found == [job for job in newest if job.finished_at is not None]
        states += 1
        if states in (3, 9):  # the service may be restarted meanwhile, also with blocked jobs
            await harness.store.close()
            with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as file:
                file.execute("UPDATE jobs SET ready = 2 WHERE id = ?", (newest[0].id,))
                await _reopen(harness)
                ready = file.execute("SELECT ready FROM jobs WHERE id = ?", (newest[0].id,))
                assert ready.fetchone() == (1,)
        more = await harness.store.index_old(7)
    assert refused
    assert states > 8
    assert [job.id for job in await harness.store.find(OPS)] == [newest[0].id]
    await harness.store.close()
    with contextlib.closing(sqlite3.connect(path)) as file:
        assert file.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        names = _indexes(file)
    with contextlib.closing(sqlite3.connect(":memory:")) as new:
        for _, sql in migrations.scripts("sqlite"):
            new.executescript(sql)
        assert names == _indexes(new)


def _fill_old_file(path: Path) -> list[Job]:
    """Jobs of the last release without search."""
    failure = ErrorInfo("BROKEN", "on purpose")
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as file:
        for number, sql in migrations.scripts("sqlite"):
            if "search_terms" in sql:
                break
            file.executescript(f"{sql}; PRAGMA user_version = {number}")
        known = {row[1] for row in file.execute("PRAGMA table_info(jobs)")}
        columns = [name for name in FIELDS if name in known]
        insert = f"INSERT INTO jobs ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"
        jobs = []
        for n in range(40):
            ended, failed = n % 10 > 0, n % 5 == 1
            status = Status.PENDING if not ended else Status.ERROR if failed else Status.DONE
            job = Job(
                *(job_id(1000.0 + n, bytes(16)), "mail" if n % 3 else "report", "default"),
                *(1000.0 + n, 1000.0 + n),
                status=status,
                started_at=1001.0 + n if ended else None,
                finished_at=1002.0 + 2 * n if ended else None,
                error=failure if failed else None,
            )
            jobs.append(job)
            named = dict(zip(FIELDS, values_of(job), strict=True))
            file.execute(insert, [named[name] for name in columns])
    return jobs


def _indexes(file: sqlite3.Connection) -> set[str]:
    return {name for (name,) in file.execute("SELECT name FROM sqlite_schema WHERE type = 'index'")}


async def _reopen(harness: StoreHarness) -> None:
    harness.store = harness._make()
    await harness.open()


def prepare_before(first: int, server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the schema of an earlier release: without this migration and later ones."""
    scripts = migrations.scripts
    with monkeypatch.context() as patched:
        patched.setattr(migrations, "scripts", lambda name: [s for s in scripts(name) if s[0] < first])
        prepare(server)


async def test_postgres_indexes_jobs_that_an_older_service_writes_meanwhile(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = PostgresServer(url)
    first = min(n for n, sql in migrations.scripts("postgres") if "search_terms" in sql)
    prepare_before(first, server, monkeypatch)
    with server.connect() as connection:
        _insert(connection, "01AAAAAAAAAAAAAAAAAAAAAAAA")
        applied = await asyncio.to_thread(prepare, server)
        assert applied[0] == first
        _insert(connection, "01BBBBBBBBBBBBBBBBBBBBBBBB")  # by a service that knows no terms
        valid = connection.execute(
            "SELECT bool_and(indisvalid) FROM pg_index WHERE indrelid = 'jobs'::regclass"
        ).fetchone()
        assert valid == (True,)
    store = PostgresStore(url)
    await store.open(lambda events: None)
    try:
        assert [job.id for job in await store.find(OPS)] == ["01BBBBBBBBBBBBBBBBBBBBBBBB"]
        while await store.index_old():
            pass
        assert [job.id[2] for job in await store.find(OPS)] == ["B", "A"]
    finally:
        await store.close()


def _insert(connection: psycopg.Connection[tuple[object, ...]], job_id: str) -> None:
    connection.execute(
        "INSERT INTO jobs (id, kind, queue, created_at, updated_at, tenant, status, version, run, priority, labels, "
        "attempt, max_attempts, failures, losses, fence, ready, tags) VALUES (%s, 'work', 'default', 1, 1, '-', 'DONE', "
        "1, 1, 0, %s, 0, 1, 0, 0, 0, false, %s)",
        (job_id, '{"team":"ops"}', ['["team","ops"]']),
    )


async def test_postgres_replaces_an_index_whose_build_was_interrupted(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = PostgresServer(url)
    indexes = min(n for n, sql in migrations.scripts("postgres") if migrations.concurrent(sql))
    prepare_before(indexes, server, monkeypatch)
    with server.connect() as connection:
        connection.execute(b"CREATE INDEX jobs_facets ON jobs (tenant)")
        connection.execute(
            b"UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'jobs_facets'::regclass"
        )
        await asyncio.to_thread(prepare, server)
        row = connection.execute("SELECT pg_get_indexdef('jobs_facets'::regclass)").fetchone()
        assert row is not None and "status" in str(row[0])


async def test_two_services_build_the_indexes_at_the_same_time(url: str) -> None:
    begin = time.monotonic()
    applied = await asyncio.gather(*(asyncio.to_thread(prepare, PostgresServer(url)) for _ in range(4)))
    assert sorted(number for some in applied for number in some) == [
        number for number, _ in migrations.scripts("postgres")
    ]
    assert time.monotonic() - begin < 30
