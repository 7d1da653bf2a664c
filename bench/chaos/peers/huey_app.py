"""Huey on SQLite, with fsync and retries. A task leaves the queue when it is taken: there is no setting that keeps it."""

# mypy: disable-error-code="import-not-found,untyped-decorator"

from __future__ import annotations

import os

from huey import SqliteHuey

from bench.chaos import marks

huey = SqliteHuey("chaos", filename=os.environ["BENCH_HUEY"], fsync=True)


@huey.task(retries=10, name="work")
def work(number: int) -> int:
    return marks.work(number)


def submit(number: int) -> None:
    work(number)
