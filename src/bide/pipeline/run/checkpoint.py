"""The checkpoint of a pipeline: a folder with one SQLite file, used by one process at a time.

1. `save`, `begin`, `publish` and `finish` return after the data is on disk. Concurrent saves are synced together, in a
   thread.
2. It has one run, and from earlier runs what the next one needs: cursors, and what was learned of the API.
3. It has no credential and no signed URL. Downloaded files are in the same folder, which only its owner can read, because
   nothing is masked in them.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import msgspec

from bide.client.ledger import Key, LearnedState, sqlite_file
from bide.client.ledger.writer import LedgerWriter
from bide.core.errors import SetupError
from bide.pipeline.run.exports import PublishedOutput, RunRecord
from bide.pipeline.run.phase import Export

FORM = sqlite_file.FileFormat(
    mark=0x62696470,  # "bidp"
    instead="another folder with --state",
    steps=(
        """
CREATE TABLE run (data BLOB NOT NULL);
CREATE TABLE exports (key TEXT PRIMARY KEY, number INTEGER NOT NULL, data BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE outputs (output TEXT PRIMARY KEY, data BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE learned (name TEXT PRIMARY KEY, data BLOB NOT NULL) WITHOUT ROWID;
""",
    ),
)
_encode = msgspec.json.Encoder().encode


class _LearnedRow(msgspec.Struct):
    durations: list[tuple[Key, dict[str, object]]] = []
    budgets: dict[str, tuple[float, dict[str, object]]] = {}


class Checkpoint:
    """`with Checkpoint(folder) as checkpoint:`. SetupError if another process uses it, or it cannot be opened."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self._path = self.folder / "state.sqlite"
        self._writer: LedgerWriter | None = None
        self._lock: int | None = None
        self._database: sqlite3.Connection | None = None

    def __enter__(self) -> Checkpoint:
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = sqlite_file.lock(
                self.folder / "lock", f"runs this pipeline with {self.folder}", "another --state"
            )
            self._database = sqlite_file.connect(self._path, FORM, check_same_thread=True)
        except (OSError, sqlite3.Error) as error:
            self.close()
            raise unusable(self.folder, error) from None
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        database = self._database
        assert database is not None
        try:
            database.execute("BEGIN IMMEDIATE")
            try:
                yield database
                database.execute("COMMIT")
            except BaseException:
                if database.in_transaction:
                    database.execute("ROLLBACK")
                raise
        except sqlite3.Error as error:
            raise unusable(self.folder, error) from None

    def _rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        assert self._database is not None
        try:
            return self._database.execute(query, values).fetchall()
        except sqlite3.Error as error:
            raise unusable(self.folder, error) from None

    # --- the run

    def run(self) -> RunRecord | None:
        rows = self._rows("SELECT data FROM run")
        return msgspec.json.decode(rows[0][0], type=RunRecord) if rows else None

    def begin(self, run: RunRecord) -> None:
        """Start a new run. Remove the exports of the last one, and their files."""
        with self._transaction() as database:
            database.execute("DELETE FROM run")
            database.execute("DELETE FROM exports")
            database.execute("INSERT INTO run VALUES (?)", (_encode(run),))
        shutil.rmtree(self.folder / "files", ignore_errors=True)

    def finish(self, run: RunRecord) -> None:
        with self._transaction() as database:
            database.execute("UPDATE run SET data = ?", (_encode(run),))

    # --- exports

    def exports(self) -> dict[str, Export]:
        rows = self._rows("SELECT data FROM exports ORDER BY number")
        found = (msgspec.json.decode(data, type=Export) for (data,) in rows)
        return {export.key: export for export in found}

    def replace(self, exports: Sequence[Export]) -> None:
        """Replace all exports."""
        rows = [(export.key, number, _encode(export)) for number, export in enumerate(exports)]
        gone = set(self.exports()) - {export.key for export in exports}
        with self._transaction() as database:
            database.executemany("DELETE FROM exports WHERE key = ?", [(key,) for key in gone])
            database.executemany("REPLACE INTO exports VALUES (?, ?, ?)", rows)
        self.discard(*gone)

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[None]:
        """`save` and `publish` work inside this context."""
        try:
            connection = sqlite_file.connect(self._path, FORM)
        except (OSError, sqlite3.Error) as error:
            raise unusable(self.folder, error) from None
        self._writer = writer = LedgerWriter(connection, lambda error: unusable(self.folder, error))
        try:
            yield
        finally:
            self._writer = None
            await writer.close()

    def _write(self, operation: Callable[[sqlite3.Connection], None]) -> Awaitable[None]:
        assert self._writer is not None
        return self._writer.submit(operation)

    async def save(self, export: Export) -> None:
        await self._write(lambda database: _update(database, [export]))

    # --- outputs, and the port Knowledge

    def published(self) -> dict[str, PublishedOutput]:
        rows = self._rows("SELECT data FROM outputs")
        found = (msgspec.json.decode(data, type=PublishedOutput) for (data,) in rows)
        return {one.output: one for one in found}

    async def publish(self, published: PublishedOutput, exports: Sequence[Export]) -> None:
        row = (published.output, _encode(published))

        def write(database: sqlite3.Connection) -> None:
            _update(database, exports)
            database.execute("REPLACE INTO outputs VALUES (?, ?)", row)

        await self._write(write)

    @property
    def salt(self) -> bytes:
        return bytes(self._rows("SELECT salt FROM secret")[0][0])

    async def learn(self, learned: LearnedState) -> None:
        before = await self.learned()
        durations = {**before.durations, **learned.durations}
        row = _LearnedRow(list(durations.items()), {**before.budgets, **learned.budgets})
        with self._transaction() as database:
            database.execute("REPLACE INTO learned VALUES ('account', ?)", (_encode(row),))

    async def learned(self) -> LearnedState:
        rows = self._rows("SELECT data FROM learned WHERE name = 'account'")
        if not rows:
            return LearnedState()
        row = msgspec.json.decode(rows[0][0], type=_LearnedRow)
        return LearnedState(durations=dict(row.durations), budgets=row.budgets)

    # --- files

    def files(self, key: str) -> Path:
        return self.folder / "files" / key

    def discard(self, *keys: str) -> None:
        for key in keys:
            shutil.rmtree(self.files(key), ignore_errors=True)


def _update(database: sqlite3.Connection, exports: Iterable[Export]) -> None:
    rows = [(_encode(export), export.key) for export in exports]
    database.executemany("UPDATE exports SET data = ? WHERE key = ?", rows)


def unusable(folder: Path, error: Exception) -> SetupError:
    return SetupError(
        f"the checkpoint in {folder} cannot be used: {error}. Free disk space or give this user write permission, then "
        "run again; the run resumes"
    )
