"""Data folders with many jobs: a service makes one finished and one waiting job, SQL copies them."""

from __future__ import annotations

import os
import random
import sqlite3
import time
from contextlib import closing
from pathlib import Path

from bench.service import servers
from bide.core.wire.http import job_id


def fill(folder: Path, finished: int, waiting: int) -> None:
    """Jobs of kind noop with their inputs and events; the queue is paused."""
    with servers.bide(folder) as site:
        done = site.run("noop", n=1)["jobId"]
        site.ask("POST", "/queues/default/pause")
        waits = site.ask("POST", "/jobs", {"kind": "noop", "input": {"n": 2}}).json()["jobId"]
    with closing(sqlite3.connect(folder / "data" / "bide.db", isolation_level=None)) as database:
        database.execute("BEGIN")
        _repeat(database, done, finished - 1)
        _repeat(database, waits, waiting - 1)
        database.execute("COMMIT")
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _repeat(database: sqlite3.Connection, pattern: str, count: int) -> None:
    now = time.time()
    ids = [(job_id(now - n / 100, os.urandom(16)),) for n in range(count)]
    database.execute("CREATE TEMP TABLE made (made_id TEXT)")
    database.executemany("INSERT INTO made VALUES (?)", ids)
    for table, column in (("jobs", "id"), ("inputs", "job_id"), ("events", "job_id")):
        described = database.execute(f"PRAGMA table_info({table})").fetchall()
        # The database assigns generated numbers.
        names = [name for _, name, kind, _, _, key in described if not (key and kind == "INTEGER")]
        values = ["replace(job, ?1, made_id)" if name == "job" else name for name in names]
        values = ["made_id" if name == column else name for name in values]
        database.execute(
            f"INSERT INTO {table} ({', '.join(names)}) SELECT {', '.join(values)} "
            f"FROM {table}, made WHERE {column} = ?1",
            (pattern,),
        )
    database.execute("DROP TABLE made")


def finished_ids(database: Path, count: int, rng: random.Random) -> list[str]:
    """Some ids, from the whole store."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        rows = connection.execute("SELECT id FROM jobs WHERE status = 'DONE'").fetchall()
    return rng.sample([found for (found,) in rows], min(count, len(rows)))
