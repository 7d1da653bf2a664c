"""One normalization: check the columns, read, convert, deduplicate, write, publish."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from bide.core.errors import SetupError
from bide.pipeline.plan.schema import Schema, check, escaped
from bide.pipeline.rows import readers
from bide.pipeline.rows.bad_rows import BadRowLog
from bide.pipeline.rows.column_check import ColumnCheck, check_columns
from bide.pipeline.rows.conversion import ChunkConverter, OutputLayout
from bide.pipeline.rows.deduplication import Deduplicator
from bide.pipeline.rows.prefetch import prefetched
from bide.pipeline.rows.report import BadSource, NormalizationReport, SourceFile
from bide.pipeline.rows.target import Target, TargetFiles, target_files
from bide.pipeline.rows.writers import rows_of, writer

GROUP_ROWS = 64 * 1024
GROUP_BYTES = 32 << 20
FORMATS = ("auto", "csv", "json", "jsonl")


def normalize(
    sources: Sequence[SourceFile],
    schema: Schema,
    target: Target,
    previous: Path | None,
    guard: Callable[[int], None],
) -> NormalizationReport:
    _check(sources, schema, previous)
    checked = check_columns(sources, schema)
    layout = OutputLayout(schema, _constants(sources, schema), _new_columns(checked, schema))
    with target_files(target) as files:
        normalization = Normalization(layout, files, _size(sources, previous))
        try:
            normalization.read(sources, previous)
            guard(normalization.rows)
            return normalization.publish(checked)
        finally:
            normalization.close()


def _check(sources: Sequence[SourceFile], schema: Schema, previous: Path | None) -> None:
    try:
        check(schema)
    except ValueError as error:
        raise SetupError(f"the schema is not valid: {error}") from None
    if previous is not None and not schema.key:
        raise SetupError(
            "`key` is missing in the schema: without it, a second run would add the rows of the earlier file again"
        )
    for source in sources:
        if source.format not in FORMATS:
            raise BadSource(
                source.name, f"{source.format!r} is not a format. Use one of {', '.join(FORMATS)}"
            )


def _size(sources: Sequence[SourceFile], previous: Path | None) -> int:
    paths = [source.path for source in sources] + ([previous] if previous is not None else [])
    return sum(path.stat().st_size for path in paths if path.exists())


def _constants(sources: Sequence[SourceFile], schema: Schema) -> tuple[str, ...]:
    """The constants that the schema does not name. The output has them as text."""
    used = {path for column in schema.columns for path in column.alternatives}
    found = dict.fromkeys(name for source in sources for name in source.constants)
    more = tuple(name for name in found if not used & {name, escaped(name)})
    for name in more:
        if any(column.name == name for column in schema.columns):
            raise SetupError(
                f"the constant {name!r} has the name of a column whose `from` names another source. Rename one of them"
            )
    return more


def _new_columns(checked: ColumnCheck, schema: Schema) -> tuple[str, ...]:
    names = {column.name for column in schema.columns}
    return tuple(n for n in checked.new if n not in names) if schema.new_columns == "keep" else ()


class Normalization:
    """The state of one normalization. `size` is the number of bytes that it reads."""

    def __init__(self, layout: OutputLayout, files: TargetFiles, size: int) -> None:
        self._layout = layout
        self._target = files.target
        self._files = files
        self._bad_rows = BadRowLog(layout.schema, files.target, files.dead_letters)
        self._converter = ChunkConverter(layout, self._bad_rows)
        self._fields = layout.fields
        self._writer: Any = None
        self._deduplicator = (
            Deduplicator(files.spill, layout.schema, self._fields, size) if layout.schema.key else None
        )
        self._read = self.rows = 0
        self._cursor: Any = None

    def read(self, sources: Sequence[SourceFile], previous: Path | None) -> None:
        """Read all rows and write those of the output."""
        if previous is not None:
            assert self._deduplicator is not None
            earlier = Target(previous, self._target.format, self._target.table)
            self._bad_rows.copy_earlier(earlier.dead_letters)
            for table in _grouped(self._earlier(previous), self._fields):
                self._deduplicator.add(table, earlier=True)
        with prefetched(self._batches(sources)) as batches:
            for table in _grouped(batches, self._fields):
                if self._deduplicator is not None:
                    self._deduplicator.add(table, earlier=False)
                else:
                    self._write(table)
        if self._deduplicator is not None:
            self._deduplicator.close()
            with prefetched(self._deduplicator.kept()) as batches:
                for table in _grouped(batches, self._fields):
                    self._write(table)

    def _earlier(self, previous: Path) -> Iterator[Any]:
        try:
            yield from rows_of(self._target, previous, self._fields)
        except (OSError, sqlite3.Error, pa.ArrowException, msgspec.MsgspecError) as error:
            raise SetupError(
                f"{previous} cannot be read as {self._target.format}: {error}. Move it away to publish a new file"
            ) from None

    def _batches(self, sources: Sequence[SourceFile]) -> Iterator[Any]:
        paths = readers.ColumnPaths(self._layout.schema, self._layout.new)
        for source in sources:
            for chunk in readers.chunks(source, paths):
                self._read += chunk.rows + len(chunk.broken)
                yield self._converter(chunk)

    def _write(self, table: Any) -> None:
        if self._writer is None:
            self._writer = writer(self._target, self._files.rows, self._fields)
        cursor = self._layout.schema.cursor
        if cursor is not None:
            highest = pc.max(table.column(cursor)).as_py()
            if highest is not None and (self._cursor is None or highest > self._cursor):
                self._cursor = highest
        self.rows += table.num_rows
        self._writer.write(table)

    def publish(self, checked: ColumnCheck) -> NormalizationReport:
        if self._writer is None:  # there are no rows: the file has columns only
            self._write(self._fields.empty_table())
        self._bad_rows.close()
        self._writer.close()
        self._writer = None
        self._files.publish(dead_letters=self._bad_rows.written > 0)
        return NormalizationReport(
            path=self._target.path,
            bytes=self._target.path.stat().st_size,
            rows=self.rows,
            read=self._read,
            duplicates=self._deduplicator.duplicates if self._deduplicator is not None else 0,
            bad=self._bad_rows.summary(),
            columns_new=checked.new,
            columns_missing=checked.missing,
            cursor=_as_text(self._cursor),
        )

    def close(self) -> None:
        if self._writer is not None:
            self._writer.abandon()
        self._bad_rows.close()


def _as_text(cursor: Any) -> str | None:
    if cursor is None:
        return None
    text = cursor.isoformat() if hasattr(cursor, "isoformat") else str(cursor)
    return str(text).replace("+00:00", "Z")


def _grouped(batches: Iterable[Any], fields: Any) -> Iterator[Any]:
    """Tables of similar size, so that the row groups of Parquet are neither tiny nor huge."""
    held: list[Any] = []
    rows = size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        held.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= GROUP_ROWS or size >= GROUP_BYTES:
            yield pa.Table.from_batches(held, fields)
            held, rows, size = [], 0, 0
    if held:
        yield pa.Table.from_batches(held, fields)
