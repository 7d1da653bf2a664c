"""What a normalization read, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bide.core.errors import BideError

EXAMPLES = 5  # of each reason


@dataclass(frozen=True)
class SourceFile:
    """A downloaded file, and how to read it."""

    path: Path
    name: str  # told in errors and reports
    format: str = "auto"  # "csv" | "json" | "jsonl" | "auto", by content
    records: str = (
        ""  # dotted path to the array inside of a JSON document; "": the document is the array
    )
    constants: Mapping[str, str] = field(default_factory=dict)  # columns added to each row


@dataclass(frozen=True)
class BadRow:
    """A row that does not fit; `row` counts a source's records from 1, without the header."""

    source: str
    row: int
    column: str | None
    reason: str
    value: str | None = None  # never of a personal column

    def __str__(self) -> str:
        column = f", column {self.column!r}" if self.column is not None else ""
        value = f": {self.value!r}" if self.value is not None else ""
        return f"{self.source}, row {self.row}{column}: {self.reason}{value}"


@dataclass(frozen=True)
class BadRowSummary:
    """Rows that did not fit: how many for which reason, the first of each, and where they went."""

    counts: Mapping[str, int] = field(default_factory=dict)
    examples: tuple[BadRow, ...] = ()
    rows: int = 0
    file: Path | None = None  # the dead-letter file

    def __bool__(self) -> bool:
        return self.rows > 0


@dataclass(frozen=True)
class NormalizationReport:
    """What was published."""

    path: Path
    bytes: int
    rows: int
    read: int = 0  # records in the sources, good and bad
    duplicates: int = 0
    bad: BadRowSummary = field(default_factory=BadRowSummary)
    columns_new: tuple[str, ...] = ()  # in a source, not in the schema
    columns_missing: tuple[str, ...] = ()  # in the schema, and in some source not
    cursor: str | None = None  # the highest value of the schema's cursor


class BadSource(BideError):
    """A file that cannot be read, whatever the schema says about rows."""

    def __init__(self, source: str, message: str) -> None:
        super().__init__(source, message)
        self.source = source
        self.message = message

    def __str__(self) -> str:
        return f"{self.source}: {self.message}"


class BadRows(BideError):
    """Rows do not fit, and the schema says to refuse them. Nothing was published."""

    def __init__(self, examples: tuple[BadRow, ...], why: str) -> None:
        super().__init__(examples, why)
        self.examples = examples
        self.why = why

    def __str__(self) -> str:
        shown = "\n  ".join(str(example) for example in self.examples)
        return f"{self.why}; nothing was published:\n  {shown}"


class TooFewRows(BideError):
    """The result has fewer rows than a guard of its output allows. What was published before is as it was."""


class UnwritableTarget(BideError):
    """The result cannot be written: a full disk, a folder that is not there. What was published before is as it was."""
