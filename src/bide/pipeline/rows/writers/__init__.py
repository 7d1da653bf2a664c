"""Writers of rows, one per format, and readers of what they wrote.

A writer writes to a path that no reader opens yet. `rows_of` returns exactly the values that a writer of the format wrote.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from bide.pipeline.rows.target import Target


class RowWriter(Protocol):
    def write(self, table: Any) -> None:
        """Write a pyarrow table. All tables have the same columns."""

    def close(self) -> None:
        """Called after the last row."""

    def abandon(self) -> None:
        """Called instead of `close` after an error."""


def writer(target: Target, path: Path, fields: Any) -> RowWriter:
    if target.format == "parquet":
        from bide.pipeline.rows.writers.parquet import ParquetRows

        return ParquetRows(path, fields)
    if target.format == "csv":
        from bide.pipeline.rows.writers.text import CsvRows

        return CsvRows(path, fields)
    if target.format == "jsonl":
        from bide.pipeline.rows.writers.text import JsonRows

        return JsonRows(path, fields)
    from bide.pipeline.rows.writers.sqlite import SqliteRows

    assert target.table is not None
    return SqliteRows(path, target.table, fields)


def rows_of(target: Target, path: Path, fields: Any) -> Iterator[Any]:
    """The rows of a published file, in batches with the columns of `fields`."""
    if target.format == "parquet":
        from bide.pipeline.rows.writers.parquet import read

        return read(path, fields)
    if target.format == "csv":
        from bide.pipeline.rows.writers.text import read_csv

        return read_csv(path, fields)
    if target.format == "jsonl":
        from bide.pipeline.rows.writers.text import read_jsonl

        return read_jsonl(path, fields)
    from bide.pipeline.rows.writers.sqlite import read as read_table

    assert target.table is not None
    return read_table(path, target.table, fields)
