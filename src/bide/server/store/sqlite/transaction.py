"""A transaction of the SQLite store, and its cache between transactions."""

from __future__ import annotations

import sqlite3
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial
from itertools import chain, compress
from operator import is_not
from typing import Any

import msgspec
from msgspec.structs import astuple

from bide.core.jobs.fair import PRIORITY_STEP, Slice, start_order
from bide.core.jobs.record import Job, Status
from bide.server.store import BY_CONTENT, RECORDS, ClaimRequest, NewJob, rollups, upload_rows
from bide.server.store.job_cache import JobCache
from bide.server.store.rows import COLUMNS, FIELDS, difference, job_of, values_of
from bide.server.store.sqlite import index_builds
from bide.server.store.sqlite.queue_counts import Move, QueueCounts
from bide.server.store.transaction import (
    STRANDED,
    Due,
    Key,
    RowChanges,
    TextRow,
    TextTable,
    Transaction,
    changed_terms,
    encode,
    files_of,
    input_terms,
    label_terms,
    ready,
    step_terms,
    text_of,
)
from bide.server.upload_record import Upload, UploadStatus

PAUSED = "SELECT name FROM queues WHERE paused"
BY_TOMBSTONE = "SELECT tenant FROM tombstones WHERE id = ?"
BY_ID = f"SELECT {COLUMNS} FROM jobs WHERE id = ?"
_WAITING = "jobs j WHERE j.ready = 1 AND j.queue = ? AND j.kind = ?"
# The expression of the index.
_ORDER = (
    "(CASE WHEN j.run > 1 THEN j.due ELSE max(j.created_at, coalesce(j.run_at, 0)) END "
    f"- {PRIORITY_STEP:.0f}.0 * j.priority)"
)
_DUE_JOB = f"SELECT {', '.join('j.' + name for name in FIELDS)}, i.input, i.files, {_ORDER}, j.seq "
_DUE_JOBS = f"{_DUE_JOB} FROM {_WAITING.replace('WHERE', 'JOIN inputs i ON i.job_id = j.id WHERE')}"
_OF_TENANT = f"{_DUE_JOBS} AND j.tenant = ? ORDER BY {_ORDER}, j.seq LIMIT ?"
# The first job of the next tenant.
_OF_NEXT = f"{_DUE_JOBS} AND j.tenant > ? ORDER BY j.tenant, {_ORDER}, j.seq LIMIT 1"
# The places and ids of the first jobs, of any tenant, in one row; and whether a tenant after this one has jobs.
_FIRST = (
    "SELECT group_concat(seq || ' ' || id, char(10)) FROM "
    f"(SELECT j.id, j.seq FROM {_WAITING} ORDER BY j.tenant, {_ORDER}, j.seq LIMIT ?)"
)
_AT_PLACES = f"{_DUE_JOB} FROM jobs j JOIN inputs i ON i.job_id = j.id WHERE j.seq IN (SELECT value FROM json_each(?))"
_HAS_NEXT = f"SELECT 1 FROM {_WAITING} AND j.tenant > ? LIMIT 1"
_TENANT = FIELDS.index("tenant")
_DUE_AT, _READY = FIELDS.index("due"), len(FIELDS)
_NAMES = (*FIELDS, "ready")
_INDICES, _NULLS = range(len(FIELDS)), (None,) * len(FIELDS)
_RUNNING = "SELECT count(*) FROM jobs WHERE concurrency_key = ? AND lease_until IS NOT NULL"
_OF_STRANDED = "SELECT DISTINCT queue, kind FROM jobs WHERE ready = 2 AND concurrency_key = ?"
# `ready` is 2: the job is due, and waits until a job with its concurrency key is released.
_BLOCK = "UPDATE jobs SET ready = 2 WHERE id = ?"
_UNBLOCK = (
    "UPDATE jobs SET ready = 1 WHERE seq IN (SELECT j.seq FROM jobs j WHERE j.ready = 2 AND j.concurrency_key = ? "
    f"ORDER BY {_ORDER}, j.seq LIMIT ?)"
)
_STRANDED_KEYS = (
    "SELECT DISTINCT j.concurrency_key FROM jobs j WHERE j.ready = 2 AND NOT EXISTS (SELECT 1 FROM jobs h "
    "WHERE h.concurrency_key = j.concurrency_key AND h.lease_until IS NOT NULL)"
)
_INSERT_INPUT = "INSERT INTO inputs (job_id, tenant, input) VALUES (?, ?, ?)"
_INSERT_LONG_INPUT = "INSERT INTO inputs (job_id, tenant, input, files, search) VALUES (?, ?, ?, ?, ?)"
_INSERT_TERM = "INSERT OR IGNORE INTO search_terms (tenant, value, field, kind, queue, job_id) VALUES (?, ?, ?, ?, ?, ?)"
_ADD_ROLLUP = (
    f"INSERT INTO rollups (tenant, span, at, kind, queue, name, count) VALUES (?, {rollups.MINUTE}, ?, ?, ?, ?, ?) "
    + rollups.ADD
)
_DELETE_TERM = (
    "DELETE FROM search_terms WHERE (tenant, value, field, kind, queue, job_id) = (?, ?, ?, ?, ?, ?)"
)
_OLD = f"SELECT {COLUMNS} FROM jobs WHERE id > ? AND id <= ? ORDER BY id LIMIT ?"
_LIVE = ", ".join(f"'{status.value}'" for status in Status if not status.terminal)
# Skips from tenant to tenant along the index, so that ended jobs are not read.
_TENANTS = (
    "WITH RECURSIVE tenants(tenant) AS ("
    "SELECT min(tenant) FROM jobs INDEXED BY jobs_facets WHERE tenant >= ''{listed} UNION ALL "
    "SELECT (SELECT min(tenant) FROM jobs INDEXED BY jobs_facets WHERE tenant > t.tenant{listed}) FROM tenants t "
    "WHERE t.tenant IS NOT NULL)"
)
_HELD = (
    f"{_TENANTS} SELECT {', '.join('j.' + name for name in FIELDS)} FROM tenants t CROSS JOIN jobs j INDEXED BY jobs_facets "
    f"WHERE j.tenant = t.tenant AND j.status IN ({_LIVE}) AND j.lease_until IS NOT NULL{{listed}}"
)
# The same while some jobs are not in that index yet.
_HELD_MEANWHILE = (
    f"SELECT {COLUMNS} FROM jobs INDEXED BY jobs_status WHERE status <> 'DONE' AND status IN ({_LIVE}) "
    "AND lease_until IS NOT NULL"
)
_DUES = (
    "SELECT queue, due FROM jobs WHERE ready = 1 UNION ALL SELECT queue, due FROM jobs {blocked} UNION ALL "
    "SELECT queue, due FROM jobs WHERE ready = 0 AND due IS NOT NULL"
)
BLOCKED = "WHERE ready = 2"
# The same while its index is not built yet.
BLOCKED_MEANWHILE = (
    f"INDEXED BY jobs_status WHERE status <> 'DONE' AND status IN ({_LIVE}) AND ready = 2"
)
_EVENT = "INSERT INTO events (id, tenant, job_id, type, at, job) VALUES (?, ?, ?, ?, ?, ?)"
_LAST_OUTPUT = (
    "SELECT job FROM events WHERE tenant = ? AND job_id = ? AND type = 'output' ORDER BY id DESC LIMIT 1"
)
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
_END_OF_CONTENT_KEY = "DELETE FROM keys WHERE job_id = ? AND substr(key, 1, 1) = ?"
_INSERT_KEY = "INSERT INTO keys (tenant, kind, key, fingerprint, job_id, at) VALUES (?, ?, ?, ?, ?, ?)"
_REPLACE_KEY = (
    "UPDATE keys SET fingerprint = ?4, job_id = ?5, at = ?6 WHERE tenant = ?1 AND kind = ?2 AND key = ?3"
)
_PUT_STEP = "INSERT OR REPLACE INTO steps (job_id, name, tenant, result, at) VALUES (?, ?, ?, ?, ?)"
_PAUSE = (
    "INSERT INTO queues (tenant, name, paused) VALUES ('-', ?, ?) "
    "ON CONFLICT DO UPDATE SET paused = excluded.paused"
)
_PUT_DURATIONS = (
    "INSERT INTO durations (tenant, kind, sketch) VALUES ('-', ?, ?) "
    "ON CONFLICT DO UPDATE SET sketch = excluded.sketch"
)
_PUT_LOG = "INSERT OR REPLACE INTO log_state (name, text) VALUES (?, ?)"
# A later event may have an earlier time, because the clock was set back.
_RAISE_FLOOR = (
    "UPDATE log_state SET text = CAST(max(CAST(text AS INTEGER), ?) AS TEXT) WHERE name = 'floor'"
)
# The condition on the type is that of the partial index.
_OLD_EVENTS = "DELETE FROM events WHERE type IN ('deleted', 'queue') AND at <= ? RETURNING id"
_PUT_TEXT: dict[TextTable, str] = {"durations": _PUT_DURATIONS, "log": _PUT_LOG}
_RECORD = "SELECT text FROM records WHERE tenant = ? AND collection = ? AND name = ?"
_PUT_RECORD = "INSERT OR REPLACE INTO records (tenant, collection, name, text) VALUES (?, ?, ?, ?)"
_END_OF_RECORD = "DELETE FROM records WHERE tenant = ? AND collection = ? AND name = ?"
_END_OF_EVENTS = "DELETE FROM events WHERE tenant = ? AND job_id = ? AND type <> 'deleted'"
_USER = (
    "SELECT u.job_id FROM upload_uses u LEFT JOIN jobs j ON j.id = u.job_id WHERE u.upload_id = ? "
    "AND (? IS NULL OR j.finished_at IS NULL OR j.finished_at > ?) LIMIT 1"
)
_END_OF_USE = "DELETE FROM upload_uses WHERE upload_id = ? AND job_id = ?"
_DUE = "ready = 0 AND due <= ?"
_NEXT_DUE = "SELECT min(due) FROM jobs WHERE ready = 0 AND due IS NOT NULL"
# A child job stays after its retention while its parent may need its result, in a later run too.
_EXPIRED = (
    f"SELECT {COLUMNS} FROM jobs WHERE expires_at <= ? AND NOT EXISTS (SELECT 1 FROM jobs p "
    "WHERE p.id = jobs.parent AND p.status <> 'DONE') LIMIT ?"
)
_TOMBSTONE = "INSERT OR REPLACE INTO tombstones (id, tenant, at) VALUES (?, ?, ?)"

_read_search = msgspec.json.Decoder(tuple[tuple[str, str], ...])
EXPIRED_KEYS = 1000  # that one transaction checks at least
MAX_WAITING, MAX_INPUT = 5000, 1024  # jobs in the cache, and bytes of the input of each
MAX_UPLOADS = 20_000  # in the cache
MAX_ROWS = 64  # that one statement writes
MAX_UPLOAD_RECORD = 4096  # bytes of a cached record


class SqliteCache:
    """The cache between transactions: held jobs, new jobs that wait, jobs that polls have read, incomplete uploads, the
    counts of each queue, and the last event's number.

    Only the writer changes jobs and uploads, so the cache always matches the file.
    """

    def __init__(self) -> None:
        self.held: dict[str, Job] = {}
        # New jobs that were claimable at once, until they change. A claim need not read their rows.
        self.waiting: dict[str, Due] = {}
        self.jobs = JobCache()
        self.uploads: OrderedDict[str, Upload] = OrderedDict()  # the oldest first
        self.counts = QueueCounts()
        self.paused: frozenset[str] | None = None  # None: must be read
        self.last_event: int | None = None  # None: not loaded yet
        self.sliced = False  # whether indexes have the condition of `index_builds`
        self.building = False  # whether some indexes are not complete yet
        self.blocked = BLOCKED  # the blocked jobs at the start

    def load(self, connection: sqlite3.Connection, now: float) -> int:
        """Fill the cache from the file, once. Return the number of the last event."""
        if self.last_event is None:
            self.sliced = index_builds.is_sliced(connection)
            self.building = index_builds.is_building(connection)
            held = _HELD.format(listed=f" AND {index_builds.LISTED}" if self.sliced else "")
            if index_builds.is_listing(connection):
                held, self.blocked = _HELD_MEANWHILE, BLOCKED_MEANWHILE
            self.counts.load(connection.execute(_DUES.format(blocked=self.blocked)), now)
            self.held = {job.id: job for job in map(job_of, connection.execute(held))}
            row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'events'").fetchone()
            self.last_event = row[0] if row is not None else 0
        return self.last_event


class SqliteTransaction(Transaction):
    """`Transaction` on the writer's connection."""

    __slots__ = ("_cache", "_execute", "_executemany", "_inserted", "_moves", "_number")

    def __init__(self, cache: SqliteCache, connection: sqlite3.Connection, now: float) -> None:
        super().__init__(now)
        self._execute = connection.execute
        self._executemany = connection.executemany
        self._cache = cache
        self._number = cache.load(connection, now)
        self._moves: list[Move] = []
        self._inserted: list[NewJob] = []

    def execute(self, sql: str, values: Sequence[Any] = ()) -> sqlite3.Cursor:
        return self._execute(sql, values)

    # --- reads

    def read_job(self, job_id: str) -> Job | None:
        job = self._cache.held.get(job_id)
        if job is None:
            row = self._execute(BY_ID, (job_id,)).fetchone()
            job = None if row is None else job_of(row)
        return job

    def read_upload(self, upload_id: str) -> Upload | None:
        known = self._cache.uploads.get(upload_id)
        if known is not None:
            return known
        row = self._execute(UPLOAD, (upload_id,)).fetchone()
        return None if row is None else upload_rows.upload_of(row)

    def read_key(self, key: Key) -> tuple[bytes, str] | None:
        row: tuple[bytes, str] | None = self._execute(
            f"SELECT fingerprint, job_id FROM keys WHERE {_THIS_KEY}", key
        ).fetchone()
        return row

    def read_steps(self, job_id: str, limit: int) -> dict[str, msgspec.Raw]:
        found: dict[str, msgspec.Raw] = {}
        # The cursor reads rows on demand, so results that do not fit stay on disk.
        for name, text in self._execute("SELECT name, result FROM steps WHERE job_id = ?", (job_id,)):
            result = text.encode()
            limit -= len(result)
            if limit < 0:
                break
            found[name] = msgspec.Raw(result)
        return found

    def read_paused(self, *, sure: bool = False) -> frozenset[str]:
        known = self._cache.paused
        if known is None:
            known = frozenset(name for (name,) in self._execute(PAUSED))
            if not self._pauses:  # otherwise the table may have rows that are not committed
                self._cache.paused = known
        return known

    def read_text(self, table: TextTable, name: str, tenant: str = "-") -> str | None:
        if table == "tombstones":
            row = self._execute(BY_TOMBSTONE, (name,)).fetchone()
            return None if row is None else row[0]
        row = self._execute(_RECORD, (tenant, table, name)).fetchone()
        return None if row is None else row[0]

    def read_uses(self, *, upload: str = "", job: str = "", ended: float | None = None) -> list[str]:
        if job:
            rows = self._execute("SELECT upload_id FROM upload_uses WHERE job_id = ?", (job,))
        else:
            rows = self._execute(_USER, (upload, ended, ended))
        return [found for (found,) in rows]

    def running_counts(self, tenants: Sequence[str]) -> Counter[tuple[str, str]]:
        counts = super().running_counts(tenants)
        for job_id, job in self._cache.held.items():
            if job_id not in self._jobs and job.tenant in tenants:
                counts[job.tenant, job.kind] += 1
        return counts

    def last_output(self, job: Job) -> dict[str, Any] | None:
        row = self._execute(_LAST_OUTPUT, (job.tenant, job.id)).fetchone()
        return None if row is None else msgspec.json.decode(row[0])

    def candidates(self, request: ClaimRequest, slice_: Slice) -> list[Due]:
        self.flush_changes()
        # The claim that follows a submission to an idle service need not search. The others do in any case.
        if self._new and not self._may_have_due(request.queue):
            return []
        found = self._of_only_tenant(request, slice_) if slice_.alone else None
        if found is None:
            found = [_due(row) for row in self._of_tenants(request, slice_)]
        if not request.concurrency:
            return found
        keys = {due.job.concurrency_key for due in found} - {None}
        running = {key: self._execute(_RUNNING, (key,)).fetchone()[0] for key in keys}
        return [due._replace(running=running.get(due.job.concurrency_key, 0)) for due in found]

    def _may_have_due(self, queue: str) -> bool:
        """Whether a stored job of the queue may be claimable, by the counts of the cache."""
        return self._cache.counts.has_waiting(queue, self.now) or any(
            after is not None and name == queue for name, _, after in self._moves
        )

    def _of_only_tenant(self, request: ClaimRequest, slice_: Slice) -> list[Due] | None:
        """The jobs of the tenant `after`; None if another tenant has claimable jobs."""
        queue, tenant, limit = request.queue, slice_.after, slice_.each
        places: dict[str, int] = {}  # by job
        for kind in request.kinds:
            (text,) = self._execute(_FIRST, (queue, kind, limit)).fetchone()
            if text is not None:
                first = [line.split(" ", 1) for line in text.split("\n")]
                if (
                    len(first) == limit
                    and self._execute(_HAS_NEXT, (queue, kind, tenant)).fetchone() is not None
                ):
                    return None
                places.update((job_id, int(place)) for place, job_id in first)
        found = self._at(places)
        if any(due.job.tenant != tenant for due in found):
            return None
        found.sort(key=lambda due: (start_order(due.job), places[due.job.id]))
        return found[:limit]

    def _at(self, places: dict[str, int]) -> list[Due]:
        """The jobs at these places. Those in the cache are not read."""
        cached = self._cache.waiting
        found = [cached[job_id] for job_id in places if job_id in cached and job_id not in self._jobs]
        if len(found) < len(places):
            known = {due.job.id for due in found}
            others = [place for job_id, place in places.items() if job_id not in known]
            rows = self._execute(_AT_PLACES, (encode(others).decode(),)).fetchall()
            found += [_due(row) for row in rows]
        return found

    def _of_tenant(
        self, queue: str, kinds: Iterable[str], tenant: str, limit: int
    ) -> list[tuple[Any, ...]]:
        found = [self._execute(_OF_TENANT, (queue, kind, tenant, limit)).fetchall() for kind in kinds]
        return _merged([rows for rows in found if rows], limit)

    def _of_tenants(self, request: ClaimRequest, slice_: Slice) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = []
        tenants = 0
        for after, last in ((slice_.after, None), ("", slice_.after)):
            # By kind: the first job of its next tenant.
            heads = self._heads(request.queue, request.kinds, after)
            while heads and tenants < slice_.tenants:
                tenant = min(row[_TENANT] for row in heads.values())
                if last is not None and tenant > last:
                    break
                tenants += 1
                own = {kind: row for kind, row in heads.items() if row[_TENANT] == tenant}
                limit = slice_.limit(tenant)
                if limit == 1:
                    rows.append(min(own.values(), key=_place))
                else:
                    rows += self._of_tenant(request.queue, own, tenant, limit)
                if tenants < slice_.tenants:
                    for kind in own:
                        del heads[kind]
                    heads.update(self._heads(request.queue, own, tenant))
        return rows

    def _heads(self, queue: str, kinds: Iterable[str], after: str) -> dict[str, tuple[Any, ...]]:
        """By kind: the first job of the next tenant."""
        found = {kind: self._execute(_OF_NEXT, (queue, kind, after)).fetchone() for kind in kinds}
        return {kind: row for kind, row in found.items() if row is not None}

    # --- upkeep

    def wake(self) -> tuple[set[tuple[str, str]], float | None]:
        pairs = set(self._execute(f"SELECT DISTINCT queue, kind FROM jobs WHERE {_DUE}", (self.now,)))
        if pairs:
            self._execute(f"UPDATE jobs SET ready = 1 WHERE {_DUE}", (self.now,))
        (following,) = self._execute(_NEXT_DUE).fetchone()
        return pairs, following

    def unblock_stranded(self) -> set[tuple[str, str]]:
        pairs: set[tuple[str, str]] = set()
        for (key,) in self._execute(_STRANDED_KEYS).fetchall():
            pairs |= set(self._execute(_OF_STRANDED, (key,)))
            self._execute(_UNBLOCK, (key, STRANDED))
        return pairs

    def expire(self, tombstones: float, keys: float, limit: int) -> list[Job]:
        self._execute("DELETE FROM tombstones WHERE at <= ?", (tombstones,))
        old = self._execute(_OLD_EVENTS, (tombstones,)).fetchall()
        if old:
            self._execute(_RAISE_FLOOR, (max(number for (number,) in old),))
        # `at` is the time from which a key is checked again.
        for *key, job_id, finished_at in self._execute(
            _OLD_KEYS, (keys, max(limit, EXPIRED_KEYS))
        ).fetchall():
            if job_id is None or (finished_at is not None and finished_at <= keys):
                self._execute(f"DELETE FROM keys WHERE {_THIS_KEY}", key)
            else:
                at = self.now if finished_at is None else finished_at
                self._execute(f"UPDATE keys SET at = ? WHERE {_THIS_KEY}", (at, *key))
        return [job_of(row) for row in self._execute(_EXPIRED, (self.now, limit))]

    # --- writes

    def number(self) -> int:
        self._number += 1
        return self._number

    def write(self, changes: RowChanges) -> None:
        execute, now = self._execute, self.now
        for removed in changes.removed:
            self._delete(removed)
        if changes.removed_events:
            self._executemany(_END_OF_EVENTS, changes.removed_events)
        if changes.new or changes.changed:
            self._insert(changes)
        if changes.uploads or changes.removed_uploads or changes.uses or changes.removed_uses:
            self._write_uploads(changes)
        for key in changes.keys:
            put = _INSERT_KEY if key.replaces is None else _REPLACE_KEY
            execute(put, (*key.key, key.fingerprint, key.job_id, now))
        if changes.changed:
            self._save(changes.changed)
        for job_id, files in changes.files:
            execute("UPDATE inputs SET files = ? WHERE job_id = ?", (text_of(files), job_id))
            self._cache.waiting.pop(job_id, None)
        for step in changes.steps:
            result = bytes(step.result).decode()
            execute(_PUT_STEP, (step.job_id, step.name, step.tenant, result, now))
        self._write_settings(changes)

    def _write_settings(self, changes: RowChanges) -> None:
        """Write what is not about one job, and which jobs are blocked."""
        execute, now = self._execute, self.now
        if changes.blocked or changes.unblocked:
            self._executemany(_BLOCK, [(job_id,) for job_id in changes.blocked])
            self._executemany(_UNBLOCK, changes.unblocked)
        for queue, paused in changes.paused:
            execute(_PAUSE, (queue, paused))
        for row in changes.texts:
            self._put_text(row)
        if changes.rollups:
            self._write_rows(
                partial(_insert_rows, _ADD_ROLLUP), [astuple(row) for row in changes.rollups]
            )
        if changes.check:
            execute("INSERT OR REPLACE INTO write_check (id, at) VALUES (1, ?)", (now,))

    def _insert(self, changes: RowChanges) -> None:
        """Write the new jobs, and the terms by which lists find jobs."""
        if changes.new:
            self._insert_jobs(changes.new)
        terms = changed_terms(changes)
        for new in changes.new:
            if new.job.labels:
                terms += label_terms(new.job)
        if terms:
            self._write_rows(partial(_insert_rows, _INSERT_TERM), [astuple(term) for term in terms])

    def _insert_jobs(self, new: Sequence[NewJob]) -> None:
        """Columns that are NULL are left out, because binding NULL takes longer than binding a number."""
        self._inserted += new
        jobs: dict[tuple[int, ...], list[list[Any]]] = {}
        inputs, long_inputs = [], []
        for one in new:
            job = one.job
            if job.due is not None:
                self._moves.append((job.queue, None, job.due))
            values = values_of(job)
            columns = tuple(compress(_INDICES, map(is_not, values, _NULLS)))
            row = [values[i] for i in columns]
            row.append(int(ready(job, self.now)))
            jobs.setdefault(columns, []).append(row)
            if one.files or one.search:
                long_inputs.append(_input_row(one))
            else:
                inputs.append((job.id, job.tenant, one.input.decode()))
        for columns, rows in jobs.items():
            self._write_rows(partial(_insert_rows, _insert(columns, self._cache.sliced)), rows)
        self._write_rows(partial(_insert_rows, _INSERT_INPUT), inputs)
        self._write_rows(partial(_insert_rows, _INSERT_LONG_INPUT), long_inputs)

    def _write_rows(self, statement: Callable[[int], str], rows: Sequence[Sequence[Any]]) -> int:
        """Write rows with few statements; `statement` makes one for this many rows. Return how many rows have changed.

        Each execution releases the interpreter lock. While the event loop is busy, getting it back takes longer than writing
        a row, so `executemany` is slow. Numbers of rows are 3 or powers of two, so that few statements are compiled. They
        are `OR FAIL`, because SQLite would copy each page before its change otherwise, to undo only the statement. An error
        undoes the whole transaction in any case.
        """
        begin = changed = 0
        while left := len(rows) - begin:
            size = left if left == 3 else min(MAX_ROWS, 1 << (left.bit_length() - 1))
            values = rows[begin] if size == 1 else list(chain(*rows[begin : begin + size]))
            changed += self._execute(statement(size), values).rowcount
            begin += size
        return changed

    def _put_text(self, row: TextRow) -> None:
        if row.table in _PUT_TEXT:
            self._execute(_PUT_TEXT[row.table], (row.name, row.text))
            return
        assert row.table in RECORDS, row.table  # there are no workers
        if row.text is None:
            self._execute(_END_OF_RECORD, (row.tenant, row.table, row.name))
        else:
            self._execute(_PUT_RECORD, (row.tenant, row.table, row.name, row.text))

    def _write_uploads(self, changes: RowChanges) -> None:
        self._executemany(_PUT_UPLOAD, [upload_rows.values_of(u) for u in changes.uploads])
        for upload_id, tenant in changes.removed_uploads:
            self._execute("DELETE FROM uploads WHERE id = ?", (upload_id,))
            self._execute(_TOMBSTONE, (upload_id, tenant, self.now))
        self._executemany("INSERT OR IGNORE INTO upload_uses VALUES (?, ?, ?)", changes.uses)
        if changes.removed_uses:
            self._executemany(_END_OF_USE, changes.removed_uses)

    def _delete(self, job: Job) -> None:
        job_id = job.id
        self._execute(_END_OF_KEY, (job_id, self.now, job_id))
        self._execute(_END_OF_CONTENT_KEY, (job_id, BY_CONTENT))
        self._delete_terms(job)
        row = self._execute("DELETE FROM jobs WHERE id = ? RETURNING queue, due", (job_id,)).fetchone()
        if row is not None and row[1] is not None:
            self._moves.append((row[0], row[1], None))
        for table in ("inputs", "steps", "upload_uses"):
            self._execute(f"DELETE FROM {table} WHERE job_id = ?", (job_id,))
        self._execute(_TOMBSTONE, (job_id, job.tenant, self.now))

    def _delete_terms(self, job: Job) -> None:
        """Delete by the whole key, so that the table needs no second index."""
        found = self._execute("SELECT search FROM inputs WHERE job_id = ?", (job.id,)).fetchone()
        search = _read_search.decode(found[0]) if found is not None and found[0] else ()
        terms = [*label_terms(job), *step_terms(job), *input_terms(NewJob(job, b"", search=search))]
        if terms:
            self._executemany(_DELETE_TERM, map(astuple, terms))

    def merge_rollups(self) -> bool:
        return rollups.merge(self._execute, self.now)

    def index_old(self, limit: int) -> bool:
        if self._cache.building:
            if index_builds.build(self._execute, limit):
                return True
            self._cache.building = False
        row = self._execute("SELECT after, last FROM search_backfill").fetchone()
        if row is None:
            return False
        after, last = row
        jobs = [job_of(found) for found in self._execute(_OLD, (after, last, limit))]
        for job in jobs:
            self._executemany(_INSERT_TERM, map(astuple, [*label_terms(job), *step_terms(job)]))
        if len(jobs) < limit:
            self._execute("DELETE FROM search_backfill")
            return False
        self._execute("UPDATE search_backfill SET after = ?", (jobs[-1].id,))
        return True

    def _save(self, changed: Sequence[tuple[Job, Job]]) -> None:
        """Write changed jobs, each conditional on the version and fence that were read. Jobs whose same columns have changed
        share a statement.
        """
        updates: dict[tuple[int, ...], list[list[Any]]] = {}
        same: dict[
            tuple[Any, ...], list[str]
        ] = {}  # ids, by columns and values; claimed jobs differ in nothing else
        for before, after in changed:
            columns, values = difference(before, after)
            if not columns:  # a lease that was renewed twice in the same instant
                continue
            values += (before.version, before.fence)
            if _DUE_AT in columns:
                self._moves.append((after.queue, before.due, after.due))
                same.setdefault((columns, int(ready(after, self.now)), *values), []).append(before.id)
            else:
                updates.setdefault(columns, []).append([*values, before.id])
        for columns, rows in updates.items():
            written = self._write_rows(partial(_update, columns), rows)
            assert written == len(rows), "a job changed within its own transaction"
        for (columns, *values), ids in same.items():
            for begin in range(0, len(ids), MAX_ROWS):
                some = ids[begin : begin + MAX_ROWS]
                written = self._execute(_update_same(columns, len(some)), [*values, *some]).rowcount
                assert written == len(some), "a job changed within its own transaction"

    # --- the end

    def finish(self) -> None:
        """Write deferred rows and events; called right before the commit."""
        self.write(self.take_changes())
        if self.events:
            rows = [
                (e.id, e.tenant, e.job_id, e.type, e.at, encode(e.job).decode()) for e in self.events
            ]
            self._write_rows(partial(_insert_rows, _EVENT), rows)

    def committed(self) -> None:
        """Update the cache; called right after the commit."""
        self._cache.last_event = self._number
        if self._moves:
            self._cache.counts.moved(self._moves, self.now)
        if self._pauses:
            self._cache.paused = None
        held, waiting = self._cache.held, self._cache.waiting
        for job_id, job in self._jobs.items():
            if job is not None and job.held:
                held[job_id] = job
            else:
                held.pop(job_id, None)
            if waiting:
                waiting.pop(job_id, None)
        for new in self._inserted:
            # If the cache is full, the jobs in it are claimed before the new ones.
            if (
                len(waiting) < MAX_WAITING
                and len(new.input) <= MAX_INPUT
                and ready(new.job, self.now)
                and self._jobs.get(new.job.id) is new.job
            ):
                waiting[new.job.id] = Due(new.job, new.input, new.files)
        self._cache.jobs.invalidate(self._jobs)
        if self._uploads:
            self._cache_uploads(self._cache.uploads)

    def _cache_uploads(self, known: OrderedDict[str, Upload]) -> None:
        for upload_id, upload in self._uploads.items():
            known.pop(upload_id, None)
            if upload is not None and upload.status is UploadStatus.UPLOADING and _is_small(upload):
                known[upload_id] = upload
        while len(known) > MAX_UPLOADS:
            known.popitem(last=False)


@lru_cache(maxsize=256)
def _update(columns: tuple[int, ...], rows: int) -> str:
    """The statement that writes these columns of jobs. The values of a row are those of the columns, then version, fence and
    id.
    """
    names = [_NAMES[i] for i in columns]
    if rows == 1:
        assignments = ", ".join([f"{name} = ?" for name in names])
        return f"UPDATE jobs SET {assignments} WHERE version = ? AND fence = ? AND id = ?"
    assignments = ", ".join([f"{name} = v.column{i}" for i, name in enumerate(names, 1)])
    values = ", ".join([f"({', '.join('?' * (len(names) + 3))})"] * rows)
    version, fence, job_id = (f"v.column{len(names) + i}" for i in (1, 2, 3))
    return (
        f"UPDATE OR FAIL jobs SET {assignments} FROM (VALUES {values}) v "
        f"WHERE jobs.version = {version} AND jobs.fence = {fence} AND jobs.id = {job_id}"
    )


@lru_cache(maxsize=256)
def _update_same(columns: tuple[int, ...], rows: int) -> str:
    """The statement that writes `ready` and the same values of these columns to jobs of the same version and fence."""
    assignments = ", ".join([f"{_NAMES[i]} = ?" for i in (_READY, *columns)])
    ids = ", ".join("?" * rows)
    return f"UPDATE OR FAIL jobs SET {assignments} WHERE version = ? AND fence = ? AND id IN ({ids})"


@lru_cache(maxsize=256)
def _insert_rows(statement: str, rows: int) -> str:
    """The statement that inserts this many rows, made from that for one row."""
    head, word, rest = statement.partition("VALUES ")
    end = rest.index(")") + 1
    if rows > 1:
        head = head.replace("INSERT INTO", "INSERT OR FAIL INTO")
    return head + word + ", ".join([rest[:end]] * rows) + rest[end:]


@lru_cache(maxsize=256)
def _insert(columns: tuple[int, ...], listed: bool) -> str:
    """The statement that inserts a job with these columns, followed by `ready`."""
    names, marks = ", ".join([_NAMES[i] for i in columns]), ", ".join("?" * (len(columns) + 1))
    if listed:
        return f"INSERT INTO jobs ({names}, ready, listed) VALUES ({marks}, 1)"
    return f"INSERT INTO jobs ({names}, ready) VALUES ({marks})"


def _input_row(new: NewJob) -> tuple[Any, ...]:
    search = encode(new.search).decode() if new.search else None
    return new.job.id, new.job.tenant, new.input.decode(), text_of(new.files), search


def _is_small(upload: Upload) -> bool:
    """Whether the record is small enough to cache many of them."""
    size = len(upload.metadata) + len(upload.chunks)
    if upload.bucket is not None:
        size += 50 * len(upload.bucket.parts)
    if upload.submission is not None:
        size += len(memoryview(upload.submission))
    return size <= MAX_UPLOAD_RECORD


def _merged(found: list[list[tuple[Any, ...]]], limit: int) -> list[tuple[Any, ...]]:
    """The first jobs of a tenant, of those of each kind."""
    if len(found) == 1:
        return found[0]
    rows = [row for rows in found for row in rows]
    rows.sort(key=_place)
    return rows[:limit]


def _place(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """The place of a claimable job among those of its tenant."""
    return row[-2:]


def _due(row: tuple[Any, ...]) -> Due:
    input_, files = row[len(FIELDS) : len(FIELDS) + 2]
    return Due(job_of(row), input_.encode(), files_of(files))
