"""A table of a SQLite file. It is replaced in one transaction, so readers see the old table or the new one."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from bide.pipeline.rows.conversion import INSTANT
from bide.pipeline.rows.writers.previous_rows import with_columns
from bide.pipeline.rows.writers.text import instants

ROWS = 20_000


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _affinity(kind: Any) -> str:
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return "INTEGER"
    return "REAL" if pa.types.is_floating(kind) else "TEXT"


class SqliteRows:
    """Writes in one transaction, which `close` commits."""

    def __init__(self, path: Path, table: str, fields: Any) -> None:
        self._connection = sqlite3.connect(
            path, isolation_level=None, timeout=30, check_same_thread=False
        )
        self._connection.execute("PRAGMA synchronous=FULL")
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.execute(f"DROP TABLE IF EXISTS {_quoted(table)}")
        columns = ", ".join(f"{_quoted(field.name)} {_affinity(field.type)}" for field in fields)
        self._connection.execute(f"CREATE TABLE {_quoted(table)} ({columns})")
        places = ", ".join("?" * len(fields))
        self._insert = f"INSERT INTO {_quoted(table)} VALUES ({places})"

    def write(self, table: Any) -> None:
        for batch in table.to_batches(max_chunksize=ROWS):
            columns = [_stored(column).to_pylist() for column in batch.columns]
            self._connection.executemany(self._insert, zip(*columns, strict=True))

    def close(self) -> None:
        self._connection.execute("COMMIT")
        self._connection.close()

    def abandon(self) -> None:
        self._connection.close()  # rolls back


def _stored(column: Any) -> Any:
    if column.type == INSTANT:
        return instants(column)
    if pa.types.is_boolean(column.type):
        return column.cast(pa.int64())
    if pa.types.is_date(column.type) or pa.types.is_decimal(column.type):
        return column.cast(pa.string())
    return column


def read(path: Path, table: str, fields: Any) -> Iterator[Any]:
    """Use a connection of its own, because the file may be the one that is written to."""
    connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
    try:
        cursor = connection.execute(f"SELECT * FROM {_quoted(table)}")
        names = [column[0] for column in cursor.description]
        while rows := cursor.fetchmany(ROWS):
            arrays = {
                name: _read(
                    list(values), fields.field(name).type if name in fields.names else pa.string()
                )
                for name, values in zip(names, zip(*rows, strict=True), strict=True)
            }
            yield with_columns(pa.RecordBatch.from_pydict(arrays), fields, path)
    finally:
        connection.close()


def _read(values: list[Any], kind: Any) -> Any:
    if pa.types.is_boolean(kind):
        return pa.array(values, pa.int64()).cast(kind)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return pa.array(values, kind)
    return pa.array(values, pa.string()).cast(kind)
