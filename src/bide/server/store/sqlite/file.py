"""The SQLite file: opening, checking and migrating it, and the meaning of its errors."""

from __future__ import annotations

import contextlib
import math
import os
import secrets
import shutil
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bide.core.errors import QueryTimeout, SetupError
from bide.server.durable_files import create, sync_path
from bide.server.store import StoreUnavailable, migrations
from bide.server.store.job_search import PREPARING
from bide.server.store.query_threads import TOO_LONG
from bide.server.store.sqlite import index_builds

_FULL = (
    "the disk with the data folder is full, or its quota is used up: free space on it. Accepted jobs are safe and "
    "continue when there is free space"
)
_READ_ONLY = "the data folder or the database is not writable: give this user write permission, or mount the disk writable"
_CANNOT_OPEN = (
    "the database cannot be opened: this user has no permission, or this process has too many open files "
    "(raise the limit: `ulimit -n`, or LimitNOFILE= of systemd)"
)
_FAILING = "the disk with the data folder has errors: check the system's log, and copy the folder to another disk"
_BUSY = "another program has locked the database: close it. Only one service may use the file"
_DAMAGED = (
    "Restore it from a backup, or move it away to start with an empty one; "
    "`sqlite3 FILE .recover` may recover its content."
)
CHECK_EVERY = 20_000  # instructions of SQLite between two checks of the time, about a millisecond
_LEAST_FREE = 256 * 1024  # with less free space, an I/O error most likely means a full disk
CHECKPOINT = (
    4000  # pages in the write-ahead log after which SQLite copies them into the file and reuses the log
)
WAL_SIZE = CHECKPOINT * (4096 + 24)  # bytes; each page has a header
WAL_PIECE = 1024 * 1024
PLENTY = 1024 * 1024 * 1024  # free bytes of a disk on which the log may be longer than it must be


def connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(
        path, timeout=30, isolation_level=None, check_same_thread=False, cached_statements=256
    )
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT}")
        connection.execute("PRAGMA cache_size = -32000")
    except BaseException:
        connection.close()
        raise
    return connection


def lengthen_wal(database: Path) -> bool:
    """Append WAL_PIECE zeros to the write-ahead log, which SQLite ignores until it overwrites them. Return whether there is
    more to append. Call it only in a transaction of the writer: nothing else may append to the log meanwhile.
    """
    if shutil.disk_usage(database.parent).free < PLENTY:
        return False
    with database.with_name(f"{database.name}-wal").open("r+b", buffering=0) as wal:
        size = wal.seek(0, os.SEEK_END)
        if size >= WAL_SIZE:
            return False
        wal.write(bytes(WAL_PIECE))
        os.fdatasync(wal.fileno())
        return size + WAL_PIECE < WAL_SIZE


class SqliteQueries:
    """`QueryConnection` on a SQLite file."""

    broken = False

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self._path = path
        self._connection = connection
        self._until = math.inf
        self._late = False
        connection.set_progress_handler(self._check, CHECK_EVERY)

    def begin(self, until: float) -> None:
        self._until, self._late = until, False

    def rows(self, sql: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        if self._check():
            raise QueryTimeout(TOO_LONG)
        try:
            return self._connection.execute(sql, values).fetchall()
        except sqlite3.DatabaseError as error:
            if self._late:
                raise QueryTimeout(TOO_LONG) from None
            if str(error).startswith("no such index"):  # dropped since the query began
                raise QueryTimeout(PREPARING) from None
            reason = explain(error, self._path)
            if reason is not None:
                raise StoreUnavailable(reason) from error
            raise

    def _check(self) -> int:
        self._late = time.monotonic() > self._until
        return int(self._late)

    def interrupt(self) -> None:
        self._connection.interrupt()

    def close(self) -> None:
        self._connection.close()


def prepare(path: Path) -> list[int]:
    """Check the file and migrate its schema. Return the applied versions."""
    try:
        if not path.exists():  # SQLite would create it readable for all users
            with contextlib.suppress(OSError):  # SQLite gets the same error below and reports it
                create(path).close()
                sync_path(path.parent)
        connection = connect(path)
        try:
            (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            if verdict != "ok":
                raise sqlite3.DatabaseError(" ".join(verdict.split()))
            return _migrate(connection)
        finally:
            connection.close()
    except sqlite3.DatabaseError as error:
        reason = explain(error, path) or f"{error}. {_DAMAGED}"
        raise SetupError(f"{path} cannot be used: {reason}") from error


class SqliteFile:
    """`StoreDatabase` on a SQLite file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def shown(self) -> str:
        return str(self._path)

    def migrate(self) -> list[int]:
        return prepare(self._path)

    def begin_epoch(self) -> str:
        with contextlib.closing(connect(self._path)) as connection:
            return new_epoch(connection)

    def describe(self) -> str:
        path = self._path
        if not path.exists():
            return "none yet"
        try:
            with self._read_only() as connection:
                (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
                (version,) = connection.execute("PRAGMA user_version").fetchone()
                (jobs,) = connection.execute("SELECT count(*) FROM jobs").fetchone()
        except sqlite3.DatabaseError as error:
            raise SetupError(f"{path} cannot be read: {error}. Restore it from a backup.") from None
        if verdict != "ok":
            raise SetupError(f"{path} is damaged: {verdict}. Restore it from a backup.")
        pending = migrations.pending("sqlite", version)
        more = f"; the next start applies {len(pending)} migrations" if pending else ""
        return f"schema {version}, {jobs} jobs, integrity ok{more}"

    def identity(self) -> str | None:
        try:
            with self._read_only() as connection:
                return str(connection.execute("SELECT id FROM store_id").fetchone()[0])
        except sqlite3.DatabaseError:
            return None

    def _read_only(self) -> contextlib.closing[sqlite3.Connection]:
        return contextlib.closing(sqlite3.connect(f"{self._path.as_uri()}?mode=ro", uri=True))


def new_epoch(connection: sqlite3.Connection) -> str:
    """Begin a new epoch of the event log."""
    epoch = secrets.token_hex(4)
    connection.execute("UPDATE log_state SET text = ? WHERE name = 'epoch'", (epoch,))
    return epoch


def explain(error: sqlite3.Error, path: Path) -> str | None:
    """Why the file cannot be used, and what to do; None if neither the system nor the file is the cause."""
    match getattr(error, "sqlite_errorcode", 0) & 0xFF:
        case sqlite3.SQLITE_FULL:
            return _FULL
        case sqlite3.SQLITE_IOERR:
            return _FULL if _free(path) < _LEAST_FREE else f"{_FAILING} ({error})"
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM:
            return _READ_ONLY
        case sqlite3.SQLITE_CANTOPEN:
            return _FULL if _free(path) < _LEAST_FREE else _CANNOT_OPEN
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return _BUSY
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            return f"{error}. {_DAMAGED}"
    return None


def _free(path: Path) -> int:
    with contextlib.suppress(OSError):
        return shutil.disk_usage(path.parent).free
    return _LEAST_FREE


def _migrate(connection: sqlite3.Connection) -> list[int]:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    applied = []
    pending = migrations.pending("sqlite", version)
    if pending and version:
        # An index of a million jobs is sorted in memory, by two threads: this takes half as long.
        connection.execute("PRAGMA cache_size = -200000")
        connection.execute("PRAGMA threads = 1")
        if index_builds.is_large(connection):
            pending = index_builds.defer(pending)
    for number, sql in pending:
        connection.executescript(f"BEGIN IMMEDIATE; {sql}; PRAGMA user_version = {number}; COMMIT;")
        applied.append(number)
        version = number
    # A write that changes nothing, so that a read-only file is detected here.
    connection.execute(f"PRAGMA user_version = {version}")
    return applied
