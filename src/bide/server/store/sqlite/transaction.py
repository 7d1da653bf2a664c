"""A transaction of the SQLite store, its cache between transactions, and the writer's session."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from bide.core.clock import Clock
from bide.core.jobs.record import Job, Status
from bide.core.wire.http import Event
from bide.server.store import BY_CONTENT, ClaimRequest, InputFile, NewJob, StoreUnavailable, upload_rows
from bide.server.store.job_cache import JobCache
from bide.server.store.rows import COLUMNS, FIELDS, difference, job_of, values_of
from bide.server.store.sqlite.queue_counts import Move, QueueCounts
from bide.server.store.transaction import Due, Transaction, encode, files_of, ready, text_of
from bide.server.store.writer import WriteOperation
from bide.server.upload_record import Upload, UploadStatus

_INSERT = f"INSERT INTO jobs ({COLUMNS}, ready) VALUES ({', '.join('?' * (len(FIELDS) + 1))})"
PAUSED = "SELECT name FROM queues WHERE paused"
BY_ID = f"SELECT {COLUMNS} FROM jobs WHERE id = ?"
_CANDIDATES = (
    f"SELECT {', '.join('j.' + name for name in FIELDS)}, i.input, i.files, j.seq "
    "FROM jobs j JOIN inputs i ON i.job_id = j.id WHERE j.ready = 1 AND j.queue = ? AND j.kind = ? "
    "ORDER BY j.priority DESC, j.seq LIMIT ?"
)
_PRIORITY = FIELDS.index("priority")
_INSERT_INPUT = "INSERT INTO inputs (job_id, tenant, input, files) VALUES (?, ?, ?, ?)"
_LIVE = ", ".join(f"'{status.value}'" for status in Status if not status.terminal)
# The redundant condition `status <> 'DONE'` lets the planner use the partial index on the status.
_HELD = f"SELECT {COLUMNS} FROM jobs WHERE status <> 'DONE' AND status IN ({_LIVE}) AND lease_until IS NOT NULL"
_DUES = (
    "SELECT queue, due FROM jobs WHERE ready = 1 UNION ALL "
    "SELECT queue, due FROM jobs WHERE ready = 0 AND due IS NOT NULL"
)
_EVENT = "INSERT INTO events (id, tenant, job_id, type, at, job) VALUES (?, ?, ?, ?, ?, ?)"
UPLOAD = f"SELECT {upload_rows.READ} FROM uploads WHERE id = ?"
_PUT_UPLOAD = (
    f"INSERT INTO uploads ({upload_rows.COLUMNS}) VALUES ({', '.join('?' * len(upload_rows.FIELDS))}) "
    f"ON CONFLICT DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in upload_rows.CHANGED)}"
)
_THIS_KEY = "tenant = ? AND kind = ? AND key = ?"
_OLD_KEYS = (
    "SELECT k.tenant, k.kind, k.key, j.id, j.finished_at FROM keys k LEFT JOIN jobs j ON j.id = k.job_id "
    "WHERE k.at <= ? ORDER BY k.at LIMIT ?"
)
_END_OF_KEY = (
    "UPDATE keys SET at = coalesce((SELECT finished_at FROM jobs WHERE id = ?), ?) WHERE job_id = ?"
)
_TOMBSTONE = "INSERT OR REPLACE INTO tombstones (id, tenant, at) VALUES (?, ?, ?)"

MAX_UPLOADS = 20_000  # in the cache
MAX_UPLOAD_RECORD = 4096  # bytes of a cached record


class SqliteCache:
    """The cache between transactions: held jobs, jobs that polls have read, incomplete uploads, the counts of each queue,
    and the last event's number.

    Only the writer changes jobs and uploads, so the cache always matches the file.
    """

    def __init__(self) -> None:
        self.held: dict[str, Job] = {}
        self.jobs = JobCache()
        self.uploads: dict[str, Upload] = {}  # the oldest first
        self.counts = QueueCounts()
        self.paused: frozenset[str] | None = None  # None: must be read
        self.last_event: int | None = None  # None: not loaded yet

    def load(self, connection: sqlite3.Connection, now: float) -> int:
        """Fill the cache from the file, once. Return the number of the last event."""
        if self.last_event is None:
            self.counts.load(connection.execute(_DUES), now)
            self.held = {job.id: job for job in map(job_of, connection.execute(_HELD))}
            row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'events'").fetchone()
            self.last_event = row[0] if row is not None else 0
        return self.last_event


class SqliteTransaction(Transaction):
    """`Transaction` on the writer's connection."""

    __slots__ = ("_cache", "_execute", "_executemany", "_moves", "_number", "pauses")

    def __init__(self, cache: SqliteCache, connection: sqlite3.Connection, now: float) -> None:
        super().__init__(now)
        self._execute = connection.execute
        self._executemany = connection.executemany
        self._cache = cache
        self._number = cache.load(connection, now)
        self._moves: list[Move] = []
        self.pauses = False  # a queue was paused or resumed

    def execute(self, sql: str, values: Sequence[Any] = ()) -> sqlite3.Cursor:
        return self._execute(sql, values)

    # --- reads

    def read(self, job_id: str) -> Job | None:
        job = self._cache.held.get(job_id)
        if job is None:
            row = self._execute(BY_ID, (job_id,)).fetchone()
            job = None if row is None else job_of(row)
        return job

    def held(self) -> list[Job]:
        """Every job that a worker holds."""
        known = [
            *self._cache.held,
            *(job_id for job_id in self._jobs if job_id not in self._cache.held),
        ]
        return [job for job_id in known if (job := self.job(job_id)) is not None and job.held]

    def candidates(self, request: ClaimRequest, limit: int) -> list[Due]:
        self.flush_changes()
        rows = [
            row
            for kind in request.kinds
            for row in self._execute(_CANDIDATES, (request.queue, kind, limit)).fetchall()
        ]
        if len(request.kinds) > 1:
            rows.sort(key=lambda row: (-row[_PRIORITY], row[-1]))
        return [_due(row) for row in rows[:limit]]

    def paused(self, *, sure: bool = False) -> frozenset[str]:
        known = None if self.pauses else self._cache.paused
        if known is None:
            known = frozenset(name for (name,) in self._execute(PAUSED))
            if not self.pauses:
                self._cache.paused = known
        return known

    def key(self, tenant: str, kind: str, key: str) -> tuple[bytes, str] | None:
        sql = "SELECT fingerprint, job_id FROM keys WHERE tenant = ? AND kind = ? AND key = ?"
        row: tuple[bytes, str] | None = self._execute(sql, (tenant, kind, key)).fetchone()
        return row

    def steps(self, job_id: str, limit: int) -> dict[str, msgspec.Raw]:
        found: dict[str, msgspec.Raw] = {}
        # The cursor reads rows on demand, so results that do not fit stay on disk.
        for name, text in self._execute("SELECT name, result FROM steps WHERE job_id = ?", (job_id,)):
            result = text.encode()
            limit -= len(result)
            if limit < 0:
                break
            found[name] = msgspec.Raw(result)
        return found

    def was_removed(self, job_id: str) -> bool:
        return self._execute("SELECT 1 FROM tombstones WHERE id = ?", (job_id,)).fetchone() is not None

    # --- writes

    def create(self, new: NewJob) -> None:
        if new.job.id in self._new:  # the error that the table itself would raise
            raise sqlite3.IntegrityError(f"job {new.job.id} exists already")
        super().create(new)

    def number(self) -> int:
        self._number += 1
        return self._number

    def pause(self, queue: str, paused: bool) -> None:
        self.pauses = True
        self._execute(
            "INSERT INTO queues (tenant, name, paused) VALUES ('-', ?, ?) "
            "ON CONFLICT DO UPDATE SET paused = excluded.paused",
            (queue, paused),
        )

    def keep_key(self, new: NewJob) -> None:
        job = new.job
        self._execute(
            "INSERT INTO keys (tenant, kind, key, fingerprint, job_id, at) VALUES (?, ?, ?, ?, ?, ?)",
            (job.tenant, job.kind, new.key, new.fingerprint, job.id, self.now),
        )

    def keep_step(self, job: Job, name: str, result: msgspec.Raw) -> None:
        self._execute(
            "INSERT OR REPLACE INTO steps (job_id, name, tenant, result, at) VALUES (?, ?, ?, ?, ?)",
            (job.id, name, job.tenant, bytes(result).decode(), self.now),
        )

    def delete_rows(self, job_id: str, tenant: str) -> None:
        self._execute(_END_OF_KEY, (job_id, self.now, job_id))
        self._execute(
            "DELETE FROM keys WHERE job_id = ? AND substr(key, 1, 1) = ?", (job_id, BY_CONTENT)
        )
        row = self._execute("DELETE FROM jobs WHERE id = ? RETURNING queue, due", (job_id,)).fetchone()
        if row is not None and row[1] is not None:
            self._moves.append((row[0], row[1], None))
        for table in ("inputs", "steps", "events", "upload_uses"):
            self._execute(f"DELETE FROM {table} WHERE job_id = ?", (job_id,))
        self._execute(_TOMBSTONE, (job_id, tenant, self.now))

    def check_writable(self) -> None:
        self._execute("INSERT OR REPLACE INTO write_check (id, at) VALUES (1, ?)", (self.now,))

    def expire_keys(self, age: float, limit: int) -> None:
        """Remove the keys whose job ended `age` seconds ago. `at` is the time from which a key is checked again."""
        ended = self.now - age
        rows = self._execute(_OLD_KEYS, (ended, limit)).fetchall()
        for *key, job_id, finished_at in rows:
            if job_id is None or (finished_at is not None and finished_at <= ended):
                self._execute(f"DELETE FROM keys WHERE {_THIS_KEY}", key)
            else:
                at = self.now if finished_at is None else finished_at
                self._execute(f"UPDATE keys SET at = ? WHERE {_THIS_KEY}", (at, *key))

    def learn(self, durations: dict[str, dict[str, Any]]) -> None:
        self._executemany(
            "INSERT INTO durations (tenant, kind, sketch) VALUES ('-', ?, ?) "
            "ON CONFLICT DO UPDATE SET sketch = excluded.sketch",
            [(kind, encode(sketch).decode()) for kind, sketch in durations.items()],
        )

    def flush_new(self) -> None:
        for job_id, new in self._new.items():
            job = self._jobs[job_id]
            assert job is not None
            self._execute(_INSERT, (*values_of(job), ready(job, self.now)))
            if job.due is not None:
                self._moves.append((job.queue, None, job.due))
            self._execute(_INSERT_INPUT, (job_id, job.tenant, new.input.decode(), text_of(new.files)))
        self._new.clear()

    def flush_changes(self) -> None:
        for job_id, before in self._stored.items():
            after = self._jobs[job_id]
            assert after is not None
            self._save(before, after)
        self._stored.clear()

    def keep_files(self, job_id: str, files: Sequence[InputFile]) -> None:
        self.flush_new()
        self._execute("UPDATE inputs SET files = ? WHERE job_id = ?", (text_of(files), job_id))

    def read_upload(self, upload_id: str) -> Upload | None:
        known = self._cache.uploads.get(upload_id)
        if known is not None:
            return known
        row = self._execute(UPLOAD, (upload_id,)).fetchone()
        return None if row is None else upload_rows.upload_of(row)

    def user_of(self, upload_id: str) -> str | None:
        row = self._execute(
            "SELECT job_id FROM upload_uses WHERE upload_id = ? LIMIT 1", (upload_id,)
        ).fetchone()
        return None if row is None else row[0]

    def flush_uploads(self) -> None:
        if not self._touched and not self._uses:
            return
        put, removed = self.take_touched()
        self._executemany(_PUT_UPLOAD, [upload_rows.values_of(upload) for upload in put])
        for upload_id in removed:
            self._execute("DELETE FROM uploads WHERE id = ?", (upload_id,))
            self._execute(_TOMBSTONE, (upload_id, "-", self.now))
        self._executemany("INSERT OR IGNORE INTO upload_uses VALUES (?, ?, ?)", self.take_uses())

    def _save(self, before: Job, after: Job) -> None:
        """Write a changed job, conditional on the version and fence that were read."""
        columns = difference(before, after)
        if not columns:  # a lease that was renewed twice in the same instant
            return
        if "due" in columns:
            columns["ready"] = ready(after, self.now)
        assignments = ", ".join(f"{name} = ?" for name in columns)
        cursor = self._execute(
            f"UPDATE jobs SET {assignments} WHERE id = ? AND version = ? AND fence = ?",
            (*columns.values(), before.id, before.version, before.fence),
        )
        assert cursor.rowcount == 1, f"{before.id} changed within its own transaction"
        if "due" in columns:
            self._moves.append((after.queue, before.due, after.due))

    def finish(self) -> None:
        """Write deferred rows and events; called right before the commit."""
        self.flush()
        if self.events:
            rows = [
                (e.id, e.tenant, e.job_id, e.type, e.at, encode(e.job).decode()) for e in self.events
            ]
            self._executemany(_EVENT, rows)

    def committed(self) -> None:
        """Update the cache; called right after the commit."""
        self._cache.last_event = self._number
        if self._moves:
            self._cache.counts.moved(self._moves, self.now)
        if self.pauses:
            self._cache.paused = None
        held = self._cache.held
        for job_id, job in self._jobs.items():
            if job is not None and job.held:
                held[job_id] = job
            else:
                held.pop(job_id, None)
        self._cache.jobs.invalidate(self._jobs)
        if self._uploads:
            self._cache_uploads(self._cache.uploads)

    def _cache_uploads(self, known: dict[str, Upload]) -> None:
        for upload_id, upload in self._uploads.items():
            known.pop(upload_id, None)
            if upload is not None and upload.status is UploadStatus.UPLOADING and _is_small(upload):
                known[upload_id] = upload
        while len(known) > MAX_UPLOADS:
            del known[next(iter(known))]


def _is_small(upload: Upload) -> bool:
    """Whether the record is small enough to cache many of them."""
    size = len(upload.metadata) + len(upload.chunks)
    if upload.submission is not None:
        size += len(memoryview(upload.submission))
    return size <= MAX_UPLOAD_RECORD


def _due(row: tuple[Any, ...]) -> Due:
    input_, files = row[len(FIELDS) : len(FIELDS) + 2]
    return job_of(row), input_.encode(), files_of(files)


class SqliteSession:
    """`WriteSession` on a connection of its own."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        clock: Clock,
        cache: SqliteCache,
        explain: Callable[[sqlite3.Error], str | None] = lambda error: None,
    ) -> None:
        self._connection = connection
        self._clock = clock
        self._cache = cache
        self._explain = explain

    def transact(self, operations: Sequence[WriteOperation]) -> tuple[list[Any], list[Event]]:
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        try:
            tx = SqliteTransaction(self._cache, connection, self._clock.now())
            results = [operation.run(tx) for operation in operations]
            tx.finish()
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        tx.committed()
        return results, tx.events

    def translate_error(self, error: Exception) -> Exception:
        reason = self._explain(error) if isinstance(error, sqlite3.DatabaseError) else None
        if reason is None:
            return error
        unwritable = StoreUnavailable(reason)
        unwritable.__cause__ = error
        return unwritable

    def close(self) -> None:
        self._connection.close()
