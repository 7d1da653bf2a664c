"""What is read of PostgreSQL outside of transactions: a few connections on the loop.

1. Jobs that are asked for at the same time are read by one statement: polls share it.
2. Nobody waits for a connection for longer than PATIENCE, nor for an answer for longer than LONGEST, nor at all for a
   server that is away: `Unwritable`, which is a 503.
3. Lists leave connections to the polls.
4. A connection that broke is replaced, and what was asked is asked once more.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from functools import partial
from typing import Any, TypeVar

import psycopg

from bide.core.record import Job
from bide.server.store import Missing, StoreUnavailable
from bide.server.store.job_cache import JobCache
from bide.server.store.postgres.server import PostgresServer, explain
from bide.server.store.postgres.timeouts import Timeouts
from bide.server.store.rows import COLUMNS, job_of

T = TypeVar("T")
PATIENCE = 5.0
LONGEST = 6.0
NUL = "\0"  # PostgreSQL stores it in no text, and psycopg refuses to ask for it
FROZEN = "it is connected, but stopped or overloaded. Look at pg_stat_activity and at its machine"
POLLS = 2  # statements under way for polls at once; what comes meanwhile shares the next one
MOST_AT_ONCE = 500
_JOBS = f"SELECT {COLUMNS} FROM jobs WHERE id = ANY(%s)"
_GONE = "SELECT id FROM tombstones WHERE id = ANY(%s)"

Connection = psycopg.AsyncConnection[tuple[Any, ...]]
Rows = list[tuple[Any, ...]]


class ReadPool:
    """Up to `most` connections, opened when they are needed."""

    def __init__(self, server: PostgresServer, recent: JobCache, most: int) -> None:
        self._server = server
        self._recent = recent
        self._idle: list[Connection] = []
        self._free = asyncio.Semaphore(most)
        self._lists = asyncio.Semaphore(max(1, most - POLLS))
        self._wanted: dict[str, list[asyncio.Future[Job | Missing]]] = {}
        self._polling = 0
        self._tasks: set[asyncio.Task[Any]] = set()
        self._patience = Timeouts(LONGEST, f"{server.shown} does not answer: {FROZEN}")
        self._closed = False

    async def close(self) -> None:
        self._closed = True
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=PATIENCE)
        idle, self._idle = self._idle, []
        for connection in idle:
            await connection.close()

    async def rows(self, sql: str, values: Sequence[Any] = ()) -> Rows:
        """The answer to one question."""
        return await self._awaited(self._asked(sql, values))

    async def listed(self, sql: str, values: Sequence[Any] = ()) -> Rows:
        """The same for what may take long."""

        async def asked() -> Rows:
            async with _patiently(self._lists):
                return await self._asked(sql, values)

        return await self._awaited(asked())

    async def _awaited(self, asked: Coroutine[Any, Any, Rows]) -> Rows:
        """What is stuck is left alone: who asked is told, and its connection stays in use."""
        future: asyncio.Future[Rows] = asyncio.get_running_loop().create_future()

        def answered(task: asyncio.Task[Rows]) -> None:
            if future.done():
                if not task.cancelled():
                    task.exception()  # it was seen
            elif task.cancelled():
                future.cancel()
            elif (error := task.exception()) is not None:
                future.set_exception(error)
            else:
                future.set_result(task.result())

        self._task(asked).add_done_callback(answered)
        self._patience.watch(future)
        return await future

    async def job(self, job_id: str) -> Job | Missing:
        if NUL in job_id:  # or the question about many jobs, of which this is one, would fail for all
            return Missing()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Job | Missing] = loop.create_future()
        if not self._wanted:
            loop.call_soon(self._poll)
        self._wanted.setdefault(job_id, []).append(future)
        self._patience.watch(future)
        return await future

    # --- polls

    def _poll(self) -> None:
        while self._wanted and self._polling < POLLS:
            some = dict(list(self._wanted.items())[:MOST_AT_ONCE])
            for job_id in some:
                del self._wanted[job_id]
            self._polling += 1
            self._task(self._polled(some))

    async def _polled(self, wanted: dict[str, list[asyncio.Future[Job | Missing]]]) -> None:
        found: dict[str, Job | Missing] = {}
        failure: BaseException = StoreUnavailable("the service is stopping")
        turn = self._recent.turn
        try:
            for row in await self._asked(_JOBS, (list(wanted),)):
                job = found[row[0]] = job_of(row)
                self._recent.keep(job, turn)
            absent = [job_id for job_id in wanted if job_id not in found]
            if absent:
                gone = await self._asked(_GONE, (absent,))
                found.update((job_id, Missing()) for job_id in absent)
                found.update((job_id, Missing(gone=True)) for (job_id,) in gone)
        except Exception as error:
            failure = error
        finally:
            self._polling -= 1
            for job_id, futures in wanted.items():
                for future in futures:
                    if not future.done():  # its caller has left otherwise
                        if job_id in found:
                            future.set_result(found[job_id])
                        else:
                            future.set_exception(failure)
            self._poll()

    # --- connections

    def _task(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """In a task, for a request that has not waited yet is in none, and a timeout needs one."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _asked(self, sql: str, values: Sequence[Any]) -> Rows:
        async with _patiently(self._free):
            for again in (True, False):
                fresh = not self._idle
                connection = await self._connected()
                try:
                    answer = await (await connection.execute(sql.encode(), values)).fetchall()
                except psycopg.Error as error:
                    await self._give(connection)
                    if again and connection.closed and not fresh:
                        await self._drop_idle()  # a server that ended one has ended all
                        continue
                    reason = explain(error)
                    if reason is None:
                        raise
                    raise StoreUnavailable(reason) from error
                except BaseException:  # cancelled in the middle of an answer
                    await connection.close()
                    raise
                await self._give(connection)
                return answer
        raise AssertionError("the second time returns or raises")

    async def _connected(self) -> Connection:
        if self._idle:
            return self._idle.pop()
        try:
            async with asyncio.timeout(PATIENCE):
                return await self._server.connect_async()
        except TimeoutError:
            raise StoreUnavailable(f"{self._server.shown} does not answer: look at its log") from None
        except psycopg.Error as error:
            raise StoreUnavailable(f"{self._server.shown}: {explain(error) or error}") from error

    async def _give(self, connection: Connection) -> None:
        if connection.closed:
            return
        if self._closed:
            await connection.close()
        else:
            self._idle.append(connection)

    async def _drop_idle(self) -> None:
        idle, self._idle = self._idle, []
        for connection in idle:
            await connection.close()


class SharedQuery:
    """The answer to a question that takes the database long: asked once at a time, and used again for `age` seconds."""

    def __init__(self, ask: Callable[[], Coroutine[Any, Any, Rows]], age: float) -> None:
        self._ask = ask
        self._age = age
        self._known: Rows = []
        self._at: float | None = None  # when that was asked for; None: never
        self._asking: asyncio.Task[Rows] | None = None

    async def get(self) -> Rows:
        if self._at is not None and time.monotonic() - self._at < self._age:
            return self._known
        if self._asking is None:
            asking = self._asking = asyncio.get_running_loop().create_task(self._ask())
            asking.add_done_callback(partial(self._answered, time.monotonic()))
        # Others may wait for it too, and a caller that leaves does not end it.
        return await asyncio.shield(self._asking)

    def _answered(self, at: float, task: asyncio.Task[Rows]) -> None:
        self._asking = None
        if not task.cancelled() and task.exception() is None:
            self._known, self._at = task.result(), at


@contextlib.asynccontextmanager
async def _patiently(gate: asyncio.Semaphore) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(PATIENCE):
            await gate.acquire()
    except TimeoutError:
        raise StoreUnavailable(
            "every connection to the database is in use: send it again later, or let the service have more "
            "of them (--connections)"
        ) from None
    try:
        yield
    finally:
        gate.release()
