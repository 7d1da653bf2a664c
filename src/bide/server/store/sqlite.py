"""The embedded store: one SQLite file, one writer thread with group commit, reads at once on the loop.

1. WAL with synchronous=FULL: what a future has resolved for survives a power cut.
2. The service process alone opens the file; the data folder is locked to one service.
3. A read is one indexed look-up on the loop: a thread hop would cost more than it. Lists run in a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from bide.core.clock import Clock, SystemClock
from bide.core.job import Change, Refused, Spawned
from bide.core.record import Job
from bide.core.wire import Event
from bide.server.store import (
    Claim,
    Filter,
    Inserted,
    KeyConflict,
    Missing,
    NewJob,
    Overdue,
    QueueState,
    Want,
    transactions,
)
from bide.server.store.database import connect, prepare
from bide.server.store.rows import COLUMNS, job_of
from bide.server.store.transactions import Memory, Work
from bide.server.store.writer import Writer

T = TypeVar("T")
_encode = msgspec.json.Encoder().encode
_PAUSED = "SELECT name FROM queues WHERE paused"


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
        begin = partial(Work, Memory())
        self._writer = Writer(partial(connect, self.path), self._clock, heard, begin)

    async def close(self) -> None:
        await self._writer.close()
        self._reader.close()

    async def void(self) -> int:
        def operation(tx: Work) -> int:
            return tx.execute("UPDATE jobs SET lease_until = 0 WHERE lease_until IS NOT NULL").rowcount

        return await self._write(operation)

    def now(self) -> float:
        return self._clock.now()

    def _write(self, operation: Callable[[Work], T]) -> asyncio.Future[T]:
        return self._writer.submit(operation)

    # --- writes

    def insert(self, new: Sequence[NewJob]) -> Awaitable[list[Inserted | KeyConflict]]:
        return self._write(lambda tx: [transactions.insert(tx, item) for item in new])

    def apply(self, changes: Sequence[Change]) -> Awaitable[list[Job | Refused | Missing]]:
        return self._write(lambda tx: [transactions.apply(tx, change) for change in changes])

    def spawn(self, change: Change, new: NewJob) -> Awaitable[Job | Refused | Missing]:
        assert isinstance(change, Spawned)
        return self._write(lambda tx: transactions.spawn(tx, change, new))

    def claim(
        self, owner: str, wants: Sequence[Want], limit: int, lease: float
    ) -> Awaitable[list[Claim]]:
        def operation(tx: Work) -> list[Claim]:
            claims: list[Claim] = []
            paused = {name for (name,) in tx.execute(_PAUSED)}
            for want in wants:
                room = min(want.limit, limit - len(claims))
                if room > 0 and want.queue not in paused:
                    claims += [
                        transactions.claim(tx, job, owner, tx.now + lease, reserve=i >= want.begin)
                        for i, job in enumerate(transactions.due(tx, want, room))
                    ]
            return claims

        return self._write(operation)

    def renew(self, held: Sequence[tuple[str, int]], lease: float) -> Awaitable[list[tuple[str, int]]]:
        def operation(tx: Work) -> list[tuple[str, int]]:
            until = tx.now + lease
            return [(j, fence) for j, fence in held if not transactions.renew(tx, j, fence, until)]

        return self._write(operation)

    def log(self, job_id: str, fence: int, lines: Sequence[dict[str, Any]]) -> Awaitable[None]:
        def operation(tx: Work) -> None:
            job = tx.job(job_id)
            if job is not None and job.fence == fence:
                for line in lines:
                    tx.tell(job, "log", {"log": line})

        return self._write(operation)

    def wake(self) -> Awaitable[tuple[set[tuple[str, str]], float | None]]:
        def operation(tx: Work) -> tuple[set[tuple[str, str]], float | None]:
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
        # A child outlives its retention as long as its parent may ask for its result, in a later run too.
        expired = (
            "SELECT id, tenant FROM jobs WHERE expires_at <= ? AND NOT EXISTS (SELECT 1 FROM jobs p "
            "WHERE p.id = jobs.parent AND p.status <> 'DONE') LIMIT ?"
        )

        def operation(tx: Work) -> tuple[list[str], bool]:
            tx.flush()
            rows = tx.execute(expired, (tx.now, limit)).fetchall()
            for job_id, tenant in rows:
                transactions.remove(tx, job_id, tenant)
            tx.execute("DELETE FROM tombstones WHERE at <= ?", (tx.now - tombstones,))
            tx.execute("DELETE FROM keys WHERE at <= ?", (tx.now - keys,))
            return [job_id for job_id, _ in rows], len(rows) == limit

        return self._write(operation)

    def delete(self, job_id: str, version: int | None = None) -> Awaitable[Job | Refused | Missing]:
        return self._write(lambda tx: transactions.delete(tx, job_id, version))

    def pause(self, queue: str, paused: bool) -> Awaitable[None]:
        def operation(tx: Work) -> None:
            tx.execute(
                "INSERT INTO queues (tenant, name, paused) VALUES ('-', ?, ?) "
                "ON CONFLICT DO UPDATE SET paused = excluded.paused",
                (queue, paused),
            )

        return self._write(operation)

    def learn(self, durations: dict[str, dict[str, Any]]) -> Awaitable[None]:
        def operation(tx: Work) -> None:
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
            row = self._read(transactions.BY_ID, (job_id,)).fetchone()
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
