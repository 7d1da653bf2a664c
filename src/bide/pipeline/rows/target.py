"""The target of rows: a file that readers see as a whole, the old one or the new one.

Rows are written to a hidden file beside the target, which is locked, synced to disk and then renamed. A killed run leaves
files that have the same names each time, so the next run overwrites them.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bide.core.errors import SetupError
from bide.pipeline.rows.report import UnwritableTarget

FORMATS = ("parquet", "csv", "jsonl", "sqlite")


@dataclass(frozen=True)
class Target:
    """A file in one of FORMATS. For SQLite also the table in it."""

    path: Path
    format: str = "parquet"
    table: str | None = None

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise SetupError(f"{self.format!r} is not a format. Use one of {', '.join(FORMATS)}")
        if self.table is not None and self.format != "sqlite":
            raise SetupError(f"`table` is for the format sqlite, not {self.format}. Remove it")
        if self.table is None and self.format == "sqlite":
            raise SetupError("`table` is missing: the format sqlite needs the name of a table")
        if self.table is not None and (not self.table or "\0" in self.table):
            raise SetupError(f"{self.table!r} cannot be the name of a table")

    @property
    def dead_letters(self) -> Path:
        """The file of bad rows, if the schema says so."""
        name = self.path.name if self.table is None else f"{self.path.name}.{self.table}"
        return self.path.with_name(name.replace("/", "_") + ".bad.jsonl")


@dataclass(frozen=True)
class TargetFiles:
    """The files that a normalization writes before it publishes them."""

    target: Target
    partial: Path
    dead_letters: Path
    spill: Path

    @property
    def rows(self) -> Path:
        """The path for the writer of rows. SQLite writes to the target itself, in a transaction."""
        return self.target.path if self.target.format == "sqlite" else self.partial

    def publish(self, *, dead_letters: bool) -> None:
        """Rename both files, rows last: a reader of new rows must find their dead letters. SQLite has committed already."""
        if dead_letters:
            _sync(self.dead_letters)
            self.dead_letters.replace(self.target.dead_letters)
        if self.target.format != "sqlite":
            _sync(self.partial)
            self.partial.replace(self.target.path)
        if not dead_letters:
            self.target.dead_letters.unlink(missing_ok=True)
        _sync(self.target.path.parent)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def target_files(target: Target) -> Iterator[TargetFiles]:
    """Lock the target and remove the temporary files on exit. UnwritableTarget says what is wrong."""
    name = target.dead_letters.name.removesuffix(".bad.jsonl")
    folder = target.path.parent
    files = TargetFiles(
        target,
        folder / f".{name}.partial",
        folder / f".{name}.bad.partial",
        folder / f".{name}.spill",
    )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with files.partial.open("ab") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UnwritableTarget(
                    f"another run is writing {target.path}. Run again after it has ended"
                ) from None
            try:
                shutil.rmtree(files.spill, ignore_errors=True)
                files.spill.mkdir()
                yield files
            finally:
                files.partial.unlink(missing_ok=True)
                files.dead_letters.unlink(missing_ok=True)
                shutil.rmtree(files.spill, ignore_errors=True)
    except (OSError, sqlite3.Error) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise UnwritableTarget(
            f"{target.path} cannot be written: {reason}. The published output is unchanged"
        ) from error
