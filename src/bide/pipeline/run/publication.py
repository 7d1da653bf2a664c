"""Publication: normalizes the files of all exports of one output, and records it in the checkpoint.

The checkpoint says PUBLISHED after the file has its name. After a crash in between, the same rows are published again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from bide.core.errors import BideError, SetupError
from bide.pipeline.plan.form import OutputTable
from bide.pipeline.plan.loader import Dataset, read_max_drop
from bide.pipeline.plan.schema import hash_key
from bide.pipeline.rows import NormalizationReport, SourceFile, normalize
from bide.pipeline.rows.report import TooFewRows
from bide.pipeline.rows.target import Target
from bide.pipeline.run.checkpoint import Checkpoint
from bide.pipeline.run.exports import PlannedExport, PublishedOutput, RunRecord, fingerprint
from bide.pipeline.run.phase import Export, Phase, PhaseEvent, advance

Stage = Literal["normalizing", "published", "unchanged", "refused", "failed"]


@dataclass(frozen=True)
class OutputUpdate:
    """A change of one output."""

    output: str
    path: Path
    dataset: str
    stage: Stage
    report: dict[str, Any] | None = None
    missing: tuple[str, ...] = ()  # exports that it lacks
    error: str | None = None

    @property
    def good(self) -> bool:
        return self.stage in ("published", "unchanged") and not self.missing


@dataclass(frozen=True)
class OutputGroup:
    """The exports of one output, in the order of the pipeline."""

    output: str
    path: Path
    dataset: Dataset
    planned: tuple[PlannedExport, ...]

    def update(self, stage: Stage, **more: Any) -> OutputUpdate:
        return OutputUpdate(self.output, self.path, self.dataset.name, stage, **more)


def unchanged(group: OutputGroup, exports: Sequence[Export], before: PublishedOutput | None) -> bool:
    """Whether this run would publish the same output again."""
    return (
        before is not None
        and all(export.phase is Phase.PUBLISHED for export in exports)
        and before.fingerprint == fingerprint(group.dataset, exports)
        and group.path.exists()
    )


def check(datasets: Sequence[Dataset]) -> None:
    """SetupError if a package or the key for hashes is missing. Otherwise it would be noticed after all exports."""
    if find_spec("pyarrow") is None:
        raise SetupError.not_installed("Pipelines need pyarrow", "pipeline")
    for dataset in datasets:
        hash_key(dataset.schema)


def preload() -> None:
    """Import the normalization while the API works. An error appears when it is used."""
    with suppress(Exception):
        import_module("bide.pipeline.rows.normalization")


async def publish(
    checkpoint: Checkpoint,
    run: RunRecord,
    group: OutputGroup,
    exports: Sequence[Export],
    *,
    accept_drop: bool = False,
) -> OutputUpdate:
    """Publish the resolved ones of `exports`, which are in the order of the group."""
    included = [(w, e) for w, e in zip(group.planned, exports, strict=True) if e.phase is Phase.RESOLVED]
    missing = tuple(e.name for e in exports if e.phase is not Phase.RESOLVED)
    before = checkpoint.published().get(group.output)
    table = group.dataset.table
    target = Target(group.path, group.dataset.format, table.output.table)
    previous = group.path if table.since is not None and group.path.exists() else None
    sources = [source for w, e in included for source in _sources(checkpoint, w, e)]
    try:
        group.path.parent.mkdir(parents=True, exist_ok=True)
        report = await asyncio.to_thread(
            normalize,
            sources,
            group.dataset.schema,
            target,
            previous=previous,
            guard=lambda rows: None if accept_drop else _check_rows(rows, table.output, before),
        )
    except TooFewRows as error:
        return group.update("refused", missing=missing, error=str(error))
    except (BideError, OSError, ValueError) as error:
        reason = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
        return group.update("failed", missing=missing, error=reason)
    published = _published(run, group, [e for _, e in included], missing, before, report)
    done = [advance(e, PhaseEvent.PUBLISHED) for _, e in included]
    await checkpoint.publish(published, done)
    return group.update("published", report=published.report, missing=missing)


def _check_rows(rows: int, output: OutputTable, before: PublishedOutput | None) -> None:
    if rows < output.minimum_rows:
        wrong = f"it would have {rows} rows, but `minimum_rows` is {output.minimum_rows}"
    elif _dropped(rows, output, before):
        assert before is not None
        published = before.report["rows"]
        wrong = (
            f"it would have {rows} rows, {100 * (1 - rows / published):.3g}% fewer than the {published} rows published "
            f"before, but `max_drop` is {output.max_drop}"
        )
    else:
        return
    raise TooFewRows(
        f"{wrong}. The published output is unchanged. If the rows are right, publish them with --accept-drop"
    )


def _dropped(rows: int, output: OutputTable, before: PublishedOutput | None) -> bool:
    published = before.report.get("rows", 0) if before is not None else 0
    most = read_max_drop(output.max_drop)
    return most is not None and published - rows > most * published + 1e-9


def _sources(checkpoint: Checkpoint, planned: PlannedExport, export: Export) -> list[SourceFile]:
    result = planned.dataset.table.result
    folder = checkpoint.files(export.key)
    return [
        SourceFile(folder / file.name, export.name, result.format, result.records, planned.columns)
        for file in export.files
    ]


def _published(
    run: RunRecord,
    group: OutputGroup,
    included: Sequence[Export],
    missing: Sequence[str],
    before: PublishedOutput | None,
    report: NormalizationReport,
) -> PublishedOutput:
    """The cursor stays if exports are missing, so that the next run requests them again."""
    cursor = report.cursor
    began: float | None = run.began
    if missing:
        cursor, began = None, before.began if before is not None else None
    if cursor is None and before is not None:
        cursor = before.cursor
    return PublishedOutput(
        output=group.output,
        fingerprint=fingerprint(group.dataset, included),
        at=run.began,
        began=began,
        cursor=None if cursor is None else str(cursor),
        report=_stored(report),
    )


def _stored(report: NormalizationReport) -> dict[str, Any]:
    """The part of a report that is stored and shown: numbers and names, no values."""
    return {
        "rows": report.rows,
        "read": report.read,
        "duplicates": report.duplicates,
        "bad": report.bad.rows,
        "badFile": str(report.bad.file) if report.bad.file is not None else None,
        "columnsNew": list(report.columns_new),
        "columnsMissing": list(report.columns_missing),
        "bytes": report.bytes,
    }
