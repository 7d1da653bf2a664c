"""From downloaded files to one published file of clean rows: read, converted, deduplicated, written, all in a stream.

1. Nothing is visible until all is good; what was published before stays as it was on any failure.
2. The same sources give the same bytes.
3. Memory does not grow with the files.

pyarrow is only loaded when something is normalized.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from bide.core.errors import SetupError
from bide.pipeline.plan.schema import Schema
from bide.pipeline.rows.report import (
    BadRow,
    BadRows,
    BadRowSummary,
    BadSource,
    NormalizationReport,
    SourceFile,
    UnwritableTarget,
)
from bide.pipeline.rows.target import Target

__all__ = [
    "BadRowSummary",
    "BadRow",
    "BadRows",
    "BadSource",
    "NormalizationReport",
    "SourceFile",
    "UnwritableTarget",
    "normalize",
]


def normalize(
    sources: Sequence[SourceFile],
    schema: Schema,
    target: Target,
    *,
    previous: Path | None = None,
    guard: Callable[[int], None] = lambda rows: None,
) -> NormalizationReport:
    """Publishes the rows of all sources at the target.

    `previous` is an earlier published file of the same schema and format; its rows are kept unless a new row has the same
    key. `guard` is called with the number of rows before they are published; an exception from it prevents that.
    BadSource: a file cannot be read. BadRows: rows do not fit and are to be refused. Unwritable: the target.
    """
    try:
        from bide.pipeline.rows import work
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "pyarrow":
            raise
        raise SetupError("normalizing needs pyarrow: pip install 'bide[pipeline]'") from None
    return work.normalize(sources, schema, target, previous, guard)
