"""Rows: downloaded files are read, converted, deduplicated, written and published as one file, in a stream.

1. Readers see nothing before all rows are good. After a failure the published output is unchanged.
2. The same sources give the same bytes.
3. Memory use does not grow with the size of the files.

pyarrow is loaded by the first normalization.
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
    "BadRow",
    "BadRowSummary",
    "BadRows",
    "BadSource",
    "NormalizationReport",
    "SourceFile",
    "Target",
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
    """Publish the rows of all sources at the target.

    `previous` is a file that was published with the same schema and format. Its rows stay unless a new row has the same key.
    `guard` is called with the number of rows before they are published. If it raises, nothing is published.

    BadSource: a file cannot be read. BadRows: the schema refuses bad rows. UnwritableTarget: the target cannot be written.
    """
    try:
        from bide.pipeline.rows import normalization
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "pyarrow":
            raise
        raise SetupError.not_installed("Normalizing needs pyarrow", "pipeline") from None
    return normalization.normalize(sources, schema, target, previous, guard)
