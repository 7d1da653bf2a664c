"""Readers: the files of a source are read as chunks of raw columns, whatever their format is."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from bide.pipeline.plan.schema import Schema, escaped
from bide.pipeline.rows.report import SourceFile


@dataclass(frozen=True)
class BrokenRecord:
    """A record that cannot be parsed."""

    row: int
    reason: str
    text: str


@dataclass(frozen=True)
class Chunk:
    """Some records of a source, by column.

    A column is a pyarrow array of bytes (CSV) or a list of JSON values. `columns` lacks those that the source does not have.
    """

    source: str
    columns: Mapping[str, Any]
    rows: int
    first: int  # the number of the first record, counted from 1
    skipped: Sequence[int] = ()  # the numbers of broken records among the others
    broken: Sequence[BrokenRecord] = ()
    constants: Mapping[str, str] = field(default_factory=dict)
    is_text: bool = False  # CSV, in which null words of the schema are null already

    @cached_property
    def _gaps(self) -> list[int]:
        """For each broken record, the index of the record that follows it."""
        return [number - self.first - before for before, number in enumerate(self.skipped)]

    def number(self, index: int) -> int:
        """The number of the record at an index."""
        return self.first + index + bisect_right(self._gaps, index)


@dataclass(frozen=True)
class ColumnPaths:
    """The paths of the columns that are read from a source."""

    schema: Schema
    new: tuple[str, ...] = ()  # columns that the schema does not name, and keeps

    @property
    def paths(self) -> list[str]:
        known = (path for column in self.schema.columns for path in column.alternatives)
        return list(dict.fromkeys((*known, *map(escaped, self.new))))


def chunks(source: SourceFile, columns: ColumnPaths) -> Iterator[Chunk]:
    """All records of a source, in order."""
    from bide.pipeline.rows.readers import archive, csv, json

    constants = {escaped(name): value for name, value in source.constants.items()}
    for name, stream in archive.files(source, columns.schema.limits):
        format = source.format if source.format != "auto" else json.recognise(stream, source.records)
        if format == "csv":
            yield from csv.chunks(stream, name, columns, constants)
        else:
            records = source.records if format == "json" else None
            yield from json.chunks(stream, name, columns, records, constants)
