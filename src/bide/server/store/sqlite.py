"""The embedded store: one SQLite file, one writer thread with group commit, reads at once on the loop.

1. WAL with synchronous=FULL: what a future has resolved for survives a power cut.
2. The service process alone opens the file; the data folder is locked to one service.
3. A read is one indexed look-up on the loop: a thread hop would cost more than it. Lists run in a thread.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from bide.core.clock import Clock, SystemClock
from bide.core.errors import SetupError
from bide.core.job import (
    Change,
    ChildEnded,
    Claimed,
    Job,
    Refused,
    Rerun,
    Spawned,
    Status,
    StepKept,
    StepStarted,
    WrongStatus,
    WrongVersion,
    advance,
    cancel,
    ripples,
    target,
)
from bide.core.wire import Event, facts
from bide.server.store import (
    Claim,
    Filter,
    InputFile,
    Inserted,
    KeyConflict,
    Missing,
    NewJob,
    Overdue,
    QueueState,
    Want,
    migrations,
)
from bide.server.store.rows import COLUMNS, FIELDS, difference, job_of, values_of
from bide.server.store.writer import Tx, Writer

T = TypeVar("T")
_encode = msgspec.json.Encoder().encode
_read_files = msgspec.json.Decoder(tuple[InputFile, ...])
_INSERT = f"INSERT INTO jobs ({COLUMNS}, ready) VALUES ({', '.join('?' * (len(FIELDS) + 1))})"
_BY_ID = f"SELECT {COLUMNS} FROM jobs WHERE id = ?"
_CANDIDATES = (
    f"SELECT {COLUMNS}, seq FROM jobs WHERE ready = 1 AND queue = ? AND kind = ? "
    "ORDER BY priority DESC, seq LIMIT ?"
)
_PAUSED = "SELECT name FROM queues WHERE paused"
_EVENT = "INSERT INTO events (tenant, job_id, type, at, job) VALUES (?, ?, ?, ?, ?)"


class SqliteStore:
    """`Store` on one SQLite file."""

    def __init__(self, path: Path, clock: Clock | None = None) -> None:
        self.path = path
        self._clock = clock or SystemClock()

    # --- beginning and end

    async def open(self, heard: Callable[[Sequence[Event]], None]) -> None:
        await asyncio.to_thread(prepare, self.path)
        self._reader = connect(self.path)
        self._read = self._reader.execute
        self._writer = Writer(partial(connect, self.path), self._clock, heard)

    async def close(self) -> None:
        await self._writer.close()
        self._reader.close()

    async def void(self) -> int:
        def operation(tx: Tx) -> int:
            return tx.execute("UPDATE jobs SET lease_until = 0 WHERE lease_until IS NOT NULL").rowcount

        return await self._write(operation)

    def now(self) -> float:
        return self._clock.now()

    def _write(self, operation: Callable[[Tx], T]) -> asyncio.Future[T]:
        return self._writer.submit(operation)

    # --- writes

    def insert(self, new: Sequence[NewJob]) -> Awaitable[list[Inserted | KeyConflict]]:
        return self._write(lambda tx: [_insert(tx, item) for item in new])

    def apply(self, changes: Sequence[Change]) -> Awaitable[list[Job | Refused | Missing]]:
        return self._write(lambda tx: [_apply(tx, change) for change in changes])

    def spawn(self, change: Change, new: NewJob) -> Awaitable[Job | Refused | Missing]:
        assert isinstance(change, Spawned)
        return self._write(lambda tx: _spawn(tx, change, new))

    def claim(
        self, owner: str, wants: Sequence[Want], limit: int, lease: float
    ) -> Awaitable[list[Claim]]:
        def operation(tx: Tx) -> list[Claim]:
            claims: list[Claim] = []
            paused = {name for (name,) in tx.execute(_PAUSED)}
            for want in wants:
                room = min(want.limit, limit - len(claims))
                if room > 0 and want.queue not in paused:
                    claims += [_claim(tx, job, owner, tx.now + lease) for job in _due(tx, want, room)]
            return claims

        return self._write(operation)

    def renew(self, held: Sequence[tuple[str, int]], lease: float) -> Awaitable[list[tuple[str, int]]]:
        sql = "UPDATE jobs SET lease_until = ? WHERE id = ? AND fence = ? AND lease_until > 0"

        def operation(tx: Tx) -> list[tuple[str, int]]:
            return [
                (job_id, fence)
                for job_id, fence in held
                if tx.execute(sql, (tx.now + lease, job_id, fence)).rowcount == 0
            ]

        return self._write(operation)

    def log(self, job_id: str, fence: int, lines: Sequence[dict[str, Any]]) -> Awaitable[None]:
        def operation(tx: Tx) -> None:
            job = _load(tx, job_id)
            if job is not None and job.fence == fence:
                for line in lines:
                    _tell(tx, job, "log", {"log": line})

        return self._write(operation)

    def wake(self) -> Awaitable[tuple[set[tuple[str, str]], float | None]]:
        def operation(tx: Tx) -> tuple[set[tuple[str, str]], float | None]:
            due = "ready = 0 AND due <= ?"
            pairs = set(tx.execute(f"SELECT DISTINCT queue, kind FROM jobs WHERE {due}", (tx.now,)))
            if pairs:
                tx.execute(f"UPDATE jobs SET ready = 1 WHERE {due}", (tx.now,))
            (following,) = tx.execute(
                "SELECT min(due) FROM jobs WHERE ready = 0 AND due IS NOT NULL"
            ).fetchone()
            return pairs, following

        return self._write(operation)

    def purge(
        self, *, tombstones: float, keys: float, limit: int = 500
    ) -> Awaitable[tuple[list[str], bool]]:
        # A child outlives its retention as long as its parent may ask for its result, in a later run too.
        expired = (
            "SELECT id, tenant FROM jobs WHERE expires_at <= ? AND NOT EXISTS (SELECT 1 FROM jobs p "
            "WHERE p.id = jobs.parent AND p.status <> 'DONE') LIMIT ?"
        )

        def operation(tx: Tx) -> tuple[list[str], bool]:
            rows = tx.execute(expired, (tx.now, limit)).fetchall()
            for job_id, tenant in rows:
                _remove(tx, job_id, tenant)
            tx.execute("DELETE FROM tombstones WHERE at <= ?", (tx.now - tombstones,))
            tx.execute("DELETE FROM keys WHERE at <= ?", (tx.now - keys,))
            return [job_id for job_id, _ in rows], len(rows) == limit

        return self._write(operation)

    def delete(self, job_id: str, version: int | None = None) -> Awaitable[Job | Refused | Missing]:
        return self._write(lambda tx: _delete(tx, job_id, version))

    def pause(self, queue: str, paused: bool) -> Awaitable[None]:
        def operation(tx: Tx) -> None:
            tx.execute(
                "INSERT INTO queues (tenant, name, paused) VALUES ('-', ?, ?) "
                "ON CONFLICT DO UPDATE SET paused = excluded.paused",
                (queue, paused),
            )

        return self._write(operation)

    def learn(self, durations: dict[str, dict[str, Any]]) -> Awaitable[None]:
        def operation(tx: Tx) -> None:
            tx.executemany(
                "INSERT INTO durations (tenant, kind, sketch) VALUES ('-', ?, ?) "
                "ON CONFLICT DO UPDATE SET sketch = excluded.sketch",
                [(kind, _encode(sketch).decode()) for kind, sketch in durations.items()],
            )

        return self._write(operation)

    # --- reads

    async def get(self, ids: Sequence[str]) -> list[Job | Missing]:
        found: list[Job | Missing] = []
        for job_id in ids:
            row = self._read(_BY_ID, (job_id,)).fetchone()
            found.append(job_of(row) if row is not None else self._missing(job_id))
        return found

    def _missing(self, job_id: str) -> Missing:
        row = self._read("SELECT 1 FROM tombstones WHERE id = ?", (job_id,)).fetchone()
        return Missing(gone=row is not None)

    async def find(self, filter: Filter) -> list[Job]:
        conditions: list[tuple[str, Iterable[Any]]] = []
        if filter.status:
            marks = ", ".join("?" * len(filter.status))
            conditions.append((f"status IN ({marks})", sorted(s.value for s in filter.status)))
        for column, value in (("kind", filter.kind), ("queue", filter.queue)):
            if value is not None:
                conditions.append((f"{column} = ?", [value]))
        if filter.label is not None:
            has = "EXISTS (SELECT 1 FROM json_each(labels) l WHERE l.key = ? AND l.value = ?)"
            conditions.append((has, filter.label))
        if filter.before is not None:
            conditions.append(("id < ?", [filter.before]))
        where = " AND ".join(text for text, _ in conditions) or "1"
        values = [v for _, vs in conditions for v in vs]
        sql = f"SELECT {COLUMNS} FROM jobs WHERE {where} ORDER BY id DESC LIMIT ?"
        rows = await asyncio.to_thread(self._query, sql, [*values, filter.limit])
        return [job_of(row) for row in rows]

    def _query(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """For what may take long: in a thread, on a connection of its own."""
        connection = connect(self.path)
        try:
            return connection.execute(sql, values).fetchall()
        finally:
            connection.close()

    async def input(self, job_id: str) -> bytes:
        row = self._read("SELECT input FROM inputs WHERE job_id = ?", (job_id,)).fetchone()
        return b"null" if row is None else row[0].encode()

    async def events(self, after: int = 0, job_id: str | None = None, limit: int = 1000) -> list[Event]:
        one_job = "job_id = ? AND" if job_id is not None else ""
        rows = self._read(
            f"SELECT id, job_id, type, at, job, tenant FROM events WHERE {one_job} id > ? "
            "ORDER BY id LIMIT ?",
            (*([job_id] if job_id is not None else []), after, limit),
        )
        return [
            Event(number, of, type_, at, msgspec.json.decode(job), tenant)
            for number, of, type_, at, job, tenant in rows
        ]

    async def overdue(self, limit: int = 500) -> Overdue:
        now = self.now()
        leases = self._read(
            f"SELECT {COLUMNS} FROM jobs WHERE lease_until <= ? LIMIT ?", (now, limit)
        ).fetchall()
        deadlines = self._read(
            f"SELECT {COLUMNS} FROM jobs WHERE deadline <= ? AND finished_at IS NULL LIMIT ?",
            (now, limit),
        ).fetchall()
        return Overdue(tuple(map(job_of, leases)), tuple(map(job_of, deadlines)))

    async def known(self, ids: Sequence[str]) -> set[str]:
        sql = "SELECT 1 FROM jobs WHERE id = ?"
        return {job_id for job_id in ids if self._read(sql, (job_id,)).fetchone()}

    async def queues(self) -> list[QueueState]:
        # Each count reads a partial index, so finished jobs cost nothing.
        counts: dict[str, dict[str, Any]] = {}
        for name, waiting, oldest in self._read(
            "SELECT queue, count(*), min(due) FROM jobs WHERE ready = 1 GROUP BY queue"
        ):
            counts.setdefault(name, {}).update(waiting=waiting, oldest=oldest)
        for name, scheduled in self._read(
            "SELECT queue, count(*) FROM jobs WHERE ready = 0 AND due IS NOT NULL GROUP BY queue"
        ):
            counts.setdefault(name, {}).update(scheduled=scheduled)
        for name, running in self._read(
            "SELECT queue, count(*) FROM jobs WHERE lease_until IS NOT NULL GROUP BY queue"
        ):
            counts.setdefault(name, {}).update(running=running)
        for (name,) in self._read(_PAUSED):
            counts.setdefault(name, {}).update(paused=True)
        return [QueueState(name, **fields) for name, fields in sorted(counts.items())]

    async def durations(self) -> dict[str, dict[str, Any]]:
        rows = self._read("SELECT kind, sketch FROM durations")
        return {kind: msgspec.json.decode(sketch) for kind, sketch in rows}


# --- the file


def connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(
        path, timeout=30, isolation_level=None, check_same_thread=False, cached_statements=256
    )
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA wal_autocheckpoint = 4000")
        connection.execute("PRAGMA cache_size = -32000")
    except BaseException:
        connection.close()
        raise
    return connection


def prepare(path: Path) -> list[int]:
    """Checks the file and brings it to the newest schema; the versions that were applied."""
    try:
        connection = connect(path)
        try:
            (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            if verdict != "ok":
                raise sqlite3.DatabaseError(verdict)
            return _migrate(connection)
        finally:
            connection.close()
    except sqlite3.DatabaseError as error:
        raise SetupError(
            f"{path} cannot be used: {error}. Restore it from a backup, or move it away to start "
            "with an empty one; `sqlite3 FILE .recover` may save what is in it."
        ) from error


def _migrate(connection: sqlite3.Connection) -> list[int]:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    applied = []
    for number, sql in migrations.pending("sqlite", version):
        connection.executescript(f"BEGIN IMMEDIATE; {sql}; PRAGMA user_version = {number}; COMMIT;")
        applied.append(number)
    return applied


# --- what happens inside a transaction


def _load(tx: Tx, job_id: str) -> Job | None:
    row = tx.execute(_BY_ID, (job_id,)).fetchone()
    return None if row is None else job_of(row)


def _tell(
    tx: Tx, job: Job, type_: Literal["status", "step", "log"], more: dict[str, Any] | None = None
) -> None:
    known = facts(job)
    if more:
        known.update(more)
    cursor = tx.execute(_EVENT, (job.tenant, job.id, type_, tx.now, _encode(known).decode()))
    assert cursor.lastrowid is not None
    tx.events.append(Event(cursor.lastrowid, job.id, type_, tx.now, known, job.tenant))


def _insert(tx: Tx, new: NewJob) -> Inserted | KeyConflict:
    job = new.job
    if new.key is not None:
        row = tx.execute(
            "SELECT fingerprint, job_id FROM keys WHERE tenant = ? AND kind = ? AND key = ?",
            (job.tenant, job.kind, new.key),
        ).fetchone()
        if row is not None:
            fingerprint, first = row
            earlier = _load(tx, first)
            if earlier is not None:
                return (
                    Inserted(earlier, created=False)
                    if fingerprint == new.fingerprint
                    else KeyConflict(first)
                )
        tx.execute(
            "INSERT OR REPLACE INTO keys (tenant, kind, key, fingerprint, job_id, at) "
            "VALUES (?, ?, ?, ?, ?, ?)",
            (job.tenant, job.kind, new.key, new.fingerprint, job.id, tx.now),
        )
    tx.execute(_INSERT, (*values_of(job), _ready(job, tx.now)))
    tx.execute(
        "INSERT INTO inputs (job_id, tenant, input, files) VALUES (?, ?, ?, ?)",
        (
            job.id,
            job.tenant,
            new.input.decode(),
            _encode(new.files).decode() if new.files else None,
        ),
    )
    _tell(tx, job, "status")
    return Inserted(job, created=True)


def _ready(job: Job, now: float) -> bool:
    return job.due is not None and job.due <= now


def _save(tx: Tx, before: Job, after: Job) -> None:
    columns = difference(before, after)
    if "due" in columns:
        columns["ready"] = _ready(after, tx.now)
    assignments = ", ".join(f"{name} = ?" for name in columns)
    cursor = tx.execute(
        f"UPDATE jobs SET {assignments} WHERE id = ? AND version = ? AND fence = ?",
        (*columns.values(), before.id, before.version, before.fence),
    )
    assert cursor.rowcount == 1, f"{before.id} changed within its own transaction"


def _apply(tx: Tx, change: Change) -> Job | Refused | Missing:
    before = _load(tx, change.job_id)
    if before is None:
        return _gone(tx, change.job_id)
    try:
        after = advance(before, change, tx.now)
    except Refused as refusal:
        return refusal
    _save(tx, before, after)
    if isinstance(change, StepStarted | StepKept):
        status = Status.DONE if isinstance(change, StepKept) else Status.PROCESSING
        _tell(tx, after, "step", {"step": {"name": change.name, "status": status}})
    elif not before.status.terminal or after.run > before.run:
        # A child's end is noted on an ended parent without an event: a run has one terminal event.
        _tell(tx, after, "status")
    if isinstance(change, StepKept):
        tx.execute(
            "INSERT OR REPLACE INTO steps (job_id, name, tenant, result, at) VALUES (?, ?, ?, ?, ?)",
            (after.id, change.name, after.tenant, bytes(change.result).decode(), tx.now),
        )
    # A child that ends at once is noted on this row again.
    return (_load(tx, after.id) or after) if _ripple(tx, before, after) else after


def _ripple(tx: Tx, before: Job, after: Job) -> bool:
    """Carries a change on to the job's relatives; whether there was anything to do."""
    effects = ripples(before, after)
    for relative, what in effects:
        if what == "ended":
            _apply(tx, ChildEnded(job_id=relative, child_id=after.id, status=after.status))
        elif what == "rerun":
            if isinstance(_apply(tx, Rerun(job_id=relative)), Missing):
                # Deleted meanwhile: it ends nevermore, so its parent must not wait for it.
                gone = ChildEnded(job_id=after.id, child_id=relative, status=Status.CANCELLED)
                _apply(tx, gone)
        else:
            job = _load(tx, relative)
            if job is not None and not job.status.terminal:
                _apply(tx, cancel(job))
    return bool(effects)


def _gone(tx: Tx, job_id: str) -> Missing:
    row = tx.execute("SELECT 1 FROM tombstones WHERE id = ?", (job_id,)).fetchone()
    return Missing(gone=row is not None)


def _spawn(tx: Tx, change: Spawned, new: NewJob) -> Job | Refused | Missing:
    parent = _load(tx, change.job_id)
    if parent is None:
        return _gone(tx, change.job_id)
    try:
        target(parent, change)
    except Refused as refusal:
        return refusal
    for child in parent.children:
        if child.key == change.child.key and (earlier := _load(tx, child.job_id)) is not None:
            return earlier
    _insert(tx, new)
    after = advance(parent, change, tx.now)
    _save(tx, parent, after)
    _tell(tx, after, "status")
    return new.job


def _due(tx: Tx, want: Want, limit: int) -> list[Job]:
    """The first `limit` of all the wanted kinds: by priority, then in the order of submission."""
    rows = [
        row
        for kind in want.kinds
        for row in tx.execute(_CANDIDATES, (want.queue, kind, limit)).fetchall()
    ]
    if len(want.kinds) > 1:
        priority = FIELDS.index("priority")
        rows.sort(key=lambda row: (-row[priority], row[-1]))
    return [job_of(row) for row in rows[:limit]]


def _claim(tx: Tx, before: Job, owner: str, lease_until: float) -> Claim:
    after = advance(before, Claimed(job_id=before.id, owner=owner, lease_until=lease_until), tx.now)
    _save(tx, before, after)
    _tell(tx, after, "status")
    input_, files = tx.execute(
        "SELECT input, files FROM inputs WHERE job_id = ?", (after.id,)
    ).fetchone()
    kept = "SELECT name, result FROM steps WHERE job_id = ?"
    return Claim(
        after,
        input_.encode(),
        _read_files.decode(files) if files else (),
        {name: msgspec.Raw(text) for name, text in tx.execute(kept, (after.id,))} if after.steps else {},
        {
            c.job_id: child
            for c in after.children
            if c.status is not None and (child := _load(tx, c.job_id)) is not None
        },
    )


def _remove(tx: Tx, job_id: str, tenant: str) -> None:
    tx.execute("DELETE FROM jobs WHERE id = ?", (job_id,))
    for table in ("inputs", "steps", "events", "keys"):
        tx.execute(f"DELETE FROM {table} WHERE job_id = ?", (job_id,))
    tx.execute(
        "INSERT OR REPLACE INTO tombstones (id, tenant, at) VALUES (?, ?, ?)",
        (job_id, tenant, tx.now),
    )


def _delete(tx: Tx, job_id: str, version: int | None) -> Job | Refused | Missing:
    job = _load(tx, job_id)
    if job is None:
        return _gone(tx, job_id)
    wish = Change(job_id=job_id, version=version)
    if version is not None and version != job.version:
        return WrongVersion(job, wish, f"the job is at version {job.version}")
    if job.status is Status.PROCESSING:
        return WrongStatus(job, wish, "the job is PROCESSING; cancel it first")
    parent = _load(tx, job.parent) if job.parent is not None else None
    if parent is not None and not parent.status.terminal:
        return WrongStatus(job, wish, f"job {parent.id} still needs it; cancel or delete that one")
    for child in job.children:
        running = _load(tx, child.job_id)
        if running is not None and not running.status.terminal:
            _apply(tx, cancel(running))
    _remove(tx, job_id, job.tenant)
    return job
