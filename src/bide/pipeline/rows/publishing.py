"""A file that appears at its name as a whole or not at all.

It grows beside its name, hidden, and is locked meanwhile; on disk before it is renamed. What a killed run left behind
has the same name, so the next run writes over it.
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

from bide.pipeline.rows.report import UnwritableTarget
from bide.pipeline.rows.target import Target


@dataclass(frozen=True)
class TargetFiles:
    """Where a run writes before it publishes."""

    target: Target
    partial: Path
    dead_letters: Path
    spill: Path

    @property
    def rows(self) -> Path:
        """What a writer is given: SQLite has transactions of its own."""
        return self.target.path if self.target.format == "sqlite" else self.partial

    def publish(self, *, dead_letters: bool) -> None:
        """Both files appear; rows last, for who sees new ones must find what was left out. SQLite has committed before."""
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
    """Unwritable says what is in the way. In the end nothing is left but what was published."""
    name = target.dead_letters.name.removesuffix(".bad.jsonl")
    folder = target.path.parent
    place = TargetFiles(
        target,
        folder / f".{name}.partial",
        folder / f".{name}.bad.partial",
        folder / f".{name}.spill",
    )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with place.partial.open("ab") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UnwritableTarget(
                    f"another run is writing {target.path}: wait until it has ended"
                ) from None
            try:
                shutil.rmtree(place.spill, ignore_errors=True)
                place.spill.mkdir()
                yield place
            finally:
                place.partial.unlink(missing_ok=True)
                place.dead_letters.unlink(missing_ok=True)
                shutil.rmtree(place.spill, ignore_errors=True)
    except (OSError, sqlite3.Error) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise UnwritableTarget(
            f"{target.path} cannot be written: {reason}; what was published before is as it was"
        ) from error
