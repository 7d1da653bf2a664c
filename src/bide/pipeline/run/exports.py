"""The exports of a run: one for each combination of the values of a dataset.

1. They are in the order of the file, so that the output does not depend on which export ended first.
2. A value that a list repeats is exported once.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import msgspec

from bide.client.apis.templates import MissingValue, fill_body
from bide.client.apis.values import instant
from bide.core.clock import render_instant
from bide.core.errors import SetupError
from bide.pipeline.plan.form import SinceTable
from bide.pipeline.plan.loader import Dataset, PipelinePlan
from bide.pipeline.run.phase import Export

log = logging.getLogger("bide.pipeline")
Values = dict[str, str | int]
GUARDS = ("minimum_rows", "max_drop")  # they decide whether an output is published, not what it has


class RunRecord(msgspec.Struct, kw_only=True):
    """One run. Its values are fixed at the start and stay the same after a crash."""

    id: str
    period: str
    began: float  # epoch seconds
    scheduled: float | None = None  # the scheduled time, in epoch seconds
    finished: float | None = None
    # The values that the API listed, by dataset and name.
    listed: dict[str, dict[str, list[str | int]]] = {}
    since: dict[str, str | None] = {}  # by output


class PublishedOutput(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The last publication of an output."""

    output: str
    fingerprint: str  # of its exports, schema and format
    at: float
    began: float | None  # the start of its run; None if exports have been missing from the beginning
    cursor: str | None = None
    report: dict[str, Any] = {}


@dataclass(frozen=True)
class PlannedExport:
    """One export with its submission, its constant columns and the path of its output."""

    export: Export
    dataset: Dataset
    kind: str
    input: Any
    columns: dict[str, str]
    path: Path


def planned_exports(plan: PipelinePlan, run: RunRecord) -> list[PlannedExport]:
    """SetupError if a combination has no valid path."""
    found: dict[str, PlannedExport] = {}
    for dataset in plan.datasets:
        for values in combinations(dataset, run.listed.get(dataset.name, {})):
            one = _planned(plan, dataset, values, run)
            if one.export.key in found:
                log.warning("%s is listed twice; it is exported once", one.export.name)
            found.setdefault(one.export.key, one)
    return list(found.values())


def combinations(dataset: Dataset, listed: Mapping[str, Sequence[str | int]]) -> Iterator[Values]:
    lists = []
    for name, values in dataset.values.items():
        lists.append(values if isinstance(values, list) else listed.get(name, ()))
    for chosen in product(*lists):
        yield dict(zip(dataset.values, chosen, strict=True))


def outputs(plan: PipelinePlan, run: RunRecord) -> dict[str, Dataset]:
    """The outputs of the run, by their names in the checkpoint."""
    return {
        output_of(plan, dataset, values, run)[0]: dataset
        for dataset in plan.datasets
        for values in combinations(dataset, run.listed.get(dataset.name, {}))
    }


def output_of(plan: PipelinePlan, dataset: Dataset, values: Values, run: RunRecord) -> tuple[str, Path]:
    """The name of an output in the checkpoint, and its path."""
    given = {**values, "period": run.period}
    for name in dataset.path.names:
        text = str(given[name])
        if not text or text in (".", "..") or "/" in text or "\0" in text:
            raise SetupError(f"{dataset.name}: {name}={text!r} cannot be part of the path of an output")
    path = plan.folder / dataset.path.fill(given)
    table = dataset.table.output.table
    return (f"{path}" if table is None else f"{path}:{table}"), path


def _planned(plan: PipelinePlan, dataset: Dataset, values: Values, run: RunRecord) -> PlannedExport:
    output, path = output_of(plan, dataset, values, run)
    given = {**values, "period": run.period, "since": run.since.get(output)}
    try:
        kind = dataset.kind.fill(given)
        input = fill_body(dataset.input, given)
        columns = {name: template.fill(given) for name, template in dataset.columns.items()}
    except MissingValue as error:
        raise SetupError(f"{dataset.name}: {error}. Set `start` of [exports.since]") from None
    name = " ".join([dataset.name, *(f"{key}={value}" for key, value in values.items())])
    result = msgspec.to_builtins(dataset.table.result)
    if result["pages"] is not None:
        del result["pages"]["may_be_absent"]  # does not change the request
    request = [run.id, plan.api.name, plan.api.url, dataset.name, values, kind, input, columns, result]
    key = hashlib.sha256(msgspec.json.encode(request, order="deterministic")).hexdigest()[:32]
    export = Export(key=key, name=name, dataset=dataset.name, output=output)
    return PlannedExport(export, dataset, kind, input, columns, path)


def since_of(since: SinceTable, before: PublishedOutput | None) -> str | None:
    """The value of `{since}` after the last publication."""
    if before is None or (since.by == "cursor" and before.cursor is None):
        return since.start
    if since.by == "run":
        return since.start if before.began is None else render_instant(before.began - since.overlap)
    assert before.cursor is not None
    if not since.overlap:
        return before.cursor
    at = instant(before.cursor)
    if at is None:
        raise SetupError(
            f"`overlap` needs a cursor that is a timestamp, but the last cursor is {before.cursor!r}"
        )
    return render_instant(at - since.overlap)


def fingerprint(dataset: Dataset, exports: Sequence[Export]) -> str:
    """A hash of everything that decides what an output has."""
    table = dataset.table
    output = msgspec.to_builtins(table.output)
    for guard in GUARDS:
        del output[guard]
    parts = [[e.key for e in exports], table.schema, output, table.failed]
    return hashlib.sha256(msgspec.json.encode(parts, order="deterministic")).hexdigest()
