"""The writer's session with PostgreSQL: one connection, which reconnects, and transactions that are retried.

1. A transaction that conflicts with another process, or meets a deadlock, is retried with the current rows.
2. When the connection breaks, the same operations run again on a new connection. Whether the first commit succeeded is
   unknown then. After an outage of any length, the first transaction that succeeds finds jobs that exist already, hands
   back claims that this process did not receive, and returns the events of the lost commit. After it the caches are
   cleared.
3. The server may still execute statements that the broken connection has sent, and could commit them later. So the
   session ends the old backend before it runs anything again.
4. If no new connection is possible immediately, all waiting operations fail, so that no caller hangs during an outage.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

import psycopg

from bide.core.clock import Clock
from bide.core.jobs.state_machine import HandedBack
from bide.core.wire.http import Event
from bide.server.store import StoreUnavailable, operations
from bide.server.store.postgres.cache import PostgresCache
from bide.server.store.postgres.server import PostgresServer, explain
from bide.server.store.postgres.transaction import CONFLICT, PostgresTransaction
from bide.server.store.rows import EVENT_COLUMNS, event_of
from bide.server.store.writer import WriteOperation

log = logging.getLogger("bide.store")
TRIES = 8
_RETRYABLE = {CONFLICT, "40P01", "40001"}  # own conflict check, deadlock, serialization failure
END_TIMEOUT = 4.0  # seconds for the server to end the backend of a broken connection
_BACKEND = "SELECT pid, backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()"
_END = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE (pid, backend_start) = (%s, %s)"
_OWN = (
    "SELECT id, owner, fence FROM jobs WHERE lease_until > 0 AND owner = ANY(%s) AND finished_at IS NULL"
)
# At a start, because the limits may be higher than before. Claims block the jobs again that are beyond them.
_UNBLOCK = (
    "UPDATE jobs SET ready = true, blocked = NULL WHERE id IN "
    "(SELECT id FROM jobs WHERE blocked FOR NO KEY UPDATE SKIP LOCKED)"
)
_LAST = "SELECT last_value - (NOT is_called)::int FROM event_numbers"
_LOST_EVENTS = f"SELECT {EVENT_COLUMNS} FROM events WHERE id > %s AND origin = %s ORDER BY id"


class PostgresSession:
    """Transactions on one connection. The writer's thread calls `on_reset` after a commit whose response was lost, because
    anything may have changed.
    """

    def __init__(
        self,
        server: PostgresServer,
        clock: Clock,
        cache: PostgresCache,
        origin: str,
        on_reset: Callable[[], object] = lambda: None,
    ) -> None:
        self._server = server
        self._clock = clock
        self._cache = cache
        self._origin = origin
        self._on_reset = on_reset
        self._backend: tuple[Any, ...] | None = None  # the server process of this connection
        connection = self._connect()
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = connection
        # Whether the response to a commit was lost since the last successful one.
        self._uncertain = False
        connection.execute(_UNBLOCK)
        row = connection.execute(_LAST).fetchone()
        self._last_event: int = row[0] if row else 0  # own events up to this number were delivered

    def transact(self, operations: Sequence[WriteOperation]) -> tuple[list[Any], list[Event]]:
        broke = False
        for _ in range(TRIES):
            connection = self._connected()
            tx = PostgresTransaction(
                self._cache, connection, self._clock.now(), uncertain=self._uncertain
            )
            try:
                return self._transaction(tx, operations)
            except psycopg.Error as error:
                self._roll_back(connection)
                if connection.closed:
                    self._uncertain = self._uncertain or tx.commit_sent
                    if broke:  # the second break in a row is not a network glitch
                        raise self._unavailable(error) from error
                    broke = True
                    log.warning("the connection to the database broke: %s", error)
                elif error.sqlstate in _RETRYABLE:
                    self._cache.forget(tx.trusted)
                else:
                    reason = explain(error)
                    if reason is not None:
                        raise StoreUnavailable(reason) from error
                    raise
            except BaseException:
                self._roll_back(connection)
                raise
        raise StoreUnavailable(
            f"other processes changed the same jobs during {TRIES} attempts: send the request again"
        )

    def _transaction(
        self, tx: PostgresTransaction, operations: Sequence[WriteOperation]
    ) -> tuple[list[Any], list[Event]]:
        tx.prefetch(
            (job_id for operation in operations for job_id in operation.jobs),
            (key for operation in operations for key in operation.keys),
            (record for operation in operations for record in operation.records),
        )
        lost: list[Event] = []
        if tx.uncertain:
            lost = self._lost_events(tx)
            self._hand_back_unknown(tx)
        results = [operation.run(tx) for operation in operations]
        tx.finish(self._server.channel, self._origin)
        self._uncertain = False
        tx.committed()
        events = [*lost, *tx.events] if lost else tx.events
        if events:
            self._last_event = events[-1].id
        if tx.uncertain:
            self._cache.forget_all()
            self._on_reset()
        return results, events

    def _lost_events(self, tx: PostgresTransaction) -> list[Event]:
        """The events of a commit whose response was lost. The feed skips them because this process wrote them."""
        return [event_of(row) for row in tx.execute(_LOST_EVENTS, (self._last_event, self._origin))]

    def _hand_back_unknown(self, tx: PostgresTransaction) -> None:
        """Hand back jobs that a commit with a lost response has claimed, because this process does not run them."""
        for job_id, owner, fence in tx.execute(_OWN, (list(self._cache.owners),)).fetchall():
            if self._cache.own.get(job_id) != fence:
                operations.apply(tx, HandedBack(job_id=job_id, owner=owner, fence=fence))

    def _connected(self) -> psycopg.Connection[tuple[Any, ...]]:
        if self._connection is None or self._connection.closed:
            try:
                self._connection = self._connect()
            except psycopg.Error as error:
                raise self._unavailable(error) from error
            # It may be another server with an older state.
            self._cache.held.clear()
        return self._connection

    def _connect(self) -> psycopg.Connection[tuple[Any, ...]]:
        connection = self._server.connect()
        try:
            self._end_previous(connection)
            self._backend = connection.execute(_BACKEND).fetchone()
        except BaseException:
            connection.close()
            raise
        return connection

    def _end_previous(self, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        end = time.monotonic() + END_TIMEOUT
        while self._backend and connection.execute(_END, self._backend).fetchone() is not None:
            if time.monotonic() > end:
                raise psycopg.OperationalError(
                    f"the server has not ended the previous connection within {END_TIMEOUT:g} s"
                )
            time.sleep(0.002)

    def _unavailable(self, error: psycopg.Error) -> StoreUnavailable:
        return StoreUnavailable(f"{self._server.shown}: {explain(error) or error}")

    def _roll_back(self, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        try:
            if not connection.closed:
                connection.execute("ROLLBACK")
        except psycopg.Error:
            connection.close()

    def close(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(psycopg.Error):
                self._connection.close()
