"""What other processes have written: heard through LISTEN, read from the event log, and told here.

1. Each notification says which events, or which jobs, another process has committed. Those are read, told in their order,
   and what was remembered of their jobs is forgotten.
2. While the feed does not answer, nothing is remembered for polls: a question a second proves that whatever was
   committed before it was heard. So what a poll is told is never older than ALIVE seconds, whatever breaks.
3. After a break it goes on with the number after the last that was heard: nothing is left out, nothing told twice.
4. If the database has lost events that were heard before, as a standby that lagged behind has after its promotion, the
   feed says so: whatever was remembered anywhere is forgotten, and it goes on from the end of the log as it is now.
5. The same question tells the database's time, which is the store's.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Sequence
from typing import Any, cast

import msgspec
import psycopg

from bide.core.clock import MOST_BEHIND, CatchUpClock, Clock, SystemClock
from bide.core.wire import Event
from bide.server.store import OnEvents, OnReset, OnWork
from bide.server.store.postgres.cache import PostgresCache
from bide.server.store.postgres.server import PostgresServer

log = logging.getLogger("bide.store")
PING = 1.0
ALIVE = 2.5
AGAIN = 0.5
PAGE = 1000
_TIME = "SELECT extract(epoch FROM clock_timestamp())::float8, (SELECT at FROM events ORDER BY id DESC LIMIT 1)"
_LAST = "SELECT last_value - (NOT is_called)::int FROM event_numbers"
_TIMELINE = "SELECT substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)"
_EVENTS = (
    "SELECT id, job_id, type, at, job, tenant FROM events WHERE id > %s AND id <= %s AND origin <> %s "
    "ORDER BY id LIMIT %s"
)


class DatabaseClock(CatchUpClock):
    """The database's time, carried on by this machine's clock between two looks.

    When the database's clock was set back, a job that is due in five seconds is due in ten, and not when the time that was
    stamped on it has come again. It is never behind the newest event: all processes are ahead together.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        super().__init__(clock or SystemClock())

    def begin(self) -> float:
        """When the database is asked, for `measured`."""
        return self._clock.now()

    def measured(self, database: float, asked: float, newest: float | None = None) -> None:
        """It was `database` there, halfway between `asked` and now; the newest event is of `newest`. An answer that took
        longer than ALIVE is ignored: the machine may have slept, and when the database looked at its clock is not known.
        """
        if self._clock.now() - asked > ALIVE:
            return
        floor = newest if newest is not None and newest - database <= MOST_BEHIND else 0.0
        self.follow(database - (asked + self._clock.now()) / 2, floor)


class ChangeFeed:
    """Listens from `open` to `close`, and connects again by itself."""

    def __init__(
        self,
        server: PostgresServer,
        memory: PostgresCache,
        clock: Clock,
        origin: str,
        heard: OnEvents,
        nudge: OnWork | None,
        reset: OnReset | None = None,
    ) -> None:
        self._server = server
        self._memory = memory
        self._clock = clock
        self._origin = origin
        self._heard = heard
        self._nudge = nudge
        self._reset = reset or (lambda: None)
        self._last = -1  # the highest number that was heard of; -1: nothing yet
        self._timeline: str | None = None  # of the server's log; None: not known

    @property
    def channel(self) -> str:
        return self._server.channel

    async def open(self) -> None:
        connection = await self._connect()
        self._task = asyncio.create_task(self._run(connection))

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.wait(
            {self._task}, timeout=ALIVE
        )  # a server that is stopped keeps nobody from leaving

    async def _run(self, connection: psycopg.AsyncConnection[tuple[Any, ...]] | None) -> None:
        while True:
            try:
                if connection is None:
                    connection = await self._connect()
                    log.info("the feed of %s goes on", self._server.shown)
                await self._listen(connection)
            except (psycopg.Error, TimeoutError) as error:
                log.warning("the feed of %s broke, trying again: %s", self._server.shown, error)
            except Exception:
                log.exception("the feed failed; it goes on")
            finally:
                self._memory.until = -math.inf
                self._memory.forget_all()
                if connection is not None:
                    with contextlib.suppress(psycopg.Error):
                        await connection.close()
                connection = None
            await asyncio.sleep(AGAIN)

    async def _connect(self) -> psycopg.AsyncConnection[tuple[Any, ...]]:
        async with asyncio.timeout(ALIVE * 2):
            connection = await self._server.connect_async()
            try:
                await connection.execute(f"LISTEN {self.channel}".encode())
                await self._catch_up(connection)
                self._memory.forget_all()
                await self._ping(connection)
            except BaseException:
                await connection.close()
                raise
        return connection

    async def _catch_up(self, connection: psycopg.AsyncConnection[tuple[Any, ...]]) -> None:
        """What was missed while nobody listened."""
        (last,) = cast(Any, await (await connection.execute(_LAST)).fetchone())
        another = await self._on_another_timeline(connection)
        if self._last < 0:
            self._last = last
        elif another or last < self._last:
            log.warning(
                "%s is not the server that it was, or was restored: the last event was %d, and is %d now. "
                "Everything that was remembered is read again",
                self._server.shown,
                self._last,
                last,
            )
            self._last = min(self._last, last)
            self._memory.forget_all()
            self._reset()
        await self._tell(connection, last)

    async def _on_another_timeline(self, connection: psycopg.AsyncConnection[tuple[Any, ...]]) -> bool:
        """Whether a standby was promoted, or a backup restored, since the last look. Its log may have passed the number
        that was heard last, with other events.
        """
        try:
            (timeline,) = cast(Any, await (await connection.execute(_TIMELINE)).fetchone())
        except psycopg.Error:
            if connection.closed:
                raise
            return False  # a standby, or a service that does not tell
        before, self._timeline = self._timeline, timeline
        return before is not None and before != timeline

    async def _listen(self, connection: psycopg.AsyncConnection[tuple[Any, ...]]) -> None:
        while True:
            notes = [note.payload async for note in connection.notifies(timeout=PING, stop_after=1)]
            async with asyncio.timeout(ALIVE):
                if notes:
                    # Whatever else has arrived by now goes into the same look at the log.
                    notes += [n.payload async for n in connection.notifies(timeout=0)]
                    await self._noted(connection, notes)
                if self._memory.until - time.monotonic() < ALIVE - PING:
                    await self._ping(connection)

    async def _ping(self, connection: psycopg.AsyncConnection[tuple[Any, ...]]) -> None:
        asked_at = time.monotonic()
        clock = self._clock if isinstance(self._clock, DatabaseClock) else None
        asked = clock.begin() if clock is not None else 0.0
        now, newest = cast(Any, await (await connection.execute(_TIME)).fetchone())
        if clock is not None:
            clock.measured(now, asked, newest)
        self._memory.until = asked_at + ALIVE

    async def _noted(
        self, connection: psycopg.AsyncConnection[tuple[Any, ...]], notes: Sequence[str]
    ) -> None:
        last, others = self._last, False
        for note in notes:
            what, origin, *rest = note.split(" ")
            mine = origin == self._origin
            if what == "e":
                last = max(last, int(rest[1]))
                others = others or not mine
            elif what == "x" and not mine:
                self._forget(rest[0].split(","))
            elif what == "p" and not mine:
                self._memory.pauses += 1
        if others:
            await self._tell(connection, last)
        self._last = last

    async def _tell(self, connection: psycopg.AsyncConnection[tuple[Any, ...]], last: int) -> None:
        """Tells what others have written, up to the number `last`."""
        while self._last < last:
            found = await connection.execute(_EVENTS.encode(), (self._last, last, self._origin, PAGE))
            events = [
                Event(number, of, type_, at, msgspec.json.decode(job), tenant)
                for number, of, type_, at, job, tenant in await found.fetchall()
            ]
            self._last = events[-1].id if len(events) == PAGE else last
            self._forget([event.job_id for event in events])
            if events:
                self._heard(events)
                self._hint(events)

    def _forget(self, job_ids: Sequence[str]) -> None:
        self._memory.forget(job_ids)
        self._memory.recent.changed(job_ids)

    def _hint(self, events: Sequence[Event]) -> None:
        """New work that others have taken in: somebody here may be free."""
        if self._nudge is None:
            return
        now = self._clock.now()
        known = (event.job for event in events if event.type == "status")
        for queue, kind in {
            (job["queue"], job["kind"])
            for job in known
            if job["version"] == 1 and job.get("due", 1e18) <= now
        }:
            self._nudge(queue, kind)
