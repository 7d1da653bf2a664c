"""The store to scale: one PostgreSQL database, any number of processes that read and write it.

1. Each process writes from one thread over one connection, with group commit: what is queued shares a transaction.
2. A row that is to change is locked, or known to be the one that was remembered; nothing is written past another process.
3. Its time is the database's.
4. Reads go over connections of their own. What was read is kept until it changes here or the feed says that it has
   changed elsewhere; while the feed is silent nothing is kept.
5. A database that is away is told as `Unwritable`, and used again when it is back, without a restart.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

import msgspec
import psycopg

from bide.core.clock import Clock
from bide.core.errors import SetupError
from bide.core.job import Change, Refused, Spawned
from bide.core.lease import Lease
from bide.core.record import Job
from bide.core.wire import Event
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
    operations,
)
from bide.server.store.postgres.cache import PostgresCache
from bide.server.store.postgres.feed import ChangeFeed, DatabaseClock
from bide.server.store.postgres.reads import FROZEN, NUL, ReadPool, SharedQuery
from bide.server.store.postgres.server import PostgresServer, explain, prepare
from bide.server.store.postgres.session import PostgresSession
from bide.server.store.postgres.timeouts import Timeouts
from bide.server.store.postgres.transaction import PostgresTransaction, tag
from bide.server.store.postgres.upkeep import PARKED, check_writable, learn, purge, void, wake
from bide.server.store.postgres.uploads import PostgresUploads
from bide.server.store.postgres.worker_feed import WorkerFeed
from bide.server.store.postgres.workers import ROSTER, WAITING, dismiss, enlist
from bide.server.store.rows import COLUMNS, job_of
from bide.server.store.transaction import encode
from bide.server.store.writer import GroupCommitWriter

T = TypeVar("T")
PATIENCE = 6.0  # for a write
CONNECTIONS = 8  # for reads; one more writes, and one listens
_LEASES = (
    "SELECT owner, lease_until, max(lease_seconds) FROM jobs WHERE lease_until > 0 AND finished_at IS NULL "
    "GROUP BY owner, lease_until"
)
# Whoever is about to write one of them need not be waited for.
_VOIDED = (
    f"SELECT {COLUMNS} FROM jobs WHERE lease_until = 0 AND finished_at IS NULL LIMIT %s "
    "FOR NO KEY UPDATE SKIP LOCKED"
)
_LOST = (
    f"SELECT {COLUMNS} FROM jobs WHERE lease_until = ANY(%s) AND owner = ANY(%s) AND finished_at IS NULL LIMIT %s "
    "FOR NO KEY UPDATE SKIP LOCKED"
)
_SIZES = (
    "SELECT owner, lease_until, count(*) FROM jobs WHERE lease_until = ANY(%s) AND owner = ANY(%s) "
    "AND finished_at IS NULL GROUP BY owner, lease_until"
)
# Each count reads a partial index, so finished jobs cost nothing.
_COUNTS = (
    "SELECT queue, count(*), 0, 0, min(due) FROM jobs WHERE ready GROUP BY queue UNION ALL "
    "SELECT queue, 0, count(*), 0, NULL FROM jobs WHERE NOT ready AND due IS NOT NULL GROUP BY queue UNION ALL "
    "SELECT queue, 0, 0, count(*), NULL FROM jobs WHERE lease_until IS NOT NULL AND finished_at IS NULL GROUP BY queue"
)


class PostgresStore(PostgresUploads):
    """`Store` on one schema of a PostgreSQL database."""

    def __init__(
        self,
        url: str,
        clock: Clock | None = None,
        *,
        connections: int = CONNECTIONS,
        held_only: bool = False,
        counts_age: float = 0.0,
    ) -> None:
        """`held_only`: of what others write, only that is told which is about jobs that this process holds. `counts_age`:
        for how many seconds the numbers of `queues` are used again.
        """
        self.server = PostgresServer(url)
        self._clock = clock or DatabaseClock()
        self._memory = PostgresCache()
        self._recent = self._memory.recent
        self._origin = secrets.token_hex(6)
        self._most = connections
        self._held_only = held_only
        self._counts_age = counts_age

    # --- beginning and end

    async def open(
        self, heard: OnEvents, nudge: OnWork | None = None, reset: OnReset | None = None
    ) -> None:
        await asyncio.to_thread(prepare, self.server)
        loop = asyncio.get_running_loop()
        reset = reset or (lambda: None)
        follow = WorkerFeed if self._held_only else ChangeFeed
        self._feed = follow(self.server, self._memory, self._clock, self._origin, heard, nudge, reset)
        try:
            await self._feed.open()
            session = await asyncio.to_thread(
                PostgresSession,
                self.server,
                self._clock,
                self._memory,
                self._origin,
                partial(loop.call_soon_threadsafe, reset),
            )
        except (psycopg.Error, TimeoutError) as error:
            reason = (explain(error) if isinstance(error, psycopg.Error) else None) or error
            raise SetupError(f"{self.server.shown} cannot be used: {reason}") from error
        self._reads = ReadPool(self.server, self._recent, self._most)
        self._counts = SharedQuery(lambda: self._reads.listed(_COUNTS), self._counts_age)
        unknown = f"whether this was stored is not known. {self.server.shown} does not answer: {FROZEN}"
        self._patience = Timeouts(PATIENCE, unknown)
        self._writer = GroupCommitWriter(session, heard)

    async def close(self) -> None:
        await self._writer.close()
        await self._feed.close()
        await self._reads.close()

    def now(self) -> float:
        return self._clock.now()

    def _write(self, run: Callable[[PostgresTransaction], T], **needs: Any) -> asyncio.Future[T]:
        writing = self._writer.submit(run, **needs)
        if not needs.get("first"):  # what is claimed must reach whom it was claimed for
            self._patience.watch(writing)
        return writing

    # --- writes

    def insert(self, new: Sequence[NewJob]) -> Awaitable[list[Insertion]]:
        keys = [(n.job.tenant, n.job.kind, n.key) for n in new if n.key is not None]
        return self._write(lambda tx: [operations.insert(tx, item) for item in new], keys=keys)

    def apply(self, changes: Sequence[Change]) -> Awaitable[list[Job | Refused | Missing]]:
        return self._write(
            lambda tx: [operations.apply(tx, change) for change in changes],
            jobs=[change.job_id for change in changes],
        )

    def spawn(self, change: Change, new: NewJob) -> Awaitable[Job | Refused | Missing]:
        assert isinstance(change, Spawned)
        return self._write(lambda tx: operations.spawn(tx, change, new), jobs=[change.job_id])

    def claim(
        self, owner: str, wants: Sequence[ClaimRequest], limit: int, lease: float
    ) -> Awaitable[list[Claim]]:
        self._memory.owners.add(owner)
        # A child gets its job before the caller gets an answer: the one takes longer from here.
        return self._write(lambda tx: operations.claims(tx, owner, wants, limit, lease), first=True)

    def renew(
        self, owner: str, held: Sequence[tuple[str, int]], lease: float
    ) -> Awaitable[list[tuple[str, int]]]:
        def operation(tx: PostgresTransaction) -> list[tuple[str, int]]:
            lost = operations.renew(tx, owner, held, lease)
            for job_id, fence in lost:
                if self._memory.mine.get(job_id) == fence:  # not a later claim of the same job
                    del self._memory.mine[job_id]
            return lost

        return self._write(operation, jobs=[job_id for job_id, _ in held])

    def log(
        self, job_id: str, owner: str, fence: int, lines: Sequence[dict[str, Any]]
    ) -> Awaitable[None]:
        return self._write(lambda tx: operations.log(tx, job_id, owner, fence, lines), jobs=[job_id])

    def check_writable(self) -> Awaitable[None]:
        return self._write(check_writable)

    def delete(self, job_id: str, version: int | None = None) -> Awaitable[Job | Refused | Missing]:
        return self._write(lambda tx: operations.delete(tx, job_id, version), jobs=[job_id])

    def pause(self, queue: str, paused: bool) -> Awaitable[None]:
        return self._write(lambda tx: tx.pause(queue, paused))

    def wake(self) -> Awaitable[tuple[set[tuple[str, str]], float | None]]:
        return self._write(wake)

    def purge(
        self, *, tombstones: float, keys: float, limit: int = 500
    ) -> Awaitable[tuple[list[str], bool]]:
        return self._write(lambda tx: purge(tx, tombstones, keys, limit))

    def learn(self, durations: dict[str, dict[str, Any]]) -> Awaitable[None]:
        return self._write(lambda tx: learn(tx, durations))

    async def void(self, owner: str | None = None) -> int:
        return await self._write(lambda tx: void(tx, self._memory, owner))

    # --- reads

    async def identity(self) -> str:
        ((store_id,),) = await self._reads.rows("SELECT id FROM store_id")
        return str(store_id)

    async def has_key(self, tenant: str, kind: str, key: str) -> bool:
        sql = "SELECT 1 FROM keys WHERE tenant = %s AND kind = %s AND key = %s"
        return bool(await self._reads.rows(sql, (tenant, kind, key)))

    async def get(self, ids: Sequence[str]) -> list[Job | Missing]:
        known = self._recent.get if self._memory.alive and not self._held_only else _nothing
        if len(ids) == 1:
            return [known(ids[0]) or await self._reads.job(ids[0])]
        return list(
            await asyncio.gather(*(_told(job) if (job := known(i)) else self._reads.job(i) for i in ids))
        )

    async def find(self, filter: Filter) -> list[Job]:
        if NUL in f"{filter.kind}{filter.queue}":
            return []
        conditions: list[tuple[str, Iterable[Any]]] = []
        if filter.status:
            conditions.append(("status = ANY(%s)", [sorted(s.value for s in filter.status)]))
            if "DONE" not in filter.status:  # for the index, which has no others
                conditions.append(("status <> 'DONE'", []))
        for column, value in (("kind", filter.kind), ("queue", filter.queue)):
            if value is not None:
                conditions.append((f"{column} = %s", [value]))
        if filter.label is not None:
            conditions.append(("tags IS NOT NULL AND tags @> %s", [[tag(*filter.label)]]))
        if filter.before is not None:
            conditions.append(("id < %s", [filter.before]))
        where = " AND ".join(text for text, _ in conditions) or "true"
        values = [v for _, vs in conditions for v in vs]
        sql = f"SELECT {COLUMNS} FROM jobs WHERE {where} ORDER BY id DESC LIMIT %s"
        return [job_of(row) for row in await self._reads.listed(sql, [*values, filter.limit])]

    async def input(self, job_id: str) -> bytes:
        rows = await self._reads.rows("SELECT input FROM inputs WHERE job_id = %s", (job_id,))
        return rows[0][0].encode() if rows else b"null"

    async def step(self, job_id: str, name: str) -> bytes | None:
        sql = "SELECT result FROM steps WHERE job_id = %s AND name = %s"
        rows = await self._reads.rows(sql, (job_id, encode(name).decode()))
        return rows[0][0].encode() if rows else None

    async def events(self, after: int = 0, job_id: str | None = None, limit: int = 1000) -> list[Event]:
        one_job = "job_id = %s AND" if job_id is not None else ""
        rows = await self._reads.listed(
            f"SELECT id, job_id, type, at, job, tenant FROM events WHERE {one_job} id > %s "
            "ORDER BY id LIMIT %s",
            (*([job_id] if job_id is not None else []), after, limit),
        )
        return [
            Event(number, of, type_, at, msgspec.json.decode(job), tenant)
            for number, of, type_, at, job, tenant in rows
        ]

    async def leases(self) -> list[Lease]:
        return [Lease(*row) for row in await self._reads.rows(_LEASES)]

    async def overdue(self, lost: Sequence[Lease] = (), limit: int = 500) -> Overdue:
        found = [job_of(row) for row in await self._reads.rows(_VOIDED, (limit,))]
        if lost:
            ended = {(lease.owner, lease.until) for lease in lost}
            untils, owners = [until for _, until in ended], [owner for owner, _ in ended]
            rows = await self._reads.rows(_LOST, (untils, owners, limit))
            if len(rows) < limit:
                # A worker renews all its jobs together, and cannot while one of them is locked: then none is lost.
                free = Counter((job.owner, job.lease_until) for job in map(job_of, rows))
                sizes = await self._reads.rows(_SIZES, (untils, owners))
                ended -= {(owner, until) for owner, until, size in sizes if size > free[owner, until]}
            found += [job for job in map(job_of, rows) if (job.owner, job.lease_until) in ended]
        deadlines = await self._reads.rows(
            f"SELECT {COLUMNS} FROM jobs WHERE deadline <= %s AND finished_at IS NULL LIMIT %s",
            (self.now(), limit),
        )
        return Overdue(tuple(found), tuple(map(job_of, deadlines)))

    async def resume_parked(self, after: str = "", limit: int = 1000) -> tuple[list[str], str | None]:
        page = await self._reads.listed(PARKED, (after, limit))
        stuck = [job_id for job_id, is_stuck in page if is_stuck]
        resumed: list[str] = []
        if stuck:
            resumed = await self._write(
                lambda tx: [job_id for job_id in stuck if operations.resume_parked(tx, job_id)],
                jobs=stuck,
            )
        return resumed, page[-1][0] if len(page) == limit else None

    async def known(self, ids: Sequence[str]) -> set[str]:
        rows = await self._reads.listed("SELECT id FROM jobs WHERE id = ANY(%s)", (list(ids),))
        return {job_id for (job_id,) in rows}

    async def queues(self) -> list[QueueState]:
        counts: dict[str, dict[str, Any]] = {}
        for name, waiting, scheduled, running, oldest in await self._counts.get():
            fields = {"waiting": waiting, "scheduled": scheduled, "running": running, "oldest": oldest}
            counts.setdefault(name, {}).update(
                {field: value for field, value in fields.items() if value}
            )
        for (name,) in await self._reads.rows("SELECT name FROM queues WHERE paused"):
            counts.setdefault(name, {})["paused"] = True
        return [QueueState(name, **fields) for name, fields in sorted(counts.items())]

    # --- who runs jobs

    def enlist(self, name: str, state: str) -> Awaitable[None]:
        return self._write(lambda tx: enlist(tx, name, state))

    def dismiss(self, name: str) -> Awaitable[None]:
        return self._write(lambda tx: dismiss(tx, name))

    async def roster(self, age: float) -> dict[str, str]:
        return dict(await self._reads.rows(ROSTER, (self.now() - age,)))

    async def waiting(self) -> set[tuple[str, str]]:
        return {(queue, kind) for queue, kind in await self._reads.rows(WAITING)}

    async def durations(self) -> dict[str, dict[str, Any]]:
        rows = await self._reads.rows("SELECT kind, sketch FROM durations")
        return {kind: msgspec.json.decode(sketch) for kind, sketch in rows}


def _nothing(job_id: str) -> None:
    return None


async def _told(job: Job) -> Job:
    return job
