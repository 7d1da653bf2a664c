"""A SQLite file that belongs to one process: a lock beside it, and a form that is checked whenever it is opened.

1. The lock is held until it is closed; the system releases it for a process that dies.
2. The file is for its owner alone, and what was committed is on disk.
3. A file of something else, or of a newer form, is left as it is.
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
class Form:
    """How such a file is recognised, made and brought up to date. All have a table `secret` with a salt."""

    mark: int  # SQLite's application id
    instead: str  # what to name when the file cannot be used
    steps: tuple[str, ...]  # SQL that makes the first form, and each next one of the one before


def lock(path: Path, what: str, instead: str) -> int:
    """A descriptor to be closed; SetupError when another process has it."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        holder = os.pread(fd, 20, 0).decode(errors="replace").strip() or "unknown"
        os.close(fd)
        raise SetupError(f"another process ({holder}) {what}: let it end, or use {instead}") from None
    os.ftruncate(fd, 0)
    os.pwrite(fd, str(os.getpid()).encode(), 0)
    return fd


def connect(path: Path, form: Form, *, check_same_thread: bool = False) -> sqlite3.Connection:
    """Made when there is none. OSError or sqlite3.Error when it cannot be read or written."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    connection = sqlite3.connect(
        path, timeout=5, isolation_level=None, check_same_thread=check_same_thread
    )
    try:
        _check(connection, path, form)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
    except BaseException:
        connection.close()
        raise
    return connection


def _check(connection: sqlite3.Connection, path: Path, form: Form) -> None:
    (mark,) = connection.execute("PRAGMA application_id").fetchone()
    (number,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if mark != form.mark and (mark or number or tables):
        raise SetupError(f"{path} is a database of something else: use {form.instead}")
    if number > len(form.steps):
        raise SetupError(f"{path} was written by a newer bide: use that one, or {form.instead}")
    (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise sqlite3.DatabaseError(" ".join(verdict.split()))
    if number < len(form.steps):
        _bring_up(connection, form, number)


def _bring_up(connection: sqlite3.Connection, form: Form, number: int) -> None:
    connection.executescript(f"BEGIN IMMEDIATE; {''.join(form.steps[number:])}")
    if number == 0:
        connection.execute("CREATE TABLE secret (salt BLOB NOT NULL)")
        connection.execute("INSERT INTO secret VALUES (?)", (secrets.token_bytes(32),))
    connection.execute(f"PRAGMA application_id = {form.mark}")
    connection.execute(f"PRAGMA user_version = {len(form.steps)}")
    connection.execute("COMMIT")
