"""A database with many jobs: the store makes one finished and one waiting job, SQL copies them."""

from __future__ import annotations

import asyncio

import msgspec
import psycopg

from bide.core.jobs.record import Job
from bide.core.jobs.state_machine import Succeeded
from bide.core.wire.http import job_id
from bide.server.store import ClaimRequest, NewJob
from bide.server.store.postgres.store import PostgresStore

WANT = ClaimRequest("default", ("noop",), 1)
_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def fill(url: str, finished: int, waiting: int) -> None:
    """Jobs of kind noop with inputs and events, and fresh statistics."""
    patterns = asyncio.run(_patterns(url))
    with psycopg.connect(url.partition("?")[0], options="-c search_path=bide") as connection:
        for pattern, count in zip(patterns, (finished, waiting), strict=True):
            _repeat(connection, pattern, count - 1)
    with psycopg.connect(
        url.partition("?")[0], autocommit=True, options="-c search_path=bide"
    ) as connection:
        for table in ("jobs", "inputs", "events"):
            connection.execute(f"VACUUM (FREEZE, ANALYZE) {table}".encode())
        connection.execute("CHECKPOINT")


async def _patterns(url: str) -> tuple[str, str]:
    store = PostgresStore(url)
    await store.open(lambda events: None)
    now = store.now()
    ids = [job_id(now + n, bytes(16)) for n in (0, 1)]
    for n, identity in enumerate(ids):
        job = Job(identity, "noop", "default", now, now, due=now)
        await store.insert([NewJob(job, b'{"n":%d}' % n)])
        if n == 0:
            (claim,) = await store.claim("bench", [WANT], 1, 60.0)
            (done,) = await store.apply([succeeded(claim.job)])
            assert isinstance(done, Job), done
    await store.close()
    return ids[0], ids[1]


def succeeded(job: Job) -> Succeeded:
    return Succeeded(job_id=job.id, owner=job.owner, fence=job.fence, result=msgspec.Raw(b"1"))


def _repeat(connection: psycopg.Connection[tuple[object, ...]], pattern: str, count: int) -> None:
    connection.execute("CREATE TEMP TABLE made (made_id text) ON COMMIT DROP")
    # Ids as bide makes them, of the last months: 10 characters of the time, then 16 random ones.
    random = " || ".join([f"substr('{_ALPHABET}', 1 + floor(random() * 32)::int, 1)"] * 16)
    connection.execute(
        f"INSERT INTO made SELECT left('{pattern}', 4) || lpad(to_hex(n), 6, '0') || {random} "
        f"FROM generate_series(1, {count}) n".encode()
    )
    for table, column in (("jobs", "id"), ("inputs", "job_id"), ("events", "job_id")):
        found = connection.execute(
            "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 AND attidentity = ''",
            (table,),
        )
        names = [str(name) for (name,) in found]
        own = {column: "upper(made_id)"}
        if table == "events":
            own["id"] = "nextval('event_numbers')"
        values = [own.get(name, name) for name in names]
        connection.execute(
            f"INSERT INTO {table} ({', '.join(names)}) SELECT {', '.join(values)} FROM {table}, made "
            f"WHERE {column} = %s".encode(),
            (pattern,),
        )
    connection.commit()


def some_ids(url: str, count: int) -> list[str]:
    """Ids of finished jobs, from the whole table."""
    with psycopg.connect(url.partition("?")[0], options="-c search_path=bide") as connection:
        rows = connection.execute(
            "SELECT id FROM jobs WHERE status = 'DONE' ORDER BY md5(id) LIMIT %s", (count,)
        )
        return [str(found) for (found,) in rows]


def size(url: str) -> int:
    """Bytes of the whole database."""
    with psycopg.connect(url.partition("?")[0]) as connection:
        found = connection.execute("SELECT pg_database_size(current_database())").fetchone()
        assert found is not None
        return int(found[0])


def warm(url: str) -> None:
    """Reads all jobs and the index of their ids, so that they are in the machine's memory."""
    with psycopg.connect(url.partition("?")[0], options="-c search_path=bide") as connection:
        connection.execute(
            "SET enable_indexscan = off; SET enable_indexonlyscan = off; SET enable_bitmapscan = off"
        )
        connection.execute("SELECT count(*) FROM jobs")
        connection.execute(
            "RESET ALL; SET search_path = bide; SET enable_seqscan = off; SET enable_bitmapscan = off"
        )
        connection.execute("SELECT count(*) FROM jobs WHERE id > ''")
