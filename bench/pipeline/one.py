"""One measurement in a separate process, WAY FILE FOLDER; prints seconds, rows and peak memory."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.pipeline.data import COLUMNS


def bare_csv(file: Path, folder: Path) -> int:
    """pyarrow's streaming reader, with the types that it infers."""
    from pyarrow import csv

    return sum(batch.num_rows for batch in csv.open_csv(file))


def bare_ijson(file: Path, folder: Path) -> int:
    """ijson on yajl in C, the fastest of the streaming parsers of JSON arrays in wide use."""
    import ijson.backends.yajl2_c as ijson

    with file.open("rb") as data:
        return sum(1 for _ in ijson.items(data, "item", use_float=True))


def bare_own(file: Path, folder: Path) -> int:
    """The parser that bide uses, alone: msgspec decodes records, which are discarded."""
    from bide.pipeline.rows.readers import ColumnPaths
    from bide.pipeline.rows.readers.archive import files
    from bide.pipeline.rows.readers.json import RecordColumns, RecordDecoder, groups
    from bide.pipeline.rows.report import SourceFile

    schema = _schema()
    record = RecordColumns(ColumnPaths(schema), {}).record
    return sum(
        len(rows)
        for name, stream in files(SourceFile(file, "bench"), schema.limits)
        for rows, _ in groups(stream, name, "", RecordDecoder(record), schema.limits)
    )


def normalized(file: Path, folder: Path) -> int:
    return _normalize(file, folder)


def deduplicated(file: Path, folder: Path) -> int:
    return _normalize(file, folder, key=["id"])


def deduplicated_by_text(file: Path, folder: Path) -> int:
    return _normalize(file, folder, key=["student", "submitted_at", "id"], keep="newest by score")


def hashed(file: Path, folder: Path) -> int:
    import os

    os.environ["BENCH_KEY"] = "a key of the bench"
    columns = [{**one, "personal": "hash"} if one["name"] == "student" else one for one in COLUMNS]
    return _normalize(file, folder, columns=columns, secret={"env": "BENCH_KEY"})


def _schema(**more: Any) -> Any:
    from bide.pipeline.plan.schema import read_schema

    return read_schema({"columns": COLUMNS, **more}, "bench")


def _normalize(file: Path, folder: Path, **more: Any) -> int:
    from bide.pipeline.rows import SourceFile, normalize
    from bide.pipeline.rows.target import Target

    return normalize([SourceFile(file, "bench")], _schema(**more), Target(folder / "out.parquet")).rows


WAYS: dict[str, Callable[[Path, Path], int]] = {
    "bare-csv": bare_csv,
    "bare-ijson": bare_ijson,
    "bare-own": bare_own,
    "normalized": normalized,
    "deduplicated": deduplicated,
    "deduplicated-by-text": deduplicated_by_text,
    "hashed": hashed,
}


def main(way: str, file: str, folder: str) -> None:
    import pyarrow.csv
    import pyarrow.parquet  # noqa: F401  importing is not what is measured

    began, used = time.perf_counter(), time.process_time()
    rows = WAYS[way](Path(file), Path(folder))
    seconds, cpu = time.perf_counter() - began, time.process_time() - used
    # Not from getrusage, which includes the process that this one was forked from.
    found = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())
    memory = int(found[1]) / 1024 if found else 0.0
    print(json.dumps({"seconds": seconds, "cpu": cpu, "rows": rows, "memory": memory}))


if __name__ == "__main__":
    main(*sys.argv[1:])
