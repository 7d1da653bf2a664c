"""The embedded store: one SQLite file, one writer thread with group commit, synchronous reads on the event loop.

1. WAL with synchronous=FULL: a write whose future has resolved survives a power cut.
2. Only the service process opens the file; the data folder is locked to one service.
3. A read is one indexed lookup on the event loop, because a thread switch costs more. Jobs are cached until they change.
   Lists run in threads with connections of their own. The jobs of each queue are counted as they change, not when they are
   requested.
4. The clock never goes back, not even across restarts: it starts no earlier than the newest event. If the system clock is
   behind that, time runs at half speed until the system clock has caught up.
5. A lease renewal that cannot be written still counts, so a full disk does not take jobs from working children.
6. Every lease belongs to this process, or was voided when the process started.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections import Counter, deque
from collections.abc import Awaitable, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from bide.core.clock import MOST_BEHIND, CatchUpClock, Clock, SystemClock
from bide.core.jobs.lease import Lease
from bide.core.jobs.record import Job
from bide.core.wire.http import Event
from bide.server.store import (
    Missing,
    OnEvents,
    OnLog,
    OnReset,
    OnWork,
    QueueState,
    StoreUnavailable,
)
from bide.server.store.job_search import SearchDialect
from bide.server.store.query_threads import QueryConnection, QueryThreads
from bide.server.store.rows import COLUMNS, job_of
from bide.server.store.sql_reads import Reads, Rows, SqlReads
from bide.server.store.sqlite import index_builds
from bide.server.store.sqlite.file import (
    SqliteQueries,
    connect,
    explain,
    lengthen_wal,
    new_epoch,
    prepare,
)
from bide.server.store.sqlite.log_mark import MARK, LogMark
from bide.server.store.sqlite.transaction import (
    BY_ID,
    BY_TOMBSTONE,
    PAUSED,
    SqliteCache,
    SqliteTransaction,
)
from bide.server.store.writer import WriteOperation
from bide.server.upload_record import Upload

log = logging.getLogger("bide.store")
SPARE_CACHE = 2000  # KiB; a query over a table reads each page once
WAL_DELAY, WAL_PAUSE = (
    2.0,
    0.05,
)  # seconds from the start until the write-ahead log is lengthened, and between two pieces
_LATE = f"SELECT {COLUMNS} FROM jobs WHERE deadline <= ? AND finished_at IS NULL LIMIT ?"


class SqliteStore(SqlReads):
    """`Store` on one SQLite file."""

    one_process = True
    is_ready = "ready = 1"
    output_bytes = (
        "SELECT coalesce(sum(length(CAST(j.result AS BLOB))), 0) + coalesce(sum(json_extract(j.result_file, '$.size')), 0) "
        "+ coalesce(sum((SELECT sum(json_extract(f.value, '$.size')) FROM json_each(j.files) f)), 0) "
        "FROM jobs j WHERE j.tenant = ?"
    )
    dialect = SearchDialect(
        code="json_extract(error, '$.code')", indexed_by="INDEXED BY", intersect=True, medium=20_000
    )

    def __init__(self, path: Path, clock: Clock | None = None) -> None:
        self._wall = clock or SystemClock()
        super().__init__(self._wall)
        self.path = path
        self._cache = SqliteCache()
        self._job_cache = self._cache.jobs
        self._spare: deque[sqlite3.Connection] = deque()  # of a query in a thread that has ended
        self._closing = self._disconnected = False
        self._lengthening: asyncio.TimerHandle | None = None
        # The ends of leases whose renewal could not be written.
        self._unwritten_renewals: dict[tuple[str, int], float] = {}

    # --- beginning and end

    async def connect(
        self, on_events: OnEvents, on_work: OnWork, on_reset: OnReset, on_log: OnLog
    ) -> None:
        await asyncio.to_thread(prepare, self.path)
        self._reader = connect(self.path)
        self.now = self._monotonic_clock().now
        await asyncio.to_thread(self._cache.load, self._reader, self.now())
        self._connection = connect(self.path)
        # The limits may be higher than before. Claims block the jobs again that are beyond them.
        blocked = f"SELECT seq FROM jobs {self._cache.blocked}"
        self._connection.execute(f"UPDATE jobs SET ready = 1 WHERE seq IN ({blocked})")
        self._mark = LogMark(self.path.with_name(MARK))
        ended = self._mark.number
        if ended is None or ended > self._last_event:
            if ended is not None:
                log.warning(
                    "the event log ends at number %d, but an earlier one ended at %d: an older copy of the database was "
                    "restored. Listeners start again",
                    self._last_event,
                    ended,
                )
            new_epoch(self._connection)
        self._mark.write(self._last_event)
        self.queries = QueryThreads(self._query_connection)

    async def open(
        self,
        on_events: OnEvents,
        on_work: OnWork | None = None,
        on_reset: OnReset | None = None,
        on_log: OnLog | None = None,
    ) -> None:
        await super().open(on_events, on_work, on_reset, on_log)
        self._lengthening = asyncio.get_running_loop().call_later(WAL_DELAY, self._lengthen_wal)

    def _lengthen_wal(self) -> None:
        """Make the write-ahead log as long as it becomes anyway, because a commit that makes it longer takes more time."""
        self._writer.submit(lambda tx: lengthen_wal(self.path)).add_done_callback(self._lengthened)

    def _lengthened(self, lengthening: asyncio.Future[bool]) -> None:
        if lengthening.exception() is None and lengthening.result() and not self._closing:
            self._lengthening = asyncio.get_running_loop().call_later(WAL_PAUSE, self._lengthen_wal)

    async def close(self) -> None:
        self._closing = True
        if self._lengthening is not None:
            self._lengthening.cancel()
        await super().close()

    def search_dialect(self, connection: QueryConnection) -> SearchDialect:
        dialect = self.dialect
        if self._cache.sliced:
            dialect = dialect._replace(listed=index_builds.LISTED)
        return index_builds.during(dialect, connection.rows) if self._cache.building else dialect

    def _query_connection(self) -> SqliteQueries:
        try:
            return SqliteQueries(self.path, connect(self.path))
        except sqlite3.DatabaseError as error:  # no file descriptor for it
            self._raise_explained(error)
            raise

    @property
    def _last_event(self) -> int:
        return self._cache.last_event or 0

    def _monotonic_clock(self) -> Clock:
        """The system clock; or a slower one, while the system clock is behind the newest event because it was set back."""
        newest = self._row("SELECT at FROM events ORDER BY id DESC LIMIT 1")
        if newest is None:
            return self._wall
        behind = newest[0] - self._wall.now()
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

    async def disconnect(self) -> None:
        self._mark.close()
        await self.queries.close()
        self._disconnected = True
        while self._spare:
            self._spare.pop().close()
        self._connection.close()
        self._reader.close()

    # --- writes

    def transact(self, operations: Sequence[WriteOperation]) -> tuple[list[Any], list[Event]]:
        connection = self._connection
        try:
            connection.execute("BEGIN IMMEDIATE")
            try:
                tx = SqliteTransaction(self._cache, connection, self.now())
                results = [operation.run(tx) for operation in operations]
                tx.finish()
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
        except sqlite3.DatabaseError as error:
            if len(operations) == 1:  # otherwise a smaller transaction may succeed
                self._raise_explained(error)
            raise
        tx.committed()
        return results, tx.events

    def on_delivered(self) -> None:
        self._mark.write(self._last_event)

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

        writing = asyncio.ensure_future(super().renew(owner, held, lease))
        writing.add_done_callback(renewed)
        return writing

    def _raise_explained(self, error: sqlite3.Error) -> None:
        """Raise StoreUnavailable if the file or its disk is the cause."""
        reason = explain(error, self.path)
        if reason is not None:
            raise StoreUnavailable(reason) from error

    # --- reads

    def _row(self, sql: str, values: Sequence[Any] = ()) -> tuple[Any, ...] | None:
        """The first row of a short query."""
        try:
            row: tuple[Any, ...] | None = self._reader.execute(sql, values).fetchone()
        except sqlite3.DatabaseError as error:
            self._raise_explained(error)
            raise
        return row

    def _rows(self, sql: str, values: Sequence[Any] = ()) -> Rows:
        """The rows of a short query."""
        try:
            return self._reader.execute(sql, values).fetchall()
        except sqlite3.DatabaseError as error:
            self._raise_explained(error)
            raise

    async def rows(self, sql: str, values: Sequence[Any] = (), *, reads: Reads = "row") -> Rows:
        if reads == "table":
            return await asyncio.to_thread(self._query, sql, values)
        return self._rows(sql, values)

    def _query(self, sql: str, values: Sequence[Any]) -> Rows:
        """Run a query that may take long; called in a thread, uses a connection of its own. One of them stays open, because
        opening one takes milliseconds.
        """
        try:
            try:
                connection = self._spare.pop()
            except IndexError:  # also if another thread has just taken it
                connection = self._small_connection()
            try:
                rows = connection.execute(sql, values).fetchall()
            except BaseException:
                connection.close()
                raise
        except sqlite3.DatabaseError as error:  # damaged, or no file descriptor for it
            self._raise_explained(error)
            raise
        if self._spare or self._disconnected:
            connection.close()
        else:
            self._spare.append(connection)
        return rows

    def _small_connection(self) -> sqlite3.Connection:
        connection = connect(self.path)
        connection.execute(f"PRAGMA cache_size = -{SPARE_CACHE}")
        return connection

    async def last_number(self) -> int:
        return self._last_event

    async def get(self, ids: Sequence[str]) -> list[Job | Missing]:
        found: list[Job | Missing] = []
        for job_id in ids:
            job = self._job_cache.get(job_id)
            if job is None:
                generation = self._job_cache.generation
                row = self._row(BY_ID, (job_id,))
                if row is None:
                    found.append(self._missing(job_id))
                    continue
                job = job_of(row)
                self._job_cache.put(job, generation)
            found.append(job)
        return found

    def _missing(self, job_id: str) -> Missing:
        row = self._row(BY_TOMBSTONE, (job_id,))
        return Missing() if row is None else Missing(gone=True, tenant=row[0])

    async def held_and_late(self, limit: int, owner: str = "") -> tuple[list[Job], list[Job]]:
        held = [job for job in self._held() if (job.owner or "").startswith(owner)]
        late = self._rows(_LATE, (self.now(), limit)) if limit else []
        return held, [job_of(row) for row in late]

    def lease_of(self, job: Job) -> Lease:
        """The lease, including a renewal that could not be written."""
        until = self._unwritten_renewals.get((job.id, job.fence))
        lease = super().lease_of(job)
        return lease if until is None else replace(lease, until=until)

    def _held(self) -> list[Job]:
        """The held jobs. A copy, because the writer's thread changes the cache."""
        return list(self._cache.held.values())

    async def queues(self) -> list[QueueState]:
        counts: dict[str, dict[str, Any]] = {
            name: count._asdict() for name, count in self._cache.counts.read(self.now()).items()
        }
        for name, running in Counter(job.queue for job in self._held()).items():
            counts.setdefault(name, {}).update(running=running)
        for (name,) in self._rows(PAUSED):
            counts.setdefault(name, {}).update(paused=True)
        return [QueueState(name, **fields) for name, fields in sorted(counts.items())]

    async def upload(self, upload_id: str) -> Upload | Missing:
        known = self._cache.uploads.get(upload_id)
        if known is not None:
            return known
        return await super().upload(upload_id)
