"""The ledger's file: locked to one process, opened, checked and brought to the newest form; what its errors mean."""

from __future__ import annotations

import fcntl
import os
import secrets
import sqlite3
from pathlib import Path

from bide.core.errors import SetupError

MARK = 0x62696465  # "bide", as SQLite's application id
FORM = 2
_PARCELS = """
CREATE TABLE parcels (
  base TEXT NOT NULL, what TEXT NOT NULL, key TEXT, since REAL NOT NULL, items BLOB NOT NULL, job_id TEXT,
  PRIMARY KEY (base, what)
) WITHOUT ROWID;
"""
_SCHEMA = f"""
BEGIN IMMEDIATE;
CREATE TABLE jobs (
  number INTEGER PRIMARY KEY,
  api TEXT NOT NULL, base TEXT NOT NULL, job_id TEXT NOT NULL,
  ref BLOB, kind TEXT NOT NULL, size TEXT NOT NULL,
  submitted_at REAL, since REAL, created_at REAL, deadline REAL,
  asked_at REAL, status TEXT, progress BLOB, etag TEXT, requests INTEGER NOT NULL,
  ended INTEGER NOT NULL, finished_at REAL, result BLOB, result_url TEXT, files BLOB, error BLOB,
  told INTEGER NOT NULL,
  UNIQUE (api, base, job_id)
);
CREATE INDEX waiting ON jobs (number) WHERE NOT ended;
CREATE TABLE durations (
  api TEXT NOT NULL, kind TEXT NOT NULL, size TEXT NOT NULL, data BLOB NOT NULL,
  PRIMARY KEY (api, kind, size)
) WITHOUT ROWID;
CREATE TABLE budgets (fingerprint TEXT PRIMARY KEY, at REAL NOT NULL, data BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE secret (salt BLOB NOT NULL);
{_PARCELS}
PRAGMA application_id = {MARK};
PRAGMA user_version = {FORM};
"""


class Lock:
    """Held as long as the process lives, or until it is released; the system releases it for a process that dies."""

    def __init__(self, path: Path) -> None:
        self._ledger = path
        # Beside the file: closing any descriptor of the file itself would take SQLite's own locks away.
        self._path = path.with_name(path.name + "-lock")
        self._fd: int | None = None

    def acquire(self) -> None:
        try:
            fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise unusable(self._ledger, error.strerror or str(error)) from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.pread(fd, 20, 0).decode(errors="replace").strip() or "unknown"
            os.close(fd)
            raise SetupError(
                f"another process ({holder}) waits with the ledger {self._ledger}: let it end, or use another file"
            ) from None
        os.ftruncate(fd, 0)
        os.pwrite(fd, str(os.getpid()).encode(), 0)
        self._fd = fd

    def release(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def connect(path: Path) -> sqlite3.Connection:
    """The ledger at `path`, made when there is none; SetupError when it cannot be used."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        connection = sqlite3.connect(path, timeout=5, isolation_level=None, check_same_thread=False)
    except (OSError, sqlite3.Error) as error:
        raise unusable(path, str(error)) from error
    try:
        _check(connection, path)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
    except sqlite3.Error as error:
        connection.close()
        raise unusable(path, str(error)) from error
    except BaseException:
        connection.close()
        raise
    return connection


def _check(connection: sqlite3.Connection, path: Path) -> None:
    (mark,) = connection.execute("PRAGMA application_id").fetchone()
    (form,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if mark != MARK and (mark or form or tables):
        raise SetupError(f"{path} is a database of something else: name another file for the ledger")
    if form > FORM:
        raise SetupError(f"the ledger {path} was written by a newer bide: use that one, or another file")
    (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise sqlite3.DatabaseError(" ".join(verdict.split()))
    if not form:
        connection.executescript(_SCHEMA)
        connection.execute("INSERT INTO secret VALUES (?)", (secrets.token_bytes(32),))
        connection.execute("COMMIT")
    elif form < FORM:  # the first form knew no files
        connection.executescript(f"BEGIN IMMEDIATE; {_PARCELS} PRAGMA user_version = {FORM}; COMMIT;")


def unusable(path: Path, reason: str) -> SetupError:
    return SetupError(
        f"the ledger {path} cannot be used: {reason}. Make room on its disk, give this user the right to write it, "
        "or move it away to begin a new one"
    )
