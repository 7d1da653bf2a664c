"""The PostgreSQL store: one database, used by any number of processes.

1. Each process writes from one thread over one connection, with group commit: queued operations share a transaction.
2. A row is locked before it changes, or the write is conditional on the cached row, so no write of another process is
   lost.
3. The clock is the database's.
4. Reads use connections of their own. Polls read cached jobs, which are invalidated by local writes and by the change feed;
   the cache is not used while the feed is interrupted.
5. An unreachable database raises `StoreUnavailable`, and is used again without a restart when it returns.
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
from bide.server.store.postgres.workers import LIVE, WAITING, record_worker, remove_worker
from bide.server.store.rows import COLUMNS, EVENT_COLUMNS, event_of, job_of
from bide.server.store.transaction import encode
from bide.server.store.writer import GroupCommitWriter

T = TypeVar("T")
WRITE_TIMEOUT = 6.0
CONNECTIONS = 8  # for reads; there is one more for writes and one for the change feed
_LEASES = (
    "SELECT owner, lease_until, max(lease_seconds) FROM jobs WHERE lease_until > 0 AND finished_at IS NULL "
    "GROUP BY owner, lease_until"
)
# Rows that another process is about to write are skipped.
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
# Each count reads a partial index, which has no finished jobs.
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
        """`held_only`: of the changes of other processes, deliver only those to jobs that this process holds.
        `counts_age`: for how many seconds the counts of `queues` are reused.
        """
        self.server = PostgresServer(url)
        self._clock = clock or DatabaseClock()
        self._cache = PostgresCache()
        self._job_cache = self._cache.jobs
        self._origin = secrets.token_hex(6)
        self._connections = connections
        self._held_only = held_only
        self._counts_age = counts_age

    # --- beginning and end

    async def open(
        self, on_events: OnEvents, on_work: OnWork | None = None, on_reset: OnReset | None = None
    ) -> None:
        await asyncio.to_thread(prepare, self.server)
        loop = asyncio.get_running_loop()
        on_reset = on_reset or (lambda: None)
        follow = WorkerFeed if self._held_only else ChangeFeed
        self._feed = follow(
            self.server, self._cache, self._clock, self._origin, on_events, on_work, on_reset
        )
        try:
            await self._feed.open()
            session = await asyncio.to_thread(
                PostgresSession,
                self.server,
                self._clock,
                self._cache,
                self._origin,
                partial(loop.call_soon_threadsafe, on_reset),
            )
        except (psycopg.Error, TimeoutError) as error:
            reason = (explain(error) if isinstance(error, psycopg.Error) else None) or error
            raise SetupError(f"{self.server.shown} cannot be used: {reason}") from error
        self._reads = ReadPool(self.server, self._job_cache, self._connections)
        self._counts = SharedQuery(lambda: self._reads.list_rows(_COUNTS), self._counts_age)
        unknown = f"It is unknown whether this was stored: {self.server.shown} does not answer. {FROZEN}"
        self._timeouts = Timeouts(WRITE_TIMEOUT, unknown)
        self._writer = GroupCommitWriter(session, on_events)

    async def close(self) -> None:
        await self._writer.close()
        await self._feed.close()
        await self._reads.close()

    def now(self) -> float:
        return self._clock.now()

    def _write(self, run: Callable[[PostgresTransaction], T], **needs: Any) -> asyncio.Future[T]:
        writing = self._writer.submit(run, **needs)
        if not needs.get("first"):  # a claim must not time out: its jobs are already this process's
            self._timeouts.watch(writing)
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
        self, owner: str, requests: Sequence[ClaimRequest], limit: int, lease: float
    ) -> Awaitable[list[Claim]]:
        self._cache.owners.add(owner)
        # First, because starting a job takes longer than responding to a submission.
        return self._write(lambda tx: operations.claims(tx, owner, requests, limit, lease), first=True)

    def renew(
        self, owner: str, held: Sequence[tuple[str, int]], lease: float
    ) -> Awaitable[list[tuple[str, int]]]:
        def operation(tx: PostgresTransaction) -> list[tuple[str, int]]:
            lost = operations.renew(tx, owner, held, lease)
            for job_id, fence in lost:
                if self._cache.own.get(job_id) == fence:  # not a later claim of the same job
                    del self._cache.own[job_id]
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
        return await self._write(lambda tx: void(tx, self._cache, owner))

    # --- reads

    async def identity(self) -> str:
        ((store_id,),) = await self._reads.rows("SELECT id FROM store_id")
        return str(store_id)

    async def has_key(self, tenant: str, kind: str, key: str) -> bool:
        sql = "SELECT 1 FROM keys WHERE tenant = %s AND kind = %s AND key = %s"
        return bool(await self._reads.rows(sql, (tenant, kind, key)))

    async def get(self, ids: Sequence[str]) -> list[Job | Missing]:
        known = self._job_cache.get if self._cache.fresh and not self._held_only else _nothing
        if len(ids) == 1:
            return [known(ids[0]) or await self._reads.job(ids[0])]
        return list(
            await asyncio.gather(
                *(_immediately(job) if (job := known(i)) else self._reads.job(i) for i in ids)
            )
        )

    async def find(self, filter: Filter) -> list[Job]:
        if NUL in f"{filter.kind}{filter.queue}":
            return []
        conditions: list[tuple[str, Iterable[Any]]] = []
        if filter.status:
            conditions.append(("status = ANY(%s)", [sorted(s.value for s in filter.status)]))
            if "DONE" not in filter.status:  # lets the planner use the partial index
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
        return [job_of(row) for row in await self._reads.list_rows(sql, [*values, filter.limit])]

    async def input(self, job_id: str) -> bytes:
        rows = await self._reads.rows("SELECT input FROM inputs WHERE job_id = %s", (job_id,))
        return rows[0][0].encode() if rows else b"null"

    async def step(self, job_id: str, name: str) -> bytes | None:
        sql = "SELECT result FROM steps WHERE job_id = %s AND name = %s"
        rows = await self._reads.rows(sql, (job_id, encode(name).decode()))
        return rows[0][0].encode() if rows else None

    async def events(self, after: int = 0, job_id: str | None = None, limit: int = 1000) -> list[Event]:
        one_job = "job_id = %s AND" if job_id is not None else ""
        rows = await self._reads.list_rows(
            f"SELECT {EVENT_COLUMNS} FROM events WHERE {one_job} id > %s ORDER BY id LIMIT %s",
            (*([job_id] if job_id is not None else []), after, limit),
        )
        return [event_of(row) for row in rows]

    async def leases(self) -> list[Lease]:
        return [Lease(*row) for row in await self._reads.rows(_LEASES)]

    async def overdue(self, lost: Sequence[Lease] = (), limit: int = 500) -> Overdue:
        found = [job_of(row) for row in await self._reads.rows(_VOIDED, (limit,))]
        if lost:
            ended = {(lease.owner, lease.until) for lease in lost}
            untils, owners = [until for _, until in ended], [owner for owner, _ in ended]
            rows = await self._reads.rows(_LOST, (untils, owners, limit))
            if len(rows) < limit:
                # A worker renews all its leases together and is blocked while one row is locked: then none is lost.
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
        page = await self._reads.list_rows(PARKED, (after, limit))
        stuck = [job_id for job_id, is_stuck in page if is_stuck]
        resumed: list[str] = []
        if stuck:
            resumed = await self._write(
                lambda tx: [job_id for job_id in stuck if operations.resume_parked(tx, job_id)],
                jobs=stuck,
            )
        return resumed, page[-1][0] if len(page) == limit else None

    async def known(self, ids: Sequence[str]) -> set[str]:
        rows = await self._reads.list_rows("SELECT id FROM jobs WHERE id = ANY(%s)", (list(ids),))
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

    # --- workers

    def record_worker(self, name: str, state: str) -> Awaitable[None]:
        return self._write(lambda tx: record_worker(tx, name, state))

    def remove_worker(self, name: str) -> Awaitable[None]:
        return self._write(lambda tx: remove_worker(tx, name))

    async def live_workers(self, age: float) -> dict[str, str]:
        return dict(await self._reads.rows(LIVE, (self.now() - age,)))

    async def waiting(self) -> set[tuple[str, str]]:
        return {(queue, kind) for queue, kind in await self._reads.rows(WAITING)}

    async def durations(self) -> dict[str, dict[str, Any]]:
        rows = await self._reads.rows("SELECT kind, sketch FROM durations")
        return {kind: msgspec.json.decode(sketch) for kind, sketch in rows}


def _nothing(job_id: str) -> None:
    return None


async def _immediately(job: Job) -> Job:
    return job
