"""A SQLite file that one process uses: a lock file beside it, and a format that is checked at each opening.

1. The lock is held until it is closed; the system releases it when the process dies.
2. Only its owner can read the file, and committed data is on disk.
3. A file of another program, or of a newer format, is not changed.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import sqlite3
from dataclasses import dataclass
from pathlib import Path

from bide.core.errors import SetupError


@dataclass(frozen=True)
class FileFormat:
    """How such a file is recognised, created and upgraded. All have a table `secret` with a salt."""

    mark: int  # SQLite's application id
    instead: str  # what to use instead, for error messages
    steps: tuple[str, ...]  # SQL of the first format and of each upgrade


def lock(path: Path, what: str, instead: str) -> int:
    """Return a descriptor that the caller closes; SetupError if another process has the lock."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        holder = os.pread(fd, 20, 0).decode(errors="replace").strip() or "unknown"
        os.close(fd)
        raise SetupError(
            f"another process ({holder}) {what}: stop it or wait until it ends, or use {instead}"
        ) from None
    os.ftruncate(fd, 0)
    os.pwrite(fd, str(os.getpid()).encode(), 0)
    return fd


def connect(path: Path, form: FileFormat, *, check_same_thread: bool = False) -> sqlite3.Connection:
    """Create the file if there is none. OSError or sqlite3.Error if it cannot be read or written."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    connection = sqlite3.connect(
        path, timeout=5, isolation_level=None, check_same_thread=check_same_thread
    )
    try:
        (mark,) = connection.execute("PRAGMA application_id").fetchone()
        (number,) = connection.execute("PRAGMA user_version").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        if mark != form.mark and (mark or number or tables):
            raise SetupError(f"{path} is a database of another program: use {form.instead}")
        if number > len(form.steps):
            raise SetupError(
                f"{path} was written by a newer version of bide: upgrade bide, or use {form.instead}"
            )
        (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise sqlite3.DatabaseError(" ".join(verdict.split()))
        if number < len(form.steps):
            connection.executescript(f"BEGIN IMMEDIATE; {''.join(form.steps[number:])}")
            if number == 0:
                connection.execute("CREATE TABLE secret (salt BLOB NOT NULL)")
                connection.execute("INSERT INTO secret VALUES (?)", (secrets.token_bytes(32),))
            connection.execute(f"PRAGMA application_id = {form.mark}")
            connection.execute(f"PRAGMA user_version = {len(form.steps)}")
            connection.execute("COMMIT")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
    except BaseException:
        connection.close()
        raise
    return connection
