"""The check of the columns before anything is written: which columns of the sources are new, and which are missing.

The header of a CSV file has its columns. A JSON file is read completely only if the schema says `keep` or `refuse`;
otherwise the records at its start are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bide.pipeline.plan.schema import Schema, parts
from bide.pipeline.rows.readers import archive, csv, json
from bide.pipeline.rows.report import BadSource, SourceFile


@dataclass(frozen=True)
class ColumnCheck:
    new: tuple[str, ...]
    missing: tuple[str, ...]


def check_columns(sources: Sequence[SourceFile], schema: Schema) -> ColumnCheck:
    """BadSource if a required column is missing, or if there is a column that the schema refuses."""
    new: dict[str, None] = {}
    missing: dict[str, None] = {}
    for source in sources:
        for name, stream in archive.files(source, schema.limits):
            if (columns := _columns(stream, name, source, schema)) is None:
                continue
            found, is_csv = columns
            new_here, missing_here = _compared(found, is_csv, source, schema)
            if new_here and schema.new_columns == "refuse":
                raise BadSource(name, f"it has columns that the schema does not name: {_list(new_here)}")
            if len(missing_here) == len(schema.columns):
                raise BadSource(
                    name,
                    f"it has none of the schema's columns, but {_list(found)}. Check that it is the right file",
                )
            required = [c.name for c in schema.columns if c.required or c.name in schema.key]
            if lacking := [
                one for one in missing_here if one in required or schema.missing_columns == "refuse"
            ]:
                raise BadSource(
                    name, f"columns are missing: {_list(lacking)}. It has {_list(sorted(found))}"
                )
            new |= dict.fromkeys(new_here)
            missing |= dict.fromkeys(missing_here)
    return ColumnCheck(tuple(new), tuple(missing))


def _list(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:10])
    return shown + (f" and {len(names) - 10} more" if len(names) > 10 else "") if names else "none"


def _columns(
    stream: archive.ByteStream, name: str, source: SourceFile, schema: Schema
) -> tuple[list[str], bool] | None:
    """The columns of a file, and whether it is CSV. None if it has no records."""
    format = source.format if source.format != "auto" else json.recognise(stream, source.records)
    if format == "csv":
        names, _ = csv.header(stream, name, schema.csv, schema.limits.columns)
        return [one for one in names if one], True
    whole = schema.new_columns != "ignore" or schema.missing_columns == "refuse"
    path = source.records if format == "json" else None
    found = json.keys(stream, name, path, schema.limits, whole=whole)
    return (sorted(found), False) if found else None


def _compared(
    found: list[str], is_csv: bool, source: SourceFile, schema: Schema
) -> tuple[list[str], list[str]]:
    """The columns that are new in a file, and those that are missing from it."""
    known = set(source.constants)
    missing = []
    for column in schema.columns:
        names = [".".join(parts(path)) if is_csv else parts(path)[0] for path in column.alternatives]
        known.update(names)
        if not any(name in source.constants or name in found for name in names):
            missing.append(column.name)
    return [name for name in found if name not in known], missing
