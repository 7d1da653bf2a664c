"""What a normalization reads and reports, and its errors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bide.core.errors import BideError

EXAMPLES = 5  # per reason


@dataclass(frozen=True)
class SourceFile:
    """A downloaded file, and how to read it."""

    path: Path
    name: str  # in errors and reports
    format: str = "auto"  # "csv", "json", "jsonl", or "auto": by content
    # The dotted path of the array in a JSON document. Empty: the document is the array.
    records: str = ""
    constants: Mapping[str, str] = field(default_factory=dict)  # columns added to each row


@dataclass(frozen=True)
class BadRow:
    """A row that does not fit the schema. `row` counts the records of a source from 1, without the header."""

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
    """How many bad rows there are per reason, the first examples of each reason, and the file that has them."""

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
    columns_new: tuple[str, ...] = ()  # in a source, but not in the schema
    columns_missing: tuple[str, ...] = ()  # in the schema, but not in every source
    cursor: str | None = None  # the highest value of the schema's cursor


class BadSource(BideError):
    """A source cannot be read, whatever the schema says about bad rows."""

    def __init__(self, source: str, message: str) -> None:
        super().__init__(source, message)
        self.source = source
        self.message = message

    def __str__(self) -> str:
        return f"{self.source}: {self.message}"


class BadRows(BideError):
    """There are bad rows, and the schema refuses them. Nothing was published."""

    def __init__(self, examples: tuple[BadRow, ...], why: str) -> None:
        super().__init__(examples, why)
        self.examples = examples
        self.why = why

    def __str__(self) -> str:
        shown = "\n  ".join(str(example) for example in self.examples)
        return f"{self.why}; nothing was published:\n  {shown}"


class TooFewRows(BideError):
    """There are fewer rows than `minimum_rows` or `max_drop` allow. The published output is unchanged."""


class UnwritableTarget(BideError):
    """The target cannot be written, e.g. because the disk is full. The published output is unchanged."""
