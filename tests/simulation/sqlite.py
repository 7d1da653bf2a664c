"""A SQLite database in memory that survives its services, and whose disk can be full or fail."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from bide.server.store import transactional_store
from bide.server.store.sqlite import store as sqlite_store
from bide.server.store.sqlite.file import _migrate
from tests.simulation.faults import Faults

_template: bytes | None = None


class SimSqlite(sqlite3.Connection):
    """The connection of the reader and the writer of a store. `close` has no effect: the next service uses it, too."""

    faults: Faults | None = None
    writing = False

    def close(self) -> None:
        pass

    def end(self) -> None:
        super().close()

    def set_progress_handler(self, *settings: Any) -> None:
        """The time limit of queries would also end the statements of the writer, which has the same connection."""

    def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
        self._check(sql)
        return super().execute(sql, *values)

    def executemany(self, sql: str, *values: Any) -> sqlite3.Cursor:
        self._check(sql)
        return super().executemany(sql, *values)

    def _check(self, sql: str) -> None:
        faults = self.faults
        if faults is None or sql == "ROLLBACK":
            return
        if self.writing:
            if faults.current is not None and (faults.fails_now() or sql == "COMMIT"):
                raise _error("database or disk is full", sqlite3.SQLITE_FULL)
        elif faults.next() in ("refused", "broken"):
            raise _error("disk I/O error", sqlite3.SQLITE_IOERR)


def _error(text: str, code: int) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError(text)
    error.sqlite_errorcode = code
    return error


def new_database() -> SimSqlite:
    global _template
    connection = sqlite3.connect(":memory:", isolation_level=None, factory=SimSqlite)
    if _template is None:
        _migrate(connection)
        _template = connection.serialize()
    else:
        connection.deserialize(_template)
    return connection


class SqliteDatabase:
    """The database of the simulated world."""

    loses_responses = True  # the writer loses them, because a SQLite session cannot
    url: str | None = None

    def __init__(self, faults: Faults) -> None:
        self.connection = new_database()
        self.connection.faults = faults

    @contextmanager
    def patched(self, writer: Callable[..., Any]) -> Iterator[None]:
        """Make stores open this database within the context."""

        def prepare(path: Path) -> list[int]:
            return []

        with (
            patch.object(sqlite_store, "connect", lambda path: self.connection),
            patch.object(sqlite_store, "prepare", prepare),
            patch.object(transactional_store, "GroupCommitWriter", writer),
        ):
            yield

    def writing(self, begun: bool) -> None:
        self.connection.writing = begun

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Read rows without faults."""
        faults, self.connection.faults = self.connection.faults, None
        try:
            return self.connection.execute(sql).fetchall()
        finally:
            self.connection.faults = faults

    def end(self) -> None:
        self.connection.end()
