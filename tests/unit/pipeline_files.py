"""Files as vendors write them, for the tests of pipelines."""

from __future__ import annotations

import csv
import gzip
import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bide.pipeline.plan.schema import Schema, read_schema
from bide.pipeline.rows import NormalizationReport, SourceFile, normalize
from bide.pipeline.rows.target import Target

Row = Mapping[str, Any]


def as_csv(rows: Sequence[Row], names: Sequence[str], **dialect: Any) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, names, **dialect)
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def as_json(rows: Sequence[Row], indent: int | None = None) -> bytes:
    return json.dumps(rows, indent=indent, ensure_ascii=False).encode()


def as_jsonl(rows: Sequence[Row]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def packed(data: bytes, how: str) -> bytes:
    if how == "gzip":
        return gzip.compress(data)
    if how == "zip":
        return zipped({"rows": data})
    return data


def zipped(members: Mapping[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return out.getvalue()


def schema(*columns: str | dict[str, Any], **more: Any) -> Schema:
    """`"id:integer"` is a column of that type."""
    tables: list[dict[str, Any]] = []
    for column in columns:
        if isinstance(column, str):
            name, _, type = column.partition(":")
            tables.append({"name": name, "type": type or "string"})
        else:
            tables.append(column)
    return read_schema({"columns": tables, **more}, "schema")


class PipelineFolder:
    """A folder in which files are normalized."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.target = Target(folder / "out.parquet")

    def source(self, data: bytes, name: str = "export", **more: Any) -> SourceFile:
        path = self.folder / f"{name}.download"
        path.write_bytes(data)
        return SourceFile(path, name, **more)

    def run(self, schema: Schema, *files: bytes | SourceFile, **more: Any) -> NormalizationReport:
        sources = [
            file if isinstance(file, SourceFile) else self.source(file, f"export {number}")
            for number, file in enumerate(files, 1)
        ]
        return normalize(sources, schema, more.pop("target", self.target), **more)

    def rows(self) -> list[dict[str, Any]]:
        import pyarrow.parquet

        found: list[dict[str, Any]] = pyarrow.parquet.read_table(self.target.path).to_pylist()
        return found

    def left(self) -> list[str]:
        """The names of all files in the folder except downloads."""
        return sorted(p.name for p in self.folder.iterdir() if p.suffix != ".download")
