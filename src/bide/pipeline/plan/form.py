"""The form of a pipeline file: the fields of each table, their types and defaults. See docs/reference/pipelines.md.

`loader` compiles the texts that are templates or sources.
"""

from __future__ import annotations

from typing import Any, Literal, cast

import msgspec

from bide.client.apis.form import Secret, Sources, Table
from bide.client.job_state import Expected
from bide.client.polling_options import PollingFields, PollingOptions

DAY = 86400.0


class ApiTable(Table, frozen=True, kw_only=True):
    """The API, the credential, and the limits."""

    name: str | None = None
    file: str | None = None
    url: str | None = None
    key: Secret | None = None
    limit: str | None = None
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    concurrent: int | None = None
    downloads: int = 4
    patience: float = DAY / 4


class PollingTable(PollingFields, Table, frozen=True, kw_only=True):
    """When to poll: the fields are PollingOptions of a client."""

    def options(self) -> PollingOptions:
        return cast(PollingOptions, msgspec.structs.asdict(self))


class PagesTable(Table, frozen=True, kw_only=True):
    """How to find the next page."""

    link: bool = False
    next: Sources | None = None
    query: str | None = None
    total: Sources | None = None
    first: int = 1
    may_be_absent: bool = False


class ListingTable(Table, frozen=True, kw_only=True):
    """Values that the API lists."""

    path: str
    items: Sources = "."
    value: Sources = "id"
    pages: PagesTable | None = None


class ResultTable(Table, frozen=True, kw_only=True):
    """Which part of a finished job is the export."""

    take: Literal["auto", "url", "files", "value"] = "auto"
    at: Sources | None = None
    format: Literal["auto", "csv", "json", "jsonl"] = "auto"
    records: str = ""
    pages: PagesTable | None = None


class SinceTable(Table, frozen=True, kw_only=True):
    """The value of `{since}`: the end of the last published run."""

    by: Literal["cursor", "run"] = "cursor"
    start: str | None = None
    overlap: float = 0.0


class OutputTable(Table, frozen=True, kw_only=True):
    """The file of the rows."""

    path: str
    format: Literal["parquet", "csv", "jsonl", "sqlite"] | None = None
    table: str | None = None
    minimum_rows: int = 0
    max_drop: str | None = None


class ExportTable(Table, frozen=True, kw_only=True):
    """One dataset: an export for each combination of values."""

    name: str
    kind: str = ""
    input: Any = msgspec.field(default_factory=dict)
    each: dict[str, list[str | int] | str | ListingTable] = msgspec.field(default_factory=dict)
    columns: dict[str, str] = msgspec.field(default_factory=dict)
    result: ResultTable = ResultTable()
    since: SinceTable | None = None
    failed: Literal["refuse", "skip"] = "refuse"
    retries: int = 0
    timeout: float = DAY
    expected: Expected | None = None
    resubmit: bool = True
    schema: dict[str, Any] = msgspec.field(default_factory=dict)
    output: OutputTable


class PipelineTable(Table, frozen=True, kw_only=True):
    """A pipeline: one account at one API, and the datasets to export from it."""

    name: str = ""
    api: ApiTable
    polling: PollingTable = PollingTable()
    exports: list[ExportTable]


TABLES: dict[str, type[Table]] = {
    "": PipelineTable,
    "api": ApiTable,
    "polling": PollingTable,
    "exports": ExportTable,
    "exports.each": ListingTable,
    "exports.result": ResultTable,
    "exports.pages": PagesTable,
    "exports.since": SinceTable,
    "exports.output": OutputTable,
}
