"""Normalizes a file in a separate process, for tests that kill it: FOLDER FORMAT [replace=N | limit=BYTES]

`replace=N` kills it by itself at its N-th rename, `limit` lets no file of it grow beyond, as a full disk does.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from pathlib import Path
from typing import Any

from bide.pipeline.plan.schema import read_schema
from bide.pipeline.rows import SourceFile, UnwritableTarget, normalize
from bide.pipeline.rows.target import Target


def schema(key: bool) -> Any:
    columns = [{"name": "id", "type": "integer"}, {"name": "v"}, {"name": "score", "type": "float"}]
    table = {"columns": columns, "key": ["id"] if key else [], "bad_rows": "dead-letter"}
    return read_schema(table, "schema")


def target(folder: Path, format: str) -> Target:
    return Target(folder / f"out.{format}", format, "rows" if format == "sqlite" else None)


def run(folder: Path, format: str, *, key: bool) -> Any:
    return normalize([SourceFile(folder / "in.csv", "export")], schema(key), target(folder, format))


def die_at(number: int) -> None:
    replace, count = Path.replace, 0

    def counted(path: Path, target: Any) -> Path:
        nonlocal count
        count += 1
        if count == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return replace(path, target)

    Path.replace = counted  # type: ignore[assignment,method-assign]


def main(folder: str, format: str, key: str, how: str = "") -> int:
    what, _, value = how.partition("=")
    if what == "replace":
        die_at(int(value))
    if what == "limit":
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(value), int(value)))
    try:
        run(Path(folder), format, key=key == "key")
    except UnwritableTarget as error:
        print(error)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
