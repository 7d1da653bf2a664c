"""The SQLite file itself: how it is opened, checked, and brought to the newest schema."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from bide.core.errors import SetupError
from bide.server.store import migrations


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
        connection = connect(path)
        try:
            (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            if verdict != "ok":
                raise sqlite3.DatabaseError(verdict)
            return _migrate(connection)
        finally:
            connection.close()
    except sqlite3.DatabaseError as error:
        raise SetupError(
            f"{path} cannot be used: {error}. Restore it from a backup, or move it away to start "
            "with an empty one; `sqlite3 FILE .recover` may save what is in it."
        ) from error


def _migrate(connection: sqlite3.Connection) -> list[int]:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    applied = []
    for number, sql in migrations.pending("sqlite", version):
        connection.executescript(f"BEGIN IMMEDIATE; {sql}; PRAGMA user_version = {number}; COMMIT;")
        applied.append(number)
    return applied
