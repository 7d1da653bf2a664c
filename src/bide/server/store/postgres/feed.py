"""Receives the changes of other processes: LISTEN for notifications, read the event log, deliver the events.

1. Each notification names the events or jobs that another process has committed. The feed reads them, delivers them in
   order, and removes their jobs from the caches.
2. A ping every second proves that all notifications committed before it have arrived. Without it nothing is read from the
   job cache, so a poll never returns a state older than ALIVE seconds.
3. After a reconnect the feed continues after the last delivered event: it skips none and repeats none.
4. If the database has lost events that were delivered before (a standby that lagged behind was promoted), the feed clears
   the caches, calls `on_reset` and continues from the current end of the log.
5. The ping also reads the database's time, which is the store's clock.
6. The tail gets the events of all processes in order, own ones too. It begins again with a new epoch if the numbers may
   name other events than before.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import secrets
import time
from collections.abc import Sequence
from typing import Any, cast

import psycopg

from bide.core.clock import MOST_BEHIND, CatchUpClock, Clock
from bide.core.wire.http import Event
from bide.server.store import OnEvents, OnLog, OnReset, OnWork
from bide.server.store.postgres.cache import PostgresCache
from bide.server.store.postgres.log_tail import LogTail
from bide.server.store.postgres.server import NUMBERING, PostgresServer
from bide.server.store.rows import EVENT_COLUMNS, event_of

log = logging.getLogger("bide.store")
PING = 1.0
ALIVE = 2.5
RECONNECT_AFTER = 0.5
PAGE = 1000
_TIME = "SELECT extract(epoch FROM clock_timestamp())::float8, (SELECT at FROM events ORDER BY id DESC LIMIT 1)"
LAST_NUMBER = "SELECT last_value - (NOT is_called)::int FROM event_numbers"
_TIMELINE = "SELECT substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)"
_EVENTS = (
    f"SELECT {EVENT_COLUMNS} FROM events WHERE id > %s AND id <= %s AND origin <> %s "
    "ORDER BY id LIMIT %s"
)
_ALL_EVENTS = f"SELECT {EVENT_COLUMNS} FROM events WHERE id > %s AND id <= %s ORDER BY id LIMIT %s"
_SETTLED = f"SELECT pg_advisory_xact_lock_shared({NUMBERING}, hashtext(current_schema()))"
_EPOCH = "SELECT text FROM log_state WHERE name = 'epoch'"
# A dump that is restored creates the table again.
_TABLE = "SELECT 'log_state'::regclass::oid::text"
_FIRST_PLACE = "INSERT INTO log_state (name, text) VALUES (%s, %s) ON CONFLICT DO NOTHING"
# Only one of several processes begins the new epoch: the others wait for its row, and then find it changed.
_ON_NEW_PLACE = (
    "WITH moved AS (UPDATE log_state SET text = %s WHERE name = %s AND text <> %s RETURNING 1) "
    "UPDATE log_state SET text = %s WHERE name = 'epoch' AND EXISTS (SELECT 1 FROM moved)"
)
_AFTER_LOSS = "UPDATE log_state SET text = %s WHERE name = 'epoch' AND text = %s"


class DatabaseClock(CatchUpClock):
    """The database's time, advanced by this machine's clock between two measurements.

    After the database's clock was set back, this clock runs at half speed until the database catches up, so a job that is
    due in five seconds is due in ten. It is never behind the newest event, so all processes agree.
    """

    def begin(self) -> float:
        """The local time when the measurement starts, for `measured`."""
        return self.here

    def measured(self, database: float, started: float, newest: float | None = None) -> None:
        """Record a measurement: the database's time was `database` halfway between `started` and now, and its newest event
        is from `newest`. A response that took longer than ALIVE is ignored, because the machine may have slept, and the
        halfway point is unknown.
        """
        if self.here - started > ALIVE:
            return
        floor = newest if newest is not None and newest - database <= MOST_BEHIND else 0.0
        self.follow(database - (started + self.here) / 2, floor)


class ChangeFeed:
    """Listens from `open` to `close`, and reconnects by itself."""

    def __init__(
        self,
        server: PostgresServer,
        cache: PostgresCache,
        clock: Clock,
        origin: str,
        on_events: OnEvents,
        on_work: OnWork,
        on_reset: OnReset,
        on_log: OnLog,
    ) -> None:
        self._server = server
        self._cache = cache
        self._clock = clock
        self._origin = origin
        self._on_events = on_events
        self._on_work = on_work
        self._on_reset = on_reset
        self.tail = LogTail(on_log)
        self._last = -1  # the number of the last delivered event; -1 before the first connection
        self._timeline: str | None = None  # of the server's write-ahead log; None: unknown

    @property
    def channel(self) -> str:
        return self._server.channel

    async def open(self) -> None:
        connection = await self._connect()
        self._task = asyncio.create_task(self._run(connection))

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.wait({self._task}, timeout=ALIVE)  # a frozen server must not block the shutdown

    async def _run(self, connection: psycopg.AsyncConnection[tuple[Any, ...]] | None) -> None:
        while True:
            try:
                if connection is None:
                    connection = await self._connect()
                    log.info(
                        "connected to %s again; changes of other processes arrive", self._server.shown
                    )
                await self._listen(connection)
            except (psycopg.Error, TimeoutError) as error:
                log.warning(
                    "lost the connection to %s for changes; retrying: %s", self._server.shown, error
                )
            except Exception:
                log.exception("the change feed failed; retrying")
            finally:
                self._cache.fresh_until = -math.inf
                self._cache.forget_all()
                if connection is not None:
                    with contextlib.suppress(psycopg.Error):
                        await connection.close()
                connection = None
            await asyncio.sleep(RECONNECT_AFTER)

    async def _connect(self) -> psycopg.AsyncConnection[tuple[Any, ...]]:
        async with asyncio.timeout(ALIVE * 2):
            connection = await self._server.connect_async()
            try:
                await connection.execute(f"LISTEN {self.channel}".encode())
                await self._catch_up(connection)
                self._cache.forget_all()
                await self._ping(connection)
            except BaseException:
                await connection.close()
                raise
        return connection

    async def _catch_up(self, connection: psycopg.AsyncConnection[tuple[Any, ...]]) -> None:
        """Deliver the events that were missed while the feed was disconnected."""
        async with connection.transaction():
            # After the commit of the transaction that is using the sequence, whose notification may have been missed.
            await connection.execute(_SETTLED.encode())
            (last,) = cast(Any, await (await connection.execute(LAST_NUMBER)).fetchone())
        another = await self._on_another_timeline(connection)
        shrunk = last < self._last
        epoch = await self._read_epoch(connection, lost=shrunk)
        if self._last < 0:
            self._last = last
            self.tail.restart(epoch, last)
        elif another or shrunk:
            log.warning(
                "%s is another server than before, or was restored: the last event was %d and is %d now. "
                "The caches are cleared",
                self._server.shown,
                self._last,
                last,
            )
            self._last = min(self._last, last)
            self._cache.forget_all()
            self._on_reset()
        await self._deliver(connection, last)
        if epoch != self.tail.epoch:
            self.tail.restart(epoch, last)
        else:
            await self._read_tail(connection, last)

    async def _read_epoch(
        self, connection: psycopg.AsyncConnection[tuple[Any, ...]], *, lost: bool = False
    ) -> str:
        """The epoch of the log, after a new one has begun if the server has another timeline than the log, if a dump was
        restored, or if the server has `lost` events.
        """
        new = secrets.token_hex(4)
        try:
            (table,) = cast(Any, await (await connection.execute(_TABLE)).fetchone())
            for name, place in (("table", table), ("timeline", self._timeline)):
                if place is not None:
                    await connection.execute(_FIRST_PLACE, (name, place))
                    await connection.execute(_ON_NEW_PLACE, (place, name, place, new))
            if lost:
                await connection.execute(_AFTER_LOSS, (new, self.tail.epoch))
        except psycopg.Error:
            if connection.closed:
                raise
            log.warning("the epoch of the event log cannot be written", exc_info=True)
        (epoch,) = cast(Any, await (await connection.execute(_EPOCH)).fetchone())
        return str(epoch)

    async def _read_tail(self, connection: psycopg.AsyncConnection[tuple[Any, ...]], last: int) -> None:
        """Deliver the events of all processes up to the number `last` to the tail."""
        found: list[Event] = []
        after = self.tail.last
        while after < last:
            rows = await (await connection.execute(_ALL_EVENTS.encode(), (after, last, PAGE))).fetchall()
            page = [event_of(row) for row in rows]
            found += page
            after = page[-1].id if len(page) == PAGE else last
        if last > self.tail.last:
            self.tail.skip_to(last, found)

    async def _on_another_timeline(self, connection: psycopg.AsyncConnection[tuple[Any, ...]]) -> bool:
        """Whether a standby was promoted, or a backup restored, since the last check. Its log may have reached the last
        delivered number with other events.
        """
        try:
            (timeline,) = cast(Any, await (await connection.execute(_TIMELINE)).fetchone())
        except psycopg.Error:
            if connection.closed:
                raise
            return False  # a standby, or a managed service that forbids the function
        before, self._timeline = self._timeline, timeline
        return before is not None and before != timeline

    async def _listen(self, connection: psycopg.AsyncConnection[tuple[Any, ...]]) -> None:
        while True:
            notes = [note.payload async for note in connection.notifies(timeout=PING, stop_after=1)]
            async with asyncio.timeout(ALIVE):
                if notes:
                    # One query covers all notifications that have arrived by now.
                    notes += [n.payload async for n in connection.notifies(timeout=0)]
                    await self._handle_notifications(connection, notes)
                if self._cache.fresh_until - time.monotonic() < ALIVE - PING:
                    await self._ping(connection)

    async def _ping(self, connection: psycopg.AsyncConnection[tuple[Any, ...]]) -> None:
        pinged_at = time.monotonic()
        clock = self._clock if isinstance(self._clock, DatabaseClock) else None
        started = clock.begin() if clock is not None else 0.0
        now, newest = cast(Any, await (await connection.execute(_TIME)).fetchone())
        if clock is not None:
            clock.measured(now, started, newest)
        self._cache.fresh_until = pinged_at + ALIVE
        if (overdue := self.tail.overdue) is not None:
            await self._read_tail(connection, overdue)

    async def _handle_notifications(
        self, connection: psycopg.AsyncConnection[tuple[Any, ...]], notes: Sequence[str]
    ) -> None:
        last, others = self._last, False
        ranges: list[tuple[int, int, bool]] = []
        for note in notes:
            code, origin, *rest = note.split(" ")
            own = origin == self._origin
            if code == "e":
                first, until = int(rest[0]), int(rest[1])
                last = max(last, until)
                others = others or not own
                ranges.append((first, until, own))
            elif code == "x" and not own:
                self._forget(rest[0].split(","))
            elif code == "p" and not own:
                self._cache.pauses += 1
            elif code == "n":
                ranges.clear()
                self.tail.restart(await self._read_epoch(connection), last)
        found = await self._deliver(connection, last) if others else []
        self._last = last
        begin = 0
        for first, until, own in ranges:
            end = begin
            while end < len(found) and found[end].id <= until:
                end += 1
            self.tail.add_range(first, until, None if own else found[begin:end])
            begin = end
        self.tail.deliver()

    async def _deliver(
        self, connection: psycopg.AsyncConnection[tuple[Any, ...]], last: int
    ) -> list[Event]:
        """Deliver the events of other processes up to the number `last`, and return them."""
        delivered: list[Event] = []
        while self._last < last:
            found = await connection.execute(_EVENTS.encode(), (self._last, last, self._origin, PAGE))
            events = [event_of(row) for row in await found.fetchall()]
            self._last = events[-1].id if len(events) == PAGE else last
            self._forget([event.job_id for event in events])
            if not events:
                continue
            delivered += events
            self._on_events(events)
            # Report new jobs of other processes, because this process may have a free worker.
            for queue, kind in {
                (event.job["queue"], event.job["kind"])
                for event in events
                if event.type == "status"
                and event.job["version"] == 1
                and event.job.get("due", 1e18) <= event.at
            }:
                self._on_work(queue, kind)
        return delivered

    def _forget(self, job_ids: Sequence[str]) -> None:
        self._cache.forget(job_ids)
        self._cache.jobs.invalidate(job_ids)
