"""Where normalized rows go."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bide.core.errors import SetupError

FORMATS = ("parquet", "csv", "jsonl", "sqlite")


@dataclass(frozen=True)
class Target:
    """A file in one of FORMATS; for SQLite the table in it."""

    path: Path
    format: str = "parquet"
    table: str | None = None

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise SetupError(f"there is no format {self.format!r}: choose one of {', '.join(FORMATS)}")
        if (self.table is not None) != (self.format == "sqlite"):
            raise SetupError("a table is for SQLite, and SQLite needs one")
        if self.table is not None and (not self.table or "\0" in self.table):
            raise SetupError(f"{self.table!r} cannot be the name of a table")

    @property
    def dead_letters(self) -> Path:
        """Where rows go that do not fit, when the schema says so."""
        name = self.path.name if self.table is None else f"{self.path.name}.{self.table}"
        return self.path.with_name(name.replace("/", "_") + ".bad.jsonl")
