"""Parquet, written by pyarrow."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyarrow import parquet

from bide.pipeline.rows.writers.previous_rows import with_columns

ROWS = 64 * 1024


class ParquetRows:
    """A Parquet file with one row group per table."""

    def __init__(self, path: Path, fields: Any) -> None:
        self._writer = parquet.ParquetWriter(path, fields)

    def write(self, table: Any) -> None:
        self._writer.write_table(table)

    def close(self) -> None:
        self._writer.close()

    def abandon(self) -> None:
        with contextlib.suppress(OSError):
            self._writer.close()


def read(path: Path, fields: Any) -> Iterator[Any]:
    with parquet.ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=ROWS):
            yield with_columns(batch, fields, path)
