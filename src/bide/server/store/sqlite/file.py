"""The SQLite file itself: how it is opened, checked, brought to the newest schema, and what its errors mean."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from pathlib import Path

from bide.core.errors import SetupError
from bide.server.durable_files import create, sync_path
from bide.server.store import migrations

_FULL = (
    "the disk with the data folder is full, or a quota is used up: make room on it. What was accepted "
    "before is safe, and goes on by itself when there is room"
)
_READ_ONLY = "the data folder or the database cannot be written: give this user the right to, or mount its disk writable"
_CANNOT_OPEN = (
    "the database cannot be opened: either this user has no right to, or too many files are open in this "
    "process (raise its limit: `ulimit -n`, or LimitNOFILE= of systemd)"
)
_FAILING = (
    "the disk with the data folder fails: see the system's log, and copy the folder to another disk"
)
_BUSY = "another program holds the database: close it; nothing but one service may use it"
_DAMAGED = (
    "Restore it from a backup, or move it away to start with an empty one; "
    "`sqlite3 FILE .recover` may save what is in it."
)
_LEAST_FREE = 256 * 1024  # below this an error of the disk is most likely that it is full


def connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(
        path, timeout=30, isolation_level=None, check_same_thread=False, cached_statements=256
    )
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA wal_autocheckpoint = 4000")
        connection.execute("PRAGMA cache_size = -32000")
    except BaseException:
        connection.close()
        raise
    return connection


def prepare(path: Path) -> list[int]:
    """Checks the file and brings it to the newest schema; the versions that were applied."""
    try:
        if not path.exists():  # SQLite would make it readable by everybody
            with contextlib.suppress(OSError):  # SQLite meets the same error, and reports it
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


def explain(error: sqlite3.Error, path: Path) -> str | None:
    """Why the file cannot be used, and what to do; None for what is neither the system's nor the file's fault."""
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
    for number, sql in migrations.pending("sqlite", version):
        connection.executescript(f"BEGIN IMMEDIATE; {sql}; PRAGMA user_version = {number}; COMMIT;")
        applied.append(number)
        version = number
    # Changes nothing, but is a write: a file that cannot be written is found out here.
    connection.execute(f"PRAGMA user_version = {version}")
    return applied
