"""Search after an upgrade: indexes and terms of jobs that an earlier release has stored, while others submit."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import time
from pathlib import Path

import psycopg
import pytest

from bide.server.store import Filter, Term, migrations
from bide.server.store.postgres.server import PostgresServer, prepare
from bide.server.store.postgres.store import PostgresStore
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
