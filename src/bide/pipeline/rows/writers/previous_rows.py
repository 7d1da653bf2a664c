"""Rows of a published file get the columns of the current schema, in the same order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from bide.core.errors import SetupError


def with_columns(batch: Any, fields: Any, path: Path) -> Any:
    """A new column is null in earlier rows. A removed column, or one of another type, is a SetupError."""
    arrays = []
    for name in batch.schema.names:
        if name not in fields.names:
            raise SetupError(
                f"{path} has a column {name!r} that the schema no longer has. Move the file away to publish a new one"
            )
    for field in fields:
        index = batch.schema.get_field_index(field.name)
        if index < 0:
            arrays.append(pa.nulls(batch.num_rows, field.type))
        elif batch.column(index).type != field.type:
            raise SetupError(
                f"{path} has the column {field.name!r} as {batch.column(index).type}, but the schema has {field.type}. "
                "Move the file away to publish a new one"
            )
        else:
            arrays.append(batch.column(index))
    return pa.RecordBatch.from_arrays(arrays, schema=fields)
