"""Rows of an earlier file beside rows of today: the same columns in the same order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from bide.core.errors import SetupError


def fitted(batch: Any, fields: Any, path: Path) -> Any:
    """A batch of earlier rows with the columns of today: a new one is null there, a changed one is an error."""
    arrays = []
    for name in batch.schema.names:
        if name not in fields.names:
            raise SetupError(
                f"{path} has a column {name!r} that the schema has no more: move the file away to begin anew"
            )
    for field in fields:
        index = batch.schema.get_field_index(field.name)
        if index < 0:
            arrays.append(pa.nulls(batch.num_rows, field.type))
        elif batch.column(index).type != field.type:
            raise SetupError(
                f"{path} has {field.name!r} as {batch.column(index).type} and not as {field.type}: "
                "move the file away to begin anew"
            )
        else:
            arrays.append(batch.column(index))
    return pa.RecordBatch.from_arrays(arrays, schema=fields)
