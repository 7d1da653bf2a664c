"""Readers: from the files of a source to chunks of raw columns, whatever the files are written in."""

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
    """A record that cannot even be taken apart."""

    row: int
    reason: str
    text: str


@dataclass(frozen=True)
class Chunk:
    """Some records of a source, column by column.

    A column is a pyarrow array of bytes (CSV) or a list of JSON values; one that the source lacks is not there.
    """

    source: str
    columns: Mapping[str, Any]
    rows: int
    first: int  # the number of its first record, from 1
    skipped: Sequence[int] = ()  # numbers of records between its own that are broken
    broken: Sequence[BrokenRecord] = ()
    constants: Mapping[str, str] = field(default_factory=dict)
    is_text: bool = False  # null words of the schema are nulls already

    @cached_property
    def _gaps(self) -> list[int]:
        """Before which of its own records each broken one is."""
        return [number - self.first - before for before, number in enumerate(self.skipped)]

    def number(self, index: int) -> int:
        """The number of the record at an index."""
        return self.first + index + bisect_right(self._gaps, index)


@dataclass(frozen=True)
class ColumnPaths:
    """What of the sources is used: paths to columns, in the order in which they are sought."""

    schema: Schema
    kept: tuple[str, ...] = ()  # new columns that are kept

    @property
    def paths(self) -> list[str]:
        known = (path for column in self.schema.columns for path in column.alternatives)
        return list(dict.fromkeys((*known, *map(escaped, self.kept))))


def chunks(source: SourceFile, wanted: ColumnPaths) -> Iterator[Chunk]:
    """All records of a source, in order."""
    from bide.pipeline.rows.readers import archive, csv, json

    constants = {escaped(name): value for name, value in source.constants.items()}
    for name, stream in archive.files(source, wanted.schema.limits):
        format = source.format if source.format != "auto" else json.recognise(stream, source.records)
        if format == "csv":
            yield from csv.chunks(stream, name, wanted, constants)
        else:
            records = source.records if format == "json" else None
            yield from json.chunks(stream, name, wanted, records, constants)
