"""The ledger's file: its tables, its lock, and what its errors mean."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from bide.client.ledger import sqlite_file
from bide.core.errors import SetupError

FORM = sqlite_file.Form(
    mark=0x62696465,  # "bide"
    instead="another file for the ledger",
    steps=(
        """
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
""",
        # the first form knew no files
        """
CREATE TABLE parcels (
  base TEXT NOT NULL, what TEXT NOT NULL, key TEXT, since REAL NOT NULL, items BLOB NOT NULL, job_id TEXT,
  PRIMARY KEY (base, what)
) WITHOUT ROWID;
""",
    ),
)


class Lock:
    """Held as long as the process lives, or until it is released."""

    def __init__(self, path: Path) -> None:
        self._ledger = path
        # Beside the file: closing any descriptor of the file itself would take SQLite's own locks away.
        self._path = path.with_name(path.name + "-lock")
        self._fd: int | None = None

    def acquire(self) -> None:
        try:
            self._fd = sqlite_file.lock(
                self._path, f"waits with the ledger {self._ledger}", "another file"
            )
        except OSError as error:
            raise unusable(self._ledger, error.strerror or str(error)) from error

    def release(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def connect(path: Path) -> sqlite3.Connection:
    """The ledger at `path`, made when there is none; SetupError when it cannot be used."""
    try:
        return sqlite_file.connect(path, FORM)
    except (OSError, sqlite3.Error) as error:
        raise unusable(path, str(error)) from error


def unusable(path: Path, reason: str) -> SetupError:
    return SetupError(
        f"the ledger {path} cannot be used: {reason}. Make room on its disk, give this user the right to write it, "
        "or move it away to begin a new one"
    )
