"""A real PostgreSQL behind connections that break when the simulation wants it.

Stores, sessions, reads and the feed are the real ones. Statements are carried out at once in real time; how long they take,
and what happens to them, is decided in virtual time.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any
from unittest.mock import patch

import psycopg
from psycopg.pq import TransactionStatus

from bide.server.store import transactional_store
from bide.server.store.postgres import store as postgres_store
from bide.server.store.postgres.server import PostgresServer, prepare
from tests.simulation.faults import Faults

POLL = 0.05  # virtual seconds between two checks for notifications
_prepared: set[str] = set()
_SEQUENCES = "SELECT format('%I.%I', schemaname, sequencename), last_value FROM pg_sequences WHERE schemaname = 'simulation'"


class SimConnection(psycopg.Connection[tuple[Any, ...]]):
    """The writer's connection, which raises the current fault."""

    database: PostgresDatabase | None = None

    def wait(self, *args: Any, **kwargs: Any) -> Any:
        faults = self.database.faults if self.database is not None else None
        if faults is None or faults.current is None:
            return super().wait(*args, **kwargs)
        if faults.current in ("unheard", "broken"):
            begun = self.pgconn.transaction_status
            result = super().wait(*args, **kwargs)
            ended = self.pgconn.transaction_status is TransactionStatus.IDLE
            if ended and (begun is TransactionStatus.INTRANS or faults.fails_now()):
                raise self._broke(faults)
            return result
        if faults.fails_now():
            raise self._broke(faults)
        return super().wait(*args, **kwargs)

    def _broke(self, faults: Faults) -> psycopg.OperationalError:
        if faults.current == "broken":
            faults.passed()
        self.close()
        return psycopg.OperationalError("the connection was cut")


class SimCursor:
    def __init__(self, cursor: psycopg.Cursor[tuple[Any, ...]]) -> None:
        self._cursor = cursor

    async def fetchall(self) -> list[tuple[Any, ...]]:
        return self._cursor.fetchall()

    async def fetchone(self) -> tuple[Any, ...] | None:
        return self._cursor.fetchone()


class SimAsyncConnection:
    """A connection for reads, or of the feed, as psycopg's asynchronous one."""

    def __init__(self, database: PostgresDatabase, connection: SimConnection) -> None:
        self._database = database
        self._connection = connection
        self._received = -1  # the commit up to which notifications were received
        self._locks = False  # within a transaction

    @property
    def closed(self) -> bool:
        return self._connection.closed

    async def close(self) -> None:
        self._connection.close()

    async def execute(self, sql: str | bytes, values: Sequence[Any] | None = None) -> SimCursor:
        mode = self._database.faults.next()
        if not self._locks:
            await asyncio.sleep(self._database.delay())
            if mode == "late":
                await asyncio.sleep(self._database.faults.duration())
        if mode in ("refused", "unheard", "broken") or self._database.faults.out:
            self._connection.close()
        if self.closed:
            raise psycopg.OperationalError("the connection was cut")
        text = sql if isinstance(sql, bytes) else sql.encode()
        return SimCursor(self._connection.execute(text, values))

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """Takes no time: other services would wait in real time for its locks."""
        await asyncio.sleep(self._database.delay())
        if self.closed:
            raise psycopg.OperationalError("the connection was cut")
        self._locks = True
        try:
            with self._connection.transaction():
                yield
        finally:
            self._locks = False

    async def notifies(
        self, *, timeout: float | None = None, stop_after: int | None = None
    ) -> AsyncIterator[psycopg.Notify]:
        loop = asyncio.get_running_loop()
        end = loop.time() + (timeout or 0.0)
        while True:
            if self.closed or self._database.faults.out:
                self._connection.close()
                raise psycopg.OperationalError("the connection was cut")
            if self._received != self._database.commits:
                self._received = self._database.commits
                self._connection.execute("SELECT 1")  # its response brings earlier notifications
                found = list(self._connection.notifies(timeout=0))
                for note in found:
                    yield note
                if found and stop_after is not None:
                    return
            if loop.time() >= end:
                return
            await asyncio.sleep(min(POLL, max(0.0, end - loop.time())))


class SimServer(PostgresServer):
    database: PostgresDatabase

    def connect(self) -> psycopg.Connection[tuple[Any, ...]]:
        faults = self.database.faults
        if faults.out or faults.current is not None:
            raise psycopg.OperationalError("connection refused")
        return self.database.connect(self)

    async def connect_async(self) -> Any:
        await asyncio.sleep(self.database.delay())
        if self.database.faults.out:
            raise psycopg.OperationalError("connection refused")
        return SimAsyncConnection(self.database, self.database.connect(self))


class PostgresDatabase:
    """One schema, empty at the start."""

    loses_responses = False  # the session loses them when its connection breaks after a commit

    def __init__(self, url: str, faults: Faults) -> None:
        self.url: str | None = f"{url}?schema=simulation"
        self.faults = faults
        self.commits = 0
        self._rng = random.Random(1)
        self._connections: set[SimConnection] = set()
        self._clean()

    def _clean(self) -> None:
        assert self.url is not None
        server = PostgresServer(self.url)
        new = self.url not in _prepared
        if new:
            prepare(server)
            _prepared.add(self.url)
        self._own = server.connect()
        self._tables = [
            name
            for (name,) in self._own.execute(
                "SELECT tablename FROM pg_tables WHERE schemaname = 'simulation' "
                "AND tablename NOT IN ('schema_version', 'store_id')"
            )
        ]
        if new:
            self._copy_to("pristine")
        self._copy_from("pristine")
        self._own.execute("ALTER SEQUENCE event_numbers RESTART")

    def _copy_to(self, schema: str) -> None:
        copies = ";".join(f"CREATE TABLE {schema}.{t} AS TABLE simulation.{t}" for t in self._tables)
        self._own.execute(
            f"DROP SCHEMA IF EXISTS {schema} CASCADE; CREATE SCHEMA {schema}; {copies}".encode(),
            prepare=False,
        )

    def _copy_from(self, schema: str) -> None:
        back = ";".join(
            f"INSERT INTO simulation.{t} OVERRIDING SYSTEM VALUE TABLE {schema}.{t}"
            for t in self._tables
        )
        empty = f"TRUNCATE {', '.join(self._tables)} RESTART IDENTITY"
        self._own.execute(f"{empty}; {back}".encode(), prepare=False)

    # --- an asynchronous standby

    def replicate(self) -> None:
        """Record that the standby has received everything so far."""
        self._copy_to("standby")
        self._numbers = self._own.execute(_SEQUENCES).fetchall()

    def promote(self) -> None:
        """Remove the primary, and everything that the standby has not received."""
        for connection in self._connections:
            connection.close()
        self._copy_from("standby")
        for name, last in self._numbers:
            self._own.execute("SELECT setval(%s::regclass, %s, %s)", (name, last or 1, last is not None))

    def delay(self) -> float:
        return self._rng.uniform(0.0, 0.002)

    def connect(self, server: PostgresServer) -> SimConnection:
        arguments: Any = server._arguments
        connection = SimConnection.connect(autocommit=True, prepare_threshold=None, **arguments)
        assert isinstance(connection, SimConnection)
        connection.database = self
        self._connections.add(connection)
        return connection

    @contextmanager
    def patched(self, writer: Callable[..., Any]) -> Iterator[None]:
        def make_server(url: str) -> SimServer:
            server = SimServer(url)
            server.database = self
            return server

        with (
            patch.object(postgres_store, "PostgresServer", make_server),
            patch.object(postgres_store, "prepare", lambda server: []),
            patch.object(transactional_store, "GroupCommitWriter", writer),
        ):
            yield

    def writing(self, begun: bool) -> None:
        self.commits += not begun

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        return self._own.execute(sql.encode()).fetchall()

    def end(self) -> None:
        for connection in self._connections:
            connection.close()
        self._own.close()
