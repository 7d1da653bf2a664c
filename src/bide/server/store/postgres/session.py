"""The writer's session with PostgreSQL: one connection, made again when it breaks, and transactions that are tried again.

1. A transaction that another process was faster than, or that met a deadlock, is tried again with what is true then.
2. When the connection breaks, the same operations are carried out again on a new one. Whether the first time was
   committed is not known then: jobs that are there already are found, and claims that nobody has heard of are given back,
   by the first transaction that succeeds, however long the database was away. It also returns the events of the lost
   commit, and afterwards nothing that this process remembered is used.
3. The server may still be at what the broken connection has sent: that one is ended before anything is carried out again,
   or it would commit behind our back.
4. When there is no new connection at once, everything that waits is told so: nobody hangs on a database that is away.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import psycopg

from bide.core.clock import Clock
from bide.core.job import HandedBack
from bide.core.wire import Event
from bide.server.store import StoreUnavailable, operations
from bide.server.store.postgres.cache import PostgresCache
from bide.server.store.postgres.server import PostgresServer, explain
from bide.server.store.postgres.transaction import OVERTAKEN, PostgresTransaction
from bide.server.store.writer import WriteOperation

log = logging.getLogger("bide.store")
TRIES = 8
_AGAIN = {OVERTAKEN, "40P01", "40001"}  # and a deadlock, and a conflict that the server has found
PATIENCE = 4.0  # seconds for the server to end what a broken connection has left
_WHO = "SELECT pid, backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()"
_END = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE (pid, backend_start) = (%s, %s)"
_MINE = (
    "SELECT id, owner, fence FROM jobs WHERE lease_until > 0 AND owner = ANY(%s) AND finished_at IS NULL"
)
_LAST = "SELECT last_value - (NOT is_called)::int FROM event_numbers"
_UNHEARD = (
    "SELECT id, job_id, type, at, job, tenant FROM events WHERE id > %s AND origin = %s ORDER BY id"
)


class PostgresSession:
    """`Session` on one connection. `reset` is called, in the writer's thread, after a commit whose answer was lost: anything
    may have changed.
    """

    def __init__(
        self,
        server: PostgresServer,
        clock: Clock,
        memory: PostgresCache,
        origin: str,
        reset: Callable[[], object] = lambda: None,
    ) -> None:
        self._server = server
        self._clock = clock
        self._memory = memory
        self._origin = origin
        self._reset = reset
        self._backend: tuple[Any, ...] | None = None  # who serves us there
        connection = self._connect()
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = connection
        self._doubtful = (
            False  # whether a commit may have gone unheard; until the next one that is heard of
        )
        row = connection.execute(_LAST).fetchone()
        self._heard: int = row[0] if row else 0  # events of this process up to this number were heard

    def transact(self, operations: Sequence[WriteOperation]) -> tuple[list[Any], list[Event]]:
        broke = False
        for _ in range(TRIES):
            connection = self._connected()
            tx = PostgresTransaction(
                self._memory, connection, self._clock.now(), doubtful=self._doubtful
            )
            try:
                return self._transaction(tx, operations)
            except psycopg.Error as error:
                self._roll_back(connection)
                if connection.closed:
                    self._doubtful = self._doubtful or tx.commit_sent
                    if broke:  # twice in a row: it is not the network's mood
                        raise self._unwritable(error) from error
                    broke = True
                    log.warning("the connection to the database broke: %s", error)
                elif error.sqlstate in _AGAIN:
                    self._memory.forget(tx.trusted)
                else:
                    reason = explain(error)
                    if reason is not None:
                        raise StoreUnavailable(reason) from error
                    raise
            except BaseException:
                self._roll_back(connection)
                raise
        raise StoreUnavailable("other processes keep changing the same jobs: send it again")

    def _transaction(
        self, tx: PostgresTransaction, operations: Sequence[WriteOperation]
    ) -> tuple[list[Any], list[Event]]:
        tx.prefetch(
            (job_id for operation in operations for job_id in operation.jobs),
            (key for operation in operations for key in operation.keys),
        )
        unheard: list[Event] = []
        if tx.doubtful:
            unheard = self._unheard(tx)
            self._give_back(tx)
        results = [operation.run(tx) for operation in operations]
        tx.finish(self._server.channel, self._origin)
        self._doubtful = False
        tx.committed()
        events = [*unheard, *tx.events] if unheard else tx.events
        if events:
            self._heard = events[-1].id
        if tx.doubtful:
            self._memory.forget_all()
            self._reset()
        return results, events

    def _unheard(self, tx: PostgresTransaction) -> list[Event]:
        """The events of a commit whose answer was lost. The feed skips them because this process wrote them."""
        return [
            Event(number, of, type_, at, msgspec.json.decode(job), tenant)
            for number, of, type_, at, job, tenant in tx.execute(_UNHEARD, (self._heard, self._origin))
        ]

    def _give_back(self, tx: PostgresTransaction) -> None:
        """What was claimed by a commit that was not heard of: nobody here runs it."""
        for job_id, owner, fence in tx.execute(_MINE, (list(self._memory.owners),)).fetchall():
            if self._memory.mine.get(job_id) != fence:
                operations.apply(tx, HandedBack(job_id=job_id, owner=owner, fence=fence))

    def _connected(self) -> psycopg.Connection[tuple[Any, ...]]:
        if self._connection is None or self._connection.closed:
            try:
                self._connection = self._connect()
            except psycopg.Error as error:
                raise self._unwritable(error) from error
            # It may be another server, with an older state than the last one had.
            self._memory.held.clear()
        return self._connection

    def _connect(self) -> psycopg.Connection[tuple[Any, ...]]:
        connection = self._server.connect()
        try:
            self._end_former(connection)
            self._backend = connection.execute(_WHO).fetchone()
        except BaseException:
            connection.close()
            raise
        return connection

    def _end_former(self, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        end = time.monotonic() + PATIENCE
        while self._backend and connection.execute(_END, self._backend).fetchone() is not None:
            if time.monotonic() > end:
                raise psycopg.OperationalError(
                    "the server is still at what the last connection has sent"
                )
            time.sleep(0.002)

    def _unwritable(self, error: psycopg.Error) -> StoreUnavailable:
        return StoreUnavailable(f"{self._server.shown}: {explain(error) or error}")

    def _roll_back(self, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        try:
            if not connection.closed:
                connection.execute("ROLLBACK")
        except psycopg.Error:
            connection.close()

    def told(self, error: Exception) -> Exception:
        return error

    def close(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(psycopg.Error):
                self._connection.close()
