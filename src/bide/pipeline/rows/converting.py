"""Chunks of raw columns into batches of the result, and what does not fit into the hands of BadRowKeeper.

1. A row is in the result as a whole or not at all.
2. What is told of a row that does not fit holds no value of a personal column, and none that the schema does not name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import pyarrow as pa

from bide.pipeline.plan.schema import Column, Schema, escaped, hash_key
from bide.pipeline.rows.columns import ColumnConverter, Misfits, arrow_type
from bide.pipeline.rows.personal import MASK, PersonalHashes, masked
from bide.pipeline.rows.readers import Chunk
from bide.pipeline.rows.report import BadRow

LONGEST_VALUE = 80
Raw = (
    Mapping[str, Any] | str | None
)  # a row by the names of the schema, or the text of one that is no row
REQUIRED = "a value is required"


class Keeper(Protocol):
    """Who is told of rows that do not fit."""

    def take(self, bad: list[BadRow], raw: Callable[[], Raw], *, left_out: bool) -> None: ...


@dataclass(frozen=True)
class OutputLayout:
    """The columns of the result: those of the schema, then constants that it does not name, then new ones."""

    schema: Schema
    constants: tuple[str, ...] = ()
    new: tuple[str, ...] = ()

    @property
    def columns(self) -> list[Column]:
        more = [Column(name=name, sources=[escaped(name)]) for name in (*self.constants, *self.new)]
        return [*self.schema.columns, *more]

    @property
    def fields(self) -> Any:
        return pa.schema(
            [
                pa.field(column.name, pa.string() if column.personal else arrow_type(column))
                for column in self.columns
                if column.personal != "drop"
            ]
        )


class ChunkConverter:
    """Chunks into batches."""

    def __init__(self, layout: OutputLayout, keeper: Keeper) -> None:
        schema = layout.schema
        self._columns = layout.columns
        self._fields = layout.fields
        self._conversions = {c.name: ColumnConverter(c, schema) for c in self._columns}
        self._needed = {c.name for c in self._columns if c.required} | set(schema.key)
        self._policy = schema.bad_rows
        self._keeper = keeper
        key = hash_key(schema)
        self._hash = PersonalHashes(key) if key is not None else None
        self._has_personal = any(column.personal for column in self._columns)

    def __call__(self, chunk: Chunk) -> Any:
        """A batch of the rows that fit."""
        for broken in chunk.broken:
            bad = [BadRow(chunk.source, broken.row, None, broken.reason)]
            text = None if self._has_personal else broken.text
            self._keeper.take(bad, partial(_given, text), left_out=True)
        arrays: dict[str, Any] = {}
        misfits: dict[str, Misfits] = {}
        for column in self._columns:
            array, why = self._converted(column, chunk)
            if column.name in self._needed and array.null_count:
                why = dict.fromkeys(_nulls(array), REQUIRED) | why
            if why:
                misfits[column.name] = why
            arrays[column.name] = array
        batch = self._batch(arrays)
        return self._without(batch, chunk, misfits) if misfits else batch

    def _converted(self, column: Column, chunk: Chunk) -> tuple[Any, Misfits]:
        for path in column.alternatives:
            if path in chunk.constants:
                array, why = self._conversions[column.name]([chunk.constants[path]], False)
                if why:
                    return pa.nulls(chunk.rows, array.type), dict.fromkeys(range(chunk.rows), why[0])
                return pa.repeat(array[0], chunk.rows), {}
        present = [chunk.columns[path] for path in column.alternatives if path in chunk.columns]
        if not present:
            return pa.nulls(chunk.rows, self._conversions[column.name].type), {}
        if chunk.is_text or len(present) == 1:
            return self._conversions[column.name](present[0], chunk.is_text)
        first = [
            next((v for v in values if v is not None), None) for values in zip(*present, strict=True)
        ]
        return self._conversions[column.name](first, False)

    def _batch(self, arrays: Mapping[str, Any]) -> Any:
        out = []
        for column in self._columns:
            array = arrays[column.name]
            if column.personal == "hash":
                assert self._hash is not None
                array = self._hash(array.cast(pa.string()))
            elif column.personal == "mask":
                array = masked(array)
            if column.personal != "drop":
                out.append(array)
        return pa.RecordBatch.from_arrays(out, schema=self._fields)

    def _without(self, batch: Any, chunk: Chunk, misfits: Mapping[str, Misfits]) -> Any:
        """The batch without the rows that are left out, after they were told."""
        by_row: dict[int, list[tuple[str, str]]] = {}
        for name, why in misfits.items():
            for index, reason in why.items():
                by_row.setdefault(index, []).append((name, reason))
        leave_out = self._policy != "null"
        out: set[int] = set()
        for index in sorted(by_row):
            bad = [
                BadRow(chunk.source, chunk.number(index), name, reason, self._shown(name, chunk, index))
                for name, reason in by_row[index]
            ]
            gone = leave_out or any(name in self._needed for name, _ in by_row[index])
            if gone:
                out.add(index)
            self._keeper.take(bad, partial(self._raw, chunk, index), left_out=gone)
        if not out:
            return batch
        return batch.filter(pa.array([index not in out for index in range(batch.num_rows)]))

    def _shown(self, name: str, chunk: Chunk, index: int) -> str | None:
        column = next(c for c in self._columns if c.name == name)
        value = _raw_value(column, chunk, index)
        return None if column.personal or value is None else str(value)[:LONGEST_VALUE]

    def _raw(self, chunk: Chunk, index: int) -> Raw:
        """A row as the source has it, by the names of the schema."""
        raw: dict[str, Any] = {}
        for column in self._columns:
            value = _raw_value(column, chunk, index)
            raw[column.name] = MASK if column.personal and value is not None else value
        return raw


def _given(raw: Raw) -> Raw:
    return raw


def _nulls(array: Any) -> Iterable[int]:
    return (index for index, valid in enumerate(array.is_valid().to_pylist()) if not valid)


def _raw_value(column: Column, chunk: Chunk, index: int) -> Any:
    for path in column.alternatives:
        if path in chunk.constants:
            return chunk.constants[path]
        if path not in chunk.columns:
            continue
        value = chunk.columns[path][index]
        if chunk.is_text:
            value = value.as_py()
            return value if value is None else value.decode(errors="replace")
        if value is not None:
            return value
    return None
