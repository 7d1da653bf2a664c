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
from collections.abc import Awaitable, Mapping, Sequence
from functools import partial
from typing import Any

import psycopg

from bide.core.clock import Clock
from bide.core.errors import SetupError
from bide.core.jobs.lease import Lease
from bide.core.jobs.record import Job
from bide.core.wire.http import Event
from bide.server.store import (
    Claim,
    ClaimRequest,
    LostAndLate,
    Missing,
    OnClaims,
    OnEvents,
    OnLog,
    OnReset,
    OnWork,
    QueueState,
)
from bide.server.store.job_search import SearchDialect
from bide.server.store.postgres.cache import PostgresCache
from bide.server.store.postgres.feed import LAST_NUMBER, ChangeFeed, DatabaseClock
from bide.server.store.postgres.queries import PostgresQueries
from bide.server.store.postgres.reads import FROZEN, ReadPool, SharedQuery
from bide.server.store.postgres.server import PostgresServer, explain, prepare
from bide.server.store.postgres.session import PostgresSession
from bide.server.store.postgres.worker_feed import WorkerFeed
from bide.server.store.query_threads import QueryThreads
from bide.server.store.rows import COLUMNS, FIELDS, job_of
from bide.server.store.sql_reads import Reads, Rows, SqlReads
from bide.server.store.timeouts import Timeouts
from bide.server.store.transaction import encode
from bide.server.store.transactional_store import SharedTransactionalStore
from bide.server.store.writer import WriteOperation

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
    "SELECT queue, count(*), 0, 0, min(due) FROM (SELECT queue, due FROM jobs WHERE ready UNION ALL "
    "SELECT queue, due FROM jobs WHERE blocked) w GROUP BY queue UNION ALL "
    "SELECT queue, 0, count(*), 0, NULL FROM jobs WHERE NOT ready AND blocked IS NULL AND due IS NOT NULL "
    "GROUP BY queue UNION ALL "
    "SELECT queue, 0, 0, count(*), NULL FROM jobs WHERE lease_until IS NOT NULL AND finished_at IS NULL GROUP BY queue"
)
_HELD = (
    f"SELECT {COLUMNS} FROM jobs WHERE lease_until IS NOT NULL AND finished_at IS NULL "
    "AND starts_with(coalesce(owner, ''), %s)"
)
_LATE = f"SELECT {COLUMNS} FROM jobs WHERE deadline <= %s AND finished_at IS NULL LIMIT %s"
_LONG = (
    f"SELECT {', '.join(f'j.{name}' for name in FIELDS)} FROM jobs j "
    "JOIN unnest(%s::text[], %s::float8[]) AS k(kind, since) ON k.kind = j.kind AND j.started_at < k.since "
    "WHERE j.lease_until IS NOT NULL AND j.status = 'PROCESSING' AND j.overdue_at IS NULL LIMIT %s"
)
_OVERDUE = "SELECT kind, count(*) FROM jobs WHERE lease_until IS NOT NULL AND overdue_at IS NOT NULL GROUP BY kind"
# Jumps from one (queue, kind) pair to the next along the index of claims, so the number of jobs does not matter.
_NEXT = "SELECT queue, kind FROM jobs WHERE ready {} ORDER BY queue, kind LIMIT 1"
_WAITING = (
    f"WITH RECURSIVE pairs AS (({_NEXT.format('')}) UNION ALL SELECT n.queue, n.kind FROM pairs p CROSS JOIN LATERAL "
    f"({_NEXT.format('AND (queue, kind) > (p.queue, p.kind)')}) n) SELECT queue, kind FROM pairs "
    "WHERE queue NOT IN (SELECT name FROM queues WHERE paused)"
)


class PostgresStore(SqlReads, SharedTransactionalStore):
    """`SharedStore` on one schema of a PostgreSQL database."""

    is_ready = "ready"
    output_bytes = (
        "SELECT coalesce(sum(octet_length(j.result)), 0) + coalesce(sum((j.result_file::json->>'size')::bigint), 0) "
        "+ coalesce(sum((SELECT sum((f->>'size')::bigint) FROM json_array_elements(j.files::json) f)), 0) "
        "FROM jobs j WHERE j.tenant = ?"
    )
    dialect = SearchDialect(
        code="error_code(error)",
        indexed_by="",
        intersect=False,
        medium=5000,  # to count 20,000 entries of an index takes 5 ms here, and 1 ms in SQLite
        one_statement=True,
        lookup=" OFFSET 0",
        before_merge="SET enable_nestloop = off; SET enable_mergejoin = on",
        after_merge="SET enable_nestloop = on; SET enable_mergejoin = off",
        before_walk="SET enable_sort = off; SET enable_incremental_sort = off",
        after_walk="SET enable_sort = on; SET enable_incremental_sort = on",
        snapshot="BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
    )

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
        self._clock = clock or DatabaseClock()
        super().__init__(self._clock)
        self.server = PostgresServer(url)
        self._cache = PostgresCache()
        self._job_cache = self._cache.jobs
        self._origin = secrets.token_hex(6)
        self._connections = connections
        self._held_only = held_only
        self._counts_age = counts_age

    # --- beginning and end

    async def connect(
        self, on_events: OnEvents, on_work: OnWork, on_reset: OnReset, on_log: OnLog
    ) -> None:
        await asyncio.to_thread(prepare, self.server)
        loop = asyncio.get_running_loop()
        follow = WorkerFeed if self._held_only else ChangeFeed
        self._feed = follow(
            self.server, self._cache, self._clock, self._origin, on_events, on_work, on_reset, on_log
        )
        try:
            await self._feed.open()
            try:
                self._session = await asyncio.to_thread(
                    PostgresSession,
                    self.server,
                    self._clock,
                    self._cache,
                    self._origin,
                    partial(loop.call_soon_threadsafe, on_reset),
                )
            except BaseException:
                await self._feed.close()
                raise
        except (psycopg.Error, TimeoutError) as error:
            reason = (explain(error) if isinstance(error, psycopg.Error) else None) or error
            raise SetupError(f"{self.server.shown} cannot be used: {reason}") from error
        self._reads = ReadPool(self.server, self._job_cache, self._connections)
        self.queries = QueryThreads(lambda: PostgresQueries(self.server))
        self._counts = SharedQuery(lambda: self._reads.rows(_COUNTS, long=True), self._counts_age)
        unknown = f"It is unknown whether this was stored: {self.server.shown} does not answer. {FROZEN}"
        self._timeouts = Timeouts(WRITE_TIMEOUT, unknown)

    async def own_events(self, on_events: OnEvents, on_log: OnLog) -> OnEvents:
        if self._held_only:
            return on_events
        tail = self._feed.tail

        def deliver(events: Sequence[Event]) -> None:
            try:
                on_events(events)
            finally:  # a listener that fails must not leave a gap
                tail.add_own(events)

        return deliver

    async def disconnect(self) -> None:
        await asyncio.to_thread(self._session.close)
        await self._feed.close()
        await self._reads.close()
        await self.queries.close()

    # --- writes

    def transact(self, operations: Sequence[WriteOperation]) -> tuple[list[Any], list[Event]]:
        return self._session.transact(operations)

    def claim(
        self,
        owner: str,
        requests: Sequence[ClaimRequest],
        limit: int,
        lease: float,
        *,
        stored: OnClaims | None = None,
    ) -> Awaitable[list[Claim]]:
        self._cache.owners.add(owner)
        return super().claim(owner, requests, limit, lease, stored=stored)

    # --- reads

    async def rows(self, sql: str, values: Sequence[Any] = (), *, reads: Reads = "row") -> Rows:
        return await self._reads.rows(sql.replace("?", "%s"), values, long=reads != "row")

    async def last_number(self) -> int:
        ((last,),) = await self._reads.rows(LAST_NUMBER)
        return int(last)

    async def get(self, ids: Sequence[str]) -> list[Job | Missing]:
        known = self._job_cache.get if self._cache.fresh and not self._held_only else _nothing
        if len(ids) == 1:
            return [known(ids[0]) or await self._reads.job(ids[0])]
        return list(
            await asyncio.gather(
                *(_immediately(job) if (job := known(i)) else self._reads.job(i) for i in ids)
            )
        )

    async def step(self, job_id: str, name: str) -> bytes | None:
        return await super().step(job_id, encode(name).decode())  # as JSON, because of NUL

    async def held_and_late(self, limit: int, owner: str = "") -> tuple[list[Job], list[Job]]:
        held = await self._reads.rows(_HELD, (owner,), long=True)
        late = await self._reads.rows(_LATE, (self.now(), limit)) if limit else []
        return [job_of(row) for row in held], [job_of(row) for row in late]

    async def long_running(self, since: Mapping[str, float], limit: int = 500) -> list[Job]:
        rows = await self._reads.rows(_LONG, (list(since), list(since.values()), limit))
        return [job_of(row) for row in rows]

    async def overdue_counts(self) -> dict[str, int]:
        return dict(await self._reads.rows(_OVERDUE))

    async def leases(self) -> list[Lease]:
        return [Lease(*row) for row in await self._reads.rows(_LEASES)]

    async def lost_and_late(self, lost: Sequence[Lease] = (), limit: int = 500) -> LostAndLate:
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
        late = await self._reads.rows(_LATE, (self.now(), limit))
        return LostAndLate(tuple(found), tuple(map(job_of, late)))

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

    async def waiting(self) -> set[tuple[str, str]]:
        return {(queue, kind) for queue, kind in await self._reads.rows(_WAITING)}


def _nothing(job_id: str) -> None:
    return None


async def _immediately(job: Job) -> Job:
    return job
