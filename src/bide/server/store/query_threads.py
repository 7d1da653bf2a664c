"""Threads for queries that may take long: lists and statistics. Each thread has a connection of its own.

1. A query never runs on the event loop, and never on the connection of the writer or of the polls.
2. A query that takes longer than LIMIT raises QueryTimeout, and its thread is free again. A query that finds too many others
   waiting, or waits for them too long, raises it, too.
3. A server that does not answer at all raises StoreUnavailable after HANGING seconds.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

from bide.core.errors import QueryTimeout
from bide.server.store import StoreUnavailable

T = TypeVar("T")
LIMIT = 1.0  # seconds
HANGING = 3.0
THREADS = 2
MOST_WAITING = 64
TOO_LONG = (
    f"the query took longer than {LIMIT:g} s: add kind, status, queue or a label that fewer jobs have, or limit the time "
    "with createdAfter and createdBefore"
)


def release() -> None:
    """Let the event loop answer other requests. A thread that computes calls it about once per millisecond, because it
    would keep the interpreter for longer otherwise. Each call takes about a tenth of a millisecond, and more if other
    programs use the processor.
    """
    time.sleep(0)


class QueryConnection(Protocol):
    """A connection of one thread."""

    def begin(self, until: float) -> None:
        """Queries that run after this monotonic time raise QueryTimeout."""
        ...

    def rows(self, sql: str, values: Sequence[Any]) -> list[tuple[Any, ...]]: ...

    @property
    def broken(self) -> bool: ...

    def interrupt(self) -> None:
        """End the query that runs in another thread."""
        ...

    def close(self) -> None: ...


class QueryThreads:
    """Runs functions that query the database, in THREADS threads. The connections are opened on demand."""

    def __init__(self, connect: Callable[[], QueryConnection]) -> None:
        self._connect = connect
        self._executor = ThreadPoolExecutor(THREADS, thread_name_prefix="bide-query")
        self._idle: list[QueryConnection] = []
        self._busy: dict[QueryConnection, float] = {}  # since when
        self._lock = threading.Lock()
        self._waiting = 0

    async def run(self, work: Callable[[QueryConnection], T]) -> T:
        if self._waiting >= MOST_WAITING:
            raise QueryTimeout(f"{self._waiting} queries wait already: send the request again later")
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()

        def done(future: asyncio.Future[T]) -> None:
            if answer.done():
                if not future.cancelled():
                    future.exception()  # mark it as retrieved
            elif future.cancelled():
                answer.cancel()
            elif (error := future.exception()) is not None:
                answer.set_exception(error)
            else:
                answer.set_result(future.result())

        self._waiting += 1
        begun = threading.Event()

        def begin() -> T:
            begun.set()
            return self._work(work)

        timer = loop.call_later(HANGING, self._give_up, answer, begun)
        try:
            loop.run_in_executor(self._executor, begin).add_done_callback(done)
            return await answer
        finally:
            timer.cancel()
            self._waiting -= 1

    def _give_up(self, answer: asyncio.Future[Any], begun: threading.Event) -> None:
        if answer.done():
            return
        # A query that has begun ends after LIMIT, unless the server hangs: in the query, or before it accepts a connection.
        if self._interrupt(time.monotonic() - 2 * LIMIT) or begun.is_set():
            answer.set_exception(
                StoreUnavailable(
                    f"the database has not answered a query for {HANGING:g} s: check its machine"
                )
            )
        else:
            answer.set_exception(
                QueryTimeout("earlier queries take too long: send the request again later")
            )

    def _interrupt(self, since: float) -> bool:
        """End the queries that began before that time. Return whether there are some."""
        with self._lock:
            hanging = [connection for connection, begun in self._busy.items() if begun < since]
        for connection in hanging:
            connection.interrupt()
        return bool(hanging)

    def _work(self, work: Callable[[QueryConnection], T]) -> T:
        with self._lock:
            connection = self._idle.pop() if self._idle else None
        if connection is not None:
            try:
                return self._work_on(connection, work)
            except StoreUnavailable:
                if not connection.broken:
                    raise
                with self._lock:  # the server has probably closed all of them
                    idle, self._idle = self._idle, []
                for other in idle:
                    other.close()
        return self._work_on(self._connect(), work)

    def _work_on(self, connection: QueryConnection, work: Callable[[QueryConnection], T]) -> T:
        now = time.monotonic()
        with self._lock:
            self._busy[connection] = now
        try:
            connection.begin(now + LIMIT)
            return work(connection)
        finally:
            with self._lock:
                del self._busy[connection]
                if not connection.broken:
                    self._idle.append(connection)
            if connection.broken:
                connection.close()

    async def close(self) -> None:
        self._executor.shutdown(wait=False, cancel_futures=True)
        self._interrupt(time.monotonic())
        await asyncio.to_thread(self._executor.shutdown)
        for connection in self._idle:
            connection.close()
        self._idle.clear()
