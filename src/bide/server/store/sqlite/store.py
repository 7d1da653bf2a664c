"""The embedded store: one SQLite file, one writer thread with group commit, synchronous reads on the event loop.

1. WAL with synchronous=FULL: a write whose future has resolved survives a power cut.
2. Only the service process opens the file; the data folder is locked to one service.
3. A read is one indexed lookup on the event loop, because a thread switch costs more. Jobs are cached until they change.
   Lists run in a thread. The jobs of each queue are counted as they change, not when they are requested.
4. The clock never goes back, not even across restarts: it starts no earlier than the newest event. If the system clock is
   behind that, time runs at half speed until the system clock has caught up.
5. A lease renewal that cannot be written still counts, so a full disk does not take jobs from working children.
6. Every lease belongs to this process, or was voided when the process started.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from bide.core.clock import MOST_BEHIND, CatchUpClock, Clock, SystemClock
from bide.core.jobs.lease import Lease
from bide.core.jobs.record import Job
from bide.core.jobs.state_machine import Change, Refused, Spawned
from bide.core.wire.http import Event
from bide.server.store import (
    Claim,
    ClaimRequest,
    Filter,
    Insertion,
    Missing,
    NewJob,
    OnEvents,
    OnReset,
    OnWork,
    Overdue,
    QueueState,
    StoreUnavailable,
    operations,
)
from bide.server.store.rows import COLUMNS, EVENT_COLUMNS, event_of, job_of
from bide.server.store.sqlite.file import connect, explain, prepare
from bide.server.store.sqlite.transaction import (
    BY_ID,
    PAUSED,
    SqliteCache,
    SqliteSession,
    SqliteTransaction,
)
from bide.server.store.sqlite.uploads import SqliteUploads
from bide.server.store.writer import GroupCommitWriter

T = TypeVar("T")
log = logging.getLogger("bide.store")

# The redundant condition `status <> 'DONE'` lets the planner use the partial index on the status.
_PARKED = (
    "SELECT id, NOT EXISTS (SELECT 1 FROM json_each(p.waiting_for) w JOIN jobs c ON c.id = w.value "
    "WHERE c.finished_at IS NULL) FROM jobs p WHERE status = 'PROCESSING' AND status <> 'DONE' AND id > ? "
    "AND waiting_for IS NOT NULL AND due IS NULL ORDER BY id LIMIT ?"
)


class SqliteStore(SqliteUploads):
    """`Store` on one SQLite file."""

    def __init__(self, path: Path, clock: Clock | None = None) -> None:
        self.path = path
        self._clock = self._wall = clock or SystemClock()
        self._cache = SqliteCache()
        self._job_cache = self._cache.jobs
        # The ends of leases whose renewal could not be written.
        self._unwritten_renewals: dict[tuple[str, int], float] = {}

    # --- beginning and end

    async def open(
        self, on_events: OnEvents, on_work: OnWork | None = None, on_reset: OnReset | None = None
    ) -> None:
        await asyncio.to_thread(prepare, self.path)
        self._reader = connect(self.path)
        self._read = self._reader.execute
        self._clock = self._monotonic_clock()
        await asyncio.to_thread(self._cache.load, self._reader, self.now())
        explained = partial(explain, path=self.path)
        # Connect here and not in the writer's thread, so that `open` raises the error.
        session = SqliteSession(connect(self.path), self._clock, self._cache, explained)
        self._writer = GroupCommitWriter(session, on_events)

    def _monotonic_clock(self) -> Clock:
        """The system clock; or a slower one, while the system clock is behind the newest event because it was set back."""
        newest = self._read("SELECT at FROM events ORDER BY id DESC LIMIT 1").fetchone()
        behind = newest[0] - self._wall.now() if newest is not None else 0.0
        if behind <= 0:
            return self._wall
        if behind > MOST_BEHIND:
            log.error(
                "the clock is %.1f days behind the newest record, so scheduled jobs start late. "
                "Set the clock right and restart the service",
                behind / 86400,
            )
            return self._wall
        if behind > 1:
            log.warning(
                "the clock was set back: it is %.0f s behind the newest record. The service continues from that "
                "record's time at half speed until the clock has caught up. If the clock is wrong, set it right and "
                "restart the service",
                behind,
            )
        clock = CatchUpClock(self._wall)
        clock.follow(0.0, newest[0])
        return clock

    async def close(self) -> None:
        await self._writer.close()
        self._reader.close()

    async def void(self, owner: str | None = None) -> int:
        def operation(tx: SqliteTransaction) -> int:
            held = tx.held()
            for job in held:
                tx.change(job, replace(job, lease_until=0.0))
            return len(held)

        return await self._write(operation)

    def now(self) -> float:
        return self._clock.now()

    def _write(
        self, operation: Callable[[SqliteTransaction], T], *, first: bool = False
    ) -> asyncio.Future[T]:
        return self._writer.submit(operation, first=first)

    # --- writes

    def insert(self, new: Sequence[NewJob]) -> Awaitable[list[Insertion]]:
        return self._write(lambda tx: [operations.insert(tx, item) for item in new])

    def apply(self, changes: Sequence[Change]) -> Awaitable[list[Job | Refused | Missing]]:
        return self._write(lambda tx: [operations.apply(tx, change) for change in changes])

    def spawn(self, change: Change, new: NewJob) -> Awaitable[Job | Refused | Missing]:
        assert isinstance(change, Spawned)
        return self._write(lambda tx: operations.spawn(tx, change, new))

    def claim(
        self, owner: str, requests: Sequence[ClaimRequest], limit: int, lease: float
    ) -> Awaitable[list[Claim]]:
        def operation(tx: SqliteTransaction) -> list[Claim]:
            return operations.claims(tx, owner, requests, limit, lease)

        # First, because starting a job takes longer than responding to a submission.
        return self._write(operation, first=True)

    def renew(
        self, owner: str, held: Sequence[tuple[str, int]], lease: float
    ) -> Awaitable[list[tuple[str, int]]]:
        until = self.now() + lease

        def renewed(future: asyncio.Future[Any]) -> None:
            now = self.now()
            self._unwritten_renewals = {
                key: end for key, end in self._unwritten_renewals.items() if end > now
            }
            if not future.cancelled():
                unwritten = isinstance(future.exception(), StoreUnavailable)
                for key in held:
                    if unwritten:
                        self._unwritten_renewals[key] = until
                    else:
                        self._unwritten_renewals.pop(key, None)

        writing = self._write(lambda tx: operations.renew(tx, owner, held, lease))
        writing.add_done_callback(renewed)
        return writing

    def log(
        self, job_id: str, owner: str, fence: int, lines: Sequence[dict[str, Any]]
    ) -> Awaitable[None]:
        return self._write(lambda tx: operations.log(tx, job_id, owner, fence, lines))

    def check_writable(self) -> Awaitable[None]:
        return self._write(lambda tx: tx.check_writable())

    def wake(self) -> Awaitable[tuple[set[tuple[str, str]], float | None]]:
        def operation(tx: SqliteTransaction) -> tuple[set[tuple[str, str]], float | None]:
            tx.flush()
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
        # A child job stays after its retention while its parent may need its result, in a later run too.
        expired = (
            "SELECT id, tenant FROM jobs WHERE expires_at <= ? AND NOT EXISTS (SELECT 1 FROM jobs p "
            "WHERE p.id = jobs.parent AND p.status <> 'DONE') LIMIT ?"
        )

        def operation(tx: SqliteTransaction) -> tuple[list[str], bool]:
            tx.flush()
            rows = tx.execute(expired, (tx.now, limit)).fetchall()
            for job_id, tenant in rows:
                tx.remove(job_id, tenant)
            tx.execute("DELETE FROM tombstones WHERE at <= ?", (tx.now - tombstones,))
            tx.expire_keys(keys, max(limit, 1000))
            return [job_id for job_id, _ in rows], len(rows) == limit

        return self._write(operation)

    def delete(self, job_id: str, version: int | None = None) -> Awaitable[Job | Refused | Missing]:
        return self._write(lambda tx: operations.delete(tx, job_id, version))

    def pause(self, queue: str, paused: bool) -> Awaitable[None]:
        return self._write(lambda tx: tx.pause(queue, paused))

    def learn(self, durations: dict[str, dict[str, Any]]) -> Awaitable[None]:
        return self._write(lambda tx: tx.learn(durations))

    # --- reads

    async def identity(self) -> str:
        store_id: str = self._read("SELECT id FROM store_id").fetchone()[0]
        return store_id

    async def has_key(self, tenant: str, kind: str, key: str) -> bool:
        sql = "SELECT 1 FROM keys WHERE tenant = ? AND kind = ? AND key = ?"
        return self._read(sql, (tenant, kind, key)).fetchone() is not None

    async def get(self, ids: Sequence[str]) -> list[Job | Missing]:
        cached = self._job_cache
        return [cached.get(job_id) or self._get(job_id) for job_id in ids]

    def _get(self, job_id: str) -> Job | Missing:
        generation = self._job_cache.generation
        row = self._read(BY_ID, (job_id,)).fetchone()
        if row is None:
            return self._missing(job_id)
        job = job_of(row)
        self._job_cache.put(job, generation)
        return job

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
        """Run a query that may take long; called in a thread, uses a connection of its own."""
        try:
            with contextlib.closing(connect(self.path)) as connection:
                return connection.execute(sql, values).fetchall()
        except sqlite3.OperationalError as error:  # no file descriptor for it, for example
            reason = explain(error, self.path)
            if reason is None:
                raise
            raise StoreUnavailable(reason) from error

    async def input(self, job_id: str) -> bytes:
        row = self._read("SELECT input FROM inputs WHERE job_id = ?", (job_id,)).fetchone()
        return b"null" if row is None else row[0].encode()

    async def step(self, job_id: str, name: str) -> bytes | None:
        sql = "SELECT result FROM steps WHERE job_id = ? AND name = ?"
        row = self._read(sql, (job_id, name)).fetchone()
        return None if row is None else row[0].encode()

    async def events(self, after: int = 0, job_id: str | None = None, limit: int = 1000) -> list[Event]:
        one_job = "job_id = ? AND" if job_id is not None else ""
        rows = self._read(
            f"SELECT {EVENT_COLUMNS} FROM events WHERE {one_job} id > ? ORDER BY id LIMIT ?",
            (*([job_id] if job_id is not None else []), after, limit),
        )
        return [event_of(row) for row in rows]

    async def leases(self) -> list[Lease]:
        return list({self._lease(job) for job in self._held() if job.lease_until})

    def _lease(self, job: Job) -> Lease:
        """The lease, including a renewal that could not be written."""
        until = self._unwritten_renewals.get((job.id, job.fence)) or job.lease_until or 0.0
        return Lease(job.owner or "", until, job.lease_seconds)

    async def overdue(self, lost: Sequence[Lease] = (), limit: int = 500) -> Overdue:
        ended = set(lost)
        found = [job for job in self._held() if not job.lease_until or self._lease(job) in ended]
        deadlines = self._read(
            f"SELECT {COLUMNS} FROM jobs WHERE deadline <= ? AND finished_at IS NULL LIMIT ?",
            (self.now(), limit),
        ).fetchall()
        return Overdue(tuple(found[:limit]), tuple(map(job_of, deadlines)))

    async def resume_parked(self, after: str = "", limit: int = 1000) -> tuple[list[str], str | None]:
        def operation(tx: SqliteTransaction) -> tuple[list[str], str | None]:
            tx.flush()
            page = tx.execute(_PARKED, (after, limit)).fetchall()
            stuck = [job_id for job_id, is_stuck in page if is_stuck]
            resumed = [job_id for job_id in stuck if operations.resume_parked(tx, job_id)]
            return resumed, page[-1][0] if len(page) == limit else None

        return await self._write(operation)

    def _held(self) -> list[Job]:
        """The held jobs. A copy, because the writer's thread changes the cache."""
        return list(self._cache.held.values())

    async def known(self, ids: Sequence[str]) -> set[str]:
        sql = "SELECT 1 FROM jobs WHERE id = ?"
        return {job_id for job_id in ids if self._read(sql, (job_id,)).fetchone()}

    async def queues(self) -> list[QueueState]:
        counts: dict[str, dict[str, Any]] = {
            name: count._asdict() for name, count in self._cache.counts.read(self.now()).items()
        }
        for name, running in Counter(job.queue for job in self._held()).items():
            counts.setdefault(name, {}).update(running=running)
        for (name,) in self._read(PAUSED):
            counts.setdefault(name, {}).update(paused=True)
        return [QueueState(name, **fields) for name, fields in sorted(counts.items())]

    async def durations(self) -> dict[str, dict[str, Any]]:
        rows = self._read("SELECT kind, sketch FROM durations")
        return {kind: msgspec.json.decode(sketch) for kind, sketch in rows}
