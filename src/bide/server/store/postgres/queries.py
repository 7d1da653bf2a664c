"""The connection of a thread for lists and statistics, with a time limit that the server enforces."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Sequence
from typing import Any

import psycopg

from bide.core.errors import QueryTimeout
from bide.server.store import StoreUnavailable
from bide.server.store.postgres.server import PostgresServer, explain
from bide.server.store.query_threads import LIMIT, TOO_LONG, release

FETCHED = 200  # rows that are converted without releasing the interpreter
_CANCELLED = "57014"
_IN_FAILED_TRANSACTION = "25P02"  # an earlier statement of the transaction was cancelled
# A bitmap has no order, so a page would have to read the whole range. Plans depend on the values, because few jobs have one
# value and many another. A compiler and parallel workers cost more than they save in queries of this size.
_SETTINGS = (
    f"SET statement_timeout = '{LIMIT * 1000:.0f}ms'; SET enable_bitmapscan = off; "
    "SET plan_cache_mode = force_custom_plan; SET jit = off; SET max_parallel_workers_per_gather = 0"
)


class PostgresQueries:
    """`QueryConnection` on PostgreSQL."""

    def __init__(self, server: PostgresServer) -> None:
        self._until = 0.0
        try:
            self._connection = server.connect()
            self._connection.execute(_SETTINGS.encode(), prepare=False)
        except psycopg.Error as error:
            raise StoreUnavailable(f"{server.shown}: {explain(error) or error}") from error

    @property
    def broken(self) -> bool:
        return self._connection.closed

    def begin(self, until: float) -> None:
        self._until = until

    def rows(self, sql: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        if time.monotonic() > self._until:
            raise QueryTimeout(TOO_LONG)
        try:
            prepare = None if values else False  # several statements cannot be prepared
            text = sql.replace("%", "%%").replace("?", "%s").encode() if values else sql.encode()
            cursor = self._connection.execute(text, values or None, prepare=prepare)
            if cursor.description is None:
                return []
            rows = cursor.fetchmany(FETCHED)
            while len(rows) < cursor.rowcount:
                release()
                rows += cursor.fetchmany(FETCHED)
            return rows
        except psycopg.Error as error:
            if error.sqlstate in (_CANCELLED, _IN_FAILED_TRANSACTION):
                raise QueryTimeout(TOO_LONG) from None
            reason = explain(error)
            if reason is not None:
                raise StoreUnavailable(reason) from error
            raise

    def interrupt(self) -> None:
        # The thread waits for the socket, also when the server is stopped and cannot cancel the query.
        with (
            contextlib.suppress(psycopg.Error, OSError),
            socket.socket(fileno=os.dup(self._connection.fileno())) as own,
        ):
            own.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with contextlib.suppress(psycopg.Error):
            self._connection.close()
