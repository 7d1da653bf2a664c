"""Huey on SQLite without fsync, with results, as its documentation sets it up."""

# mypy: disable-error-code="import-not-found,untyped-decorator"

from __future__ import annotations

import os
from pathlib import Path

from huey import SqliteHuey

from bench.service.peers import gates

huey = SqliteHuey("bench", filename=os.environ["BENCH_HUEY"], fsync=False)


@huey.task()
def noop(n: int) -> int:
    return n


@huey.task()
def gate(folder: str) -> None:
    gates.enter(Path(folder))
