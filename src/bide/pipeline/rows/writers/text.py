"""CSV and JSON lines. Timestamps are RFC 3339 in UTC; decimals keep their decimal places.

In CSV, null is an empty cell and an empty text is two quotes. In JSON, a decimal is text, so that readers do not turn it
into a float.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv

from bide.pipeline.rows.conversion import INSTANT
from bide.pipeline.rows.writers.previous_rows import with_columns

_LINES = 1 << 20


def instants(column: Any) -> Any:
    """Timestamps as text, without a fraction of zero."""
    texts = pc.strftime(column, format="%Y-%m-%dT%H:%M:%SZ")
    return pc.replace_substring(texts, ".000000Z", "Z")


def _written(table: Any, *, decimals: bool) -> Any:
    """The table with text in the columns whose type the format lacks."""
    for index, field in enumerate(table.schema):
        if field.type == INSTANT:
            table = table.set_column(index, field.name, instants(table.column(index)))
        elif decimals and pa.types.is_decimal(field.type):
            table = table.set_column(index, field.name, table.column(index).cast(pa.string()))
    return table


class CsvRows:
    def __init__(self, path: Path, fields: Any) -> None:
        shown = _written(fields.empty_table(), decimals=False).schema
        self._writer = arrow_csv.CSVWriter(path, shown)

    def write(self, table: Any) -> None:
        self._writer.write_table(_written(table, decimals=False))

    def close(self) -> None:
        self._writer.close()

    def abandon(self) -> None:
        with contextlib.suppress(OSError):
            self._writer.close()


class JsonRows:
    def __init__(self, path: Path, fields: Any) -> None:
        self._file = path.open("wb")
        self._encoder = msgspec.json.Encoder()

    def write(self, table: Any) -> None:
        rows = _written(table, decimals=True).to_pylist()
        self._file.write(b"".join(self._encoder.encode(row) + b"\n" for row in rows))

    def close(self) -> None:
        self._file.close()

    def abandon(self) -> None:
        with contextlib.suppress(OSError):
            self._file.close()


def read_csv(path: Path, fields: Any) -> Iterator[Any]:
    types = {field.name: pa.string() if field.type == INSTANT else field.type for field in fields}
    reader = arrow_csv.open_csv(
        path,
        parse_options=arrow_csv.ParseOptions(newlines_in_values=True),
        convert_options=arrow_csv.ConvertOptions(
            column_types=types,
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    for batch in reader:
        yield with_columns(_typed(batch, fields), fields, path)


def read_jsonl(path: Path, fields: Any) -> Iterator[Any]:
    decoder = msgspec.json.Decoder(dict[str, Any])
    with path.open("rb") as file:
        while lines := file.readlines(_LINES):
            rows = [decoder.decode(line) for line in lines]
            names = dict.fromkeys(name for row in rows for name in row)
            arrays = {name: _values([row.get(name) for row in rows], name, fields) for name in names}
            yield with_columns(_typed(pa.RecordBatch.from_pydict(arrays), fields), fields, path)


def _values(values: list[Any], name: str, fields: Any) -> Any:
    kind = fields.field(name).type if name in fields.names else None
    plain = kind is not None and (
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    )
    return pa.array(values, kind if plain else pa.string())


def _typed(batch: Any, fields: Any) -> Any:
    """The batch with the types of `fields` in the columns that the file has as text."""
    for field in fields:
        index = batch.schema.get_field_index(field.name)
        if index >= 0 and batch.column(index).type != field.type:
            batch = batch.set_column(index, field.name, batch.column(index).cast(field.type))
    return batch
