"""Writers: batches of the result into a file of some format, and out of it again.

A writer is given a path that nobody reads yet. `rows_of` reads what a writer of the same format wrote, value for value.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from bide.pipeline.rows.target import Target


class RowWriter(Protocol):
    def write(self, table: Any) -> None:
        """Some more rows, as a pyarrow table; all have the same columns."""

    def close(self) -> None:
        """All rows are written."""

    def abandon(self) -> None:
        """Nothing of it is to be kept."""


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
    """Batches with the columns of `fields`, of a file that was published before."""
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
