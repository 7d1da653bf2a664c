"""A thread that owns the ledger's connection and writes all queued operations in one transaction.

If an operation fails, each operation of the transaction runs again alone, so that the others succeed; an operation may
therefore run twice.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")
Operation = Callable[[sqlite3.Connection], Any]
_Queued = tuple[Operation, "asyncio.Future[Any]"]
log = logging.getLogger("bide.ledger")


class LedgerWriter:
    """The thread closes the connection when it ends. `explain` makes the error that callers get from an error of SQLite."""

    def __init__(
        self, connection: sqlite3.Connection, explain: Callable[[sqlite3.Error], Exception]
    ) -> None:
        self.is_open = True
        self._connection = connection
        self._explain = explain
        self._queue: SimpleQueue[_Queued | None] = SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, name="bide-ledger", daemon=True)
        self._thread.start()

    def submit(self, operation: Callable[[sqlite3.Connection], T]) -> asyncio.Future[T]:
        if not self.is_open:
            raise RuntimeError("the ledger is not open")
        future: asyncio.Future[T] = self._loop.create_future()
        self._queue.put((operation, future))
        return future

    async def close(self) -> None:
        self.is_open = False
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        try:
            running = True
            while running:
                batch = [self._queue.get()]
                while not self._queue.empty():
                    batch.append(self._queue.get())
                running = None not in batch
                queued = [item for item in batch if item is not None]
                if queued:
                    done = self._write([operation for operation, _ in queued])
                    answers = [
                        (future, outcome) for (_, future), outcome in zip(queued, done, strict=True)
                    ]
                    self._loop.call_soon_threadsafe(_deliver, answers)
        except RuntimeError:  # the event loop was closed before the ledger
            log.debug("The event loop was closed before the ledger", exc_info=True)
        finally:
            self._connection.close()

    def _write(self, operations: list[Operation]) -> list[Any]:
        connection = self._connection
        try:
            connection.execute("BEGIN IMMEDIATE")
            results = [operation(connection) for operation in operations]
            connection.execute("COMMIT")
            return results
        except Exception as error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            if len(operations) == 1:
                reported = self._explain(error) if isinstance(error, sqlite3.Error) else error
                reported.__cause__ = error if reported is not error else None
                return [_FailedWrite(reported)]
        return [outcome for operation in operations for outcome in self._write([operation])]


class _FailedWrite:
    __slots__ = ("error",)

    def __init__(self, error: Exception) -> None:
        self.error = error


def _deliver(answers: list[tuple[asyncio.Future[Any], Any]]) -> None:
    for future, outcome in answers:
        if future.done():  # its caller was cancelled
            continue
        if isinstance(outcome, _FailedWrite):
            future.set_exception(outcome.error)
        else:
            future.set_result(outcome)
