"""Reads outside of transactions: a pool of asynchronous connections to PostgreSQL.

1. One statement reads all jobs that are requested at the same time, so concurrent polls share it.
2. A read waits for a connection at most CONNECT_TIMEOUT and for its rows at most QUERY_TIMEOUT, and fails immediately if
   the server refuses connections. It raises `StoreUnavailable`, which becomes a 503.
3. Lists leave some connections to the polls.
4. A broken connection is replaced, and its query is retried once.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from functools import partial
from typing import Any, TypeVar

import psycopg

from bide.core.jobs.record import Job
from bide.server.store import Missing, StoreUnavailable
from bide.server.store.job_cache import JobCache
from bide.server.store.postgres.server import PostgresServer, explain
from bide.server.store.rows import COLUMNS, job_of
from bide.server.store.timeouts import Timeouts

T = TypeVar("T")
CONNECT_TIMEOUT = 5.0
QUERY_TIMEOUT = 6.0
NUL = "\0"  # PostgreSQL's text cannot contain it, and psycopg raises for it
FROZEN = "It is connected, but stopped or overloaded: check pg_stat_activity and its machine"
POLLS = 2  # concurrent statements for polls; later polls share the next statement
IDS_PER_QUERY = 500
_JOBS = f"SELECT {COLUMNS} FROM jobs WHERE id = ANY(%s)"
_GONE = "SELECT id, tenant FROM tombstones WHERE id = ANY(%s)"

Connection = psycopg.AsyncConnection[tuple[Any, ...]]
Rows = list[tuple[Any, ...]]


class ReadPool:
    """Up to `connections` connections, opened on demand."""

    def __init__(self, server: PostgresServer, job_cache: JobCache, connections: int) -> None:
        self._server = server
        self._job_cache = job_cache
        self._idle: list[Connection] = []
        self._free = asyncio.Semaphore(connections)
        self._lists = asyncio.Semaphore(max(1, connections - POLLS))
        self._wanted: dict[str, list[asyncio.Future[Job | Missing]]] = {}
        self._polling = 0
        self._tasks: set[asyncio.Task[Any]] = set()
        self._timeouts = Timeouts(QUERY_TIMEOUT, f"{server.shown} does not answer. {FROZEN}")
        self._closed = False

    async def close(self) -> None:
        self._closed = True
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CONNECT_TIMEOUT)
        idle, self._idle = self._idle, []
        for connection in idle:
            await connection.close()

    async def rows(self, sql: str, values: Sequence[Any] = (), *, long: bool = False) -> Rows:
        """The rows of a query; `long`: it may take long. Raise after QUERY_TIMEOUT; the query then keeps running and keeps
        its connection.
        """
        future: asyncio.Future[Rows] = asyncio.get_running_loop().create_future()

        def answered(task: asyncio.Task[Rows]) -> None:
            if future.done():
                if not task.cancelled():
                    task.exception()  # mark it as retrieved
            elif task.cancelled():
                future.cancel()
            elif (error := task.exception()) is not None:
                future.set_exception(error)
            else:
                future.set_result(task.result())

        self._task(self._query(sql, values, long=long)).add_done_callback(answered)
        self._timeouts.watch(future)
        return await future

    async def job(self, job_id: str) -> Job | Missing:
        if NUL in job_id:  # it would fail the statement that all polls share
            return Missing()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Job | Missing] = loop.create_future()
        if not self._wanted:
            loop.call_soon(self._start_polls)
        self._wanted.setdefault(job_id, []).append(future)
        self._timeouts.watch(future)
        return await future

    # --- polls

    def _start_polls(self) -> None:
        while self._wanted and self._polling < POLLS:
            some = dict(list(self._wanted.items())[:IDS_PER_QUERY])
            for job_id in some:
                del self._wanted[job_id]
            self._polling += 1
            self._task(self._poll(some))

    async def _poll(self, wanted: dict[str, list[asyncio.Future[Job | Missing]]]) -> None:
        found: dict[str, Job | Missing] = {}
        failure: BaseException = StoreUnavailable("the service is stopping")
        generation = self._job_cache.generation
        try:
            for row in await self._query(_JOBS, (list(wanted),)):
                job = found[row[0]] = job_of(row)
                self._job_cache.put(job, generation)
            absent = [job_id for job_id in wanted if job_id not in found]
            if absent:
                gone = await self._query(_GONE, (absent,))
                found.update((job_id, Missing()) for job_id in absent)
                found.update((job_id, Missing(gone=True, tenant=tenant)) for job_id, tenant in gone)
        except Exception as error:
            failure = error
        finally:
            self._polling -= 1
            for job_id, futures in wanted.items():
                for future in futures:
                    if not future.done():  # otherwise its caller was cancelled
                        if job_id in found:
                            future.set_result(found[job_id])
                        else:
                            future.set_exception(failure)
            self._start_polls()

    # --- connections

    def _task(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run in a task, because asyncio.timeout needs one and a request handler may run outside of any task."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _query(self, sql: str, values: Sequence[Any], *, long: bool = False) -> Rows:
        async with _acquired(self._lists) if long else contextlib.nullcontext(), _acquired(self._free):
            for again in (True, False):
                fresh = not self._idle
                connection = await self._connection()
                try:
                    answer = await (await connection.execute(sql.encode(), values)).fetchall()
                except psycopg.Error as error:
                    await self._release(connection)
                    if again and connection.closed and not fresh:
                        await self._drop_idle()  # the server has probably closed all of them
                        continue
                    reason = explain(error)
                    if reason is None:
                        raise
                    raise StoreUnavailable(reason) from error
                except BaseException:  # cancelled in the middle of a response
                    await connection.close()
                    raise
                await self._release(connection)
                return answer
        raise AssertionError("the second iteration returns or raises")

    async def _connection(self) -> Connection:
        if self._idle:
            return self._idle.pop()
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                return await self._server.connect_async()
        except TimeoutError:
            raise StoreUnavailable(
                f"{self._server.shown} did not accept a connection within {CONNECT_TIMEOUT:g} s: check its log"
            ) from None
        except psycopg.Error as error:
            raise StoreUnavailable(f"{self._server.shown}: {explain(error) or error}") from error

    async def _release(self, connection: Connection) -> None:
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
    """The result of an expensive query: concurrent callers share one query, and its rows are reused for `age` seconds."""

    def __init__(self, query: Callable[[], Coroutine[Any, Any, Rows]], age: float) -> None:
        self._query = query
        self._age = age
        self._known: Rows = []
        self._at: float | None = None  # when the query started; None: never
        self._running: asyncio.Task[Rows] | None = None

    async def get(self) -> Rows:
        if self._at is not None and time.monotonic() - self._at < self._age:
            return self._known
        if self._running is None:
            running = self._running = asyncio.get_running_loop().create_task(self._query())
            running.add_done_callback(partial(self._done, time.monotonic()))
        # Shielded, because other callers may wait for the same query.
        return await asyncio.shield(self._running)

    def _done(self, at: float, task: asyncio.Task[Rows]) -> None:
        self._running = None
        if not task.cancelled() and task.exception() is None:
            self._known, self._at = task.result(), at


@contextlib.asynccontextmanager
async def _acquired(gate: asyncio.Semaphore) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT):
            await gate.acquire()
    except TimeoutError:
        raise StoreUnavailable(
            "all connections to the database are in use: send the request again later, or give the service more "
            "connections (--connections)"
        ) from None
    try:
        yield
    finally:
        gate.release()
