"""Many jobs of several kinds, with labels, errors, steps, terms and a day of rollups, written by bulk SQL."""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import psycopg

from bide.core.errors import ErrorInfo
from bide.core.jobs.histogram import bucket_of
from bide.core.jobs.record import Job, Status, Step
from bide.core.wire.http import job_id
from bide.server.store.postgres.server import PostgresServer
from bide.server.store.postgres.server import prepare as prepare_postgres
from bide.server.store.postgres.transaction import tag
from bide.server.store.rollups import MINUTE, merge
from bide.server.store.rows import COLUMNS, FIELDS, values_of
from bide.server.store.sqlite.file import prepare

DAY = 86400
KINDS = (
    ("noop", "default"),
    ("transcode", "video"),
    ("ocr", "default"),
    ("mail", "default"),
    ("report", "batch"),
)
TEAMS = ("ops", "dev", "web", "data", "search", "sales", "night")
CODES = ("OCR_TIMEOUT", "TIMEOUT", "VALUE_ERROR")
CUSTOMERS, VIDEOS = 10_000, 100_000
BATCH = 20_000
_TERM_COLUMNS = "tenant, value, field, kind, queue, job_id"
_ROLLUP_COLUMNS = "tenant, span, at, kind, queue, name, count"


def jobs(rows: int, now: float) -> Iterator[tuple[Job, str | None]]:
    """Jobs of the last day, the oldest first, and the id of the video of those that have one."""
    rng = random.Random(1)
    for n in range(rows):
        at = now - DAY + n * (DAY - 60) / rows
        kind, queue = KINDS[rng.choices(range(5), (40, 20, 20, 15, 5))[0]]
        status = rng.choices(
            (Status.DONE, Status.ERROR, Status.CANCELLED, Status.PARTIAL_SUCCESS), (90, 7, 2, 1)
        )[0]
        # The team `night` has no transcodes, and no jobs of the development.
        team = rng.choice(TEAMS[:-1] if kind == "transcode" else TEAMS)
        env = "prod" if team == "night" or rng.random() < 0.7 else "dev"
        seconds = rng.lognormvariate(0, 1.5)
        error = None
        if status in (Status.ERROR, Status.PARTIAL_SUCCESS):
            error = ErrorInfo(rng.choice(CODES[:2] if kind == "mail" else CODES), "it went wrong")
        steps = (
            (Step("probe", Status.DONE), Step("transcode", Status.DONE)) if kind == "transcode" else ()
        )
        job = Job(
            job_id(at, rng.randbytes(16)),
            kind,
            queue,
            at,
            at + 1 + seconds,
            status=status,
            version=4,
            labels={"team": team, "env": env, "customer": f"c{rng.randrange(CUSTOMERS)}"},
            attempt=1,
            fence=1,
            started_at=at + 1,
            finished_at=at + 1 + seconds,
            result=msgspec.Raw(b"1"),
            error=error,
            steps=steps,
        )
        yield job, f"v{rng.randrange(VIDEOS)}" if kind == "transcode" else None


def terms(job: Job, video: str | None) -> Iterator[tuple[str, ...]]:
    found = [*((f"label.{name}", value) for name, value in job.labels.items())]
    found += [("step", step.name) for step in job.steps]
    if video is not None:
        found.append(("input.video.id", video))
    for field, value in found:
        yield "-", value, field, job.kind, job.queue, job.id


def rollups(now: float) -> Iterator[tuple[Any, ...]]:
    """Every minute of a day, for every kind."""
    rng = random.Random(2)
    first = int(now) // MINUTE * MINUTE - DAY
    names = ["submitted", "started", "done", *(f"failed:{code}" for code in CODES)]
    names += [f"wait.{bucket_of(0.002 * 2**n)}" for n in range(6)]
    names += [f"run.{bucket_of(0.1 * 2**n)}" for n in range(8)]
    for at in range(first, int(now), MINUTE):
        yield "-", MINUTE, at, "", "", "samples", 3
        for kind, queue in KINDS:
            for name in (*names, "waiting", "running"):
                yield "-", MINUTE, at, kind, queue, name, rng.randrange(1, 200)


def fill_sqlite(path: Path, rows: int) -> None:
    path.parent.mkdir(parents=True)
    prepare(path)
    now = time.time()
    insert = f"INSERT INTO jobs ({COLUMNS}) VALUES ({', '.join('?' * len(FIELDS))})"
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        file.execute("PRAGMA cache_size = -500000")
        file.execute("PRAGMA synchronous = OFF")
        file.execute("BEGIN")
        # Sorted by its key at the end, because random inserts into a large table are slow.
        file.execute("CREATE TEMP TABLE unsorted (tenant, value, field, kind, queue, job_id)")
        for some in _batches(jobs(rows, now)):
            file.executemany(insert, [values_of(job) for job, _ in some])
            inputs = [(job.id, job.tenant, _input(video), None, None) for job, video in some]
            file.executemany(
                "INSERT INTO inputs (job_id, tenant, input, files, search) VALUES (?, ?, ?, ?, ?)",
                inputs,
            )
            file.executemany(
                "INSERT INTO unsorted VALUES (?, ?, ?, ?, ?, ?)",
                [term for job, video in some for term in terms(job, video)],
            )
        file.execute(
            f"INSERT INTO search_terms ({_TERM_COLUMNS}) SELECT * FROM unsorted ORDER BY 1, 2, 3, 4, 5, 6"
        )
        file.executemany(
            f"INSERT INTO rollups ({_ROLLUP_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)", rollups(now)
        )
        while merge(file.execute, now):
            pass
        file.execute("COMMIT")
        file.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def fill_postgres(url: str, rows: int) -> None:
    prepare_postgres(PostgresServer(url))
    now = time.time()
    with (
        psycopg.connect(url, options="-c search_path=bide") as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute("ALTER TABLE jobs DISABLE TRIGGER USER")
        for some in _batches(jobs(rows, now)):
            with cursor.copy(f"COPY jobs ({COLUMNS}, ready, tags) FROM STDIN".encode()) as copy:
                for job, _ in some:
                    copy.write_row(
                        (*values_of(job), False, [tag(*label) for label in job.labels.items()])
                    )
            with cursor.copy("COPY inputs (job_id, tenant, input) FROM STDIN") as copy:
                for job, video in some:
                    copy.write_row((job.id, job.tenant, _input(video)))
            with cursor.copy(f"COPY search_terms ({_TERM_COLUMNS}) FROM STDIN".encode()) as copy:
                for term in sorted(term for job, video in some for term in terms(job, video)):
                    copy.write_row(term)
        with cursor.copy(f"COPY rollups ({_ROLLUP_COLUMNS}) FROM STDIN".encode()) as copy:
            for row in rollups(now):
                copy.write_row(row)
        while merge(lambda sql, values: cursor.execute(sql.replace("?", "%s").encode(), values), now):
            pass
        cursor.execute("ALTER TABLE jobs ENABLE TRIGGER USER")
    with psycopg.connect(url, options="-c search_path=bide", autocommit=True) as connection:
        for table in ("jobs", "inputs", "search_terms", "rollups"):
            connection.execute(f"VACUUM (FREEZE, ANALYZE) {table}".encode())


def fill_old_sqlite(path: Path, rows: int) -> None:
    """Fill the file of an earlier release, whose schema has no terms and no rollups."""
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        file.execute("PRAGMA synchronous = OFF")
        known = {row[1] for row in file.execute("PRAGMA table_info(jobs)")}
        columns = [name for name in FIELDS if name in known]
        insert = f"INSERT INTO jobs ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"
        file.execute("BEGIN")
        for some in _batches(jobs(rows, time.time())):
            file.executemany(insert, [_values(job, columns) for job, _ in some])
            file.executemany(
                "INSERT INTO inputs (job_id, tenant, input) VALUES (?, ?, ?)",
                [(job.id, job.tenant, _input(video)) for job, video in some],
            )
        file.execute("COMMIT")
        file.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def fill_old_postgres(url: str, rows: int) -> None:
    """The same in PostgreSQL."""
    with (
        psycopg.connect(url, options="-c search_path=bide") as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute("SELECT attname FROM pg_attribute WHERE attrelid = 'jobs'::regclass")
        known = {name for (name,) in cursor.fetchall()}
        columns = [name for name in FIELDS if name in known]
        copy_jobs = f"COPY jobs ({', '.join(columns)}, ready, tags) FROM STDIN".encode()
        for some in _batches(jobs(rows, time.time())):
            with cursor.copy(copy_jobs) as copy:
                for job, _ in some:
                    tags = [tag(*label) for label in job.labels.items()]
                    copy.write_row((*_values(job, columns), False, tags))
            with cursor.copy("COPY inputs (job_id, tenant, input) FROM STDIN") as copy:
                for job, video in some:
                    copy.write_row((job.id, job.tenant, _input(video)))
    with psycopg.connect(url, options="-c search_path=bide", autocommit=True) as connection:
        for table in ("jobs", "inputs"):
            connection.execute(f"VACUUM (FREEZE, ANALYZE) {table}".encode())


def _values(job: Job, columns: Sequence[str]) -> list[Any]:
    named = dict(zip(FIELDS, values_of(job), strict=True))
    return [named[name] for name in columns]


def _input(video: str | None) -> str:
    return '{"n":1}' if video is None else f'{{"video":{{"id":"{video}"}},"token":"sesame"}}'


def _batches(found: Iterator[tuple[Job, str | None]]) -> Iterator[list[tuple[Job, str | None]]]:
    batch: list[tuple[Job, str | None]] = []
    for one in found:
        batch.append(one)
        if len(batch) == BATCH:
            yield batch
            batch = []
    if batch:
        yield batch
