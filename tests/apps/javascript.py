"""Kinds for the tests of bide.js."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from bide import App, Context, File, JobError

app = App(queues={"steps": 2})


@app.job()
def add(a: int, b: int = 1) -> int:
    return a + b


@app.job(queue="steps")
def count(ctx: Context, total: int, seconds: float = 0.0) -> dict[str, int]:
    for done in range(1, total + 1):
        ctx.progress(done, total, unit="pages", message=f"page {done}")
        time.sleep(seconds)
    return {"counted": total}


@app.job(retries=0)
def fails(path: str = "") -> str:
    if path and Path(path).exists():
        return "repaired"
    raise JobError("BAD_PAGE", "page 7 is torn", retryable=False)


@app.job(queue="steps")
def until_there(ctx: Context, path: str) -> str:
    """Runs until a file exists."""
    while not Path(path).exists():
        if ctx.cancelled:
            raise JobError("STOPPED", "cancelled")
        time.sleep(0.01)
    return Path(path).read_text()


@app.job(retries=1, backoff=0.01)
def emits(ctx: Context, count: int, failures: int = 0) -> None:
    for number in range(count):
        ctx.emit({"n": number})
    if ctx.attempt <= failures:
        raise JobError("NOT_YET", "the next attempt emits again", retryable=True)


@app.job()
def large(size: int) -> str:
    return "x" * size


@app.job()
def look(file: File, note: str = "") -> dict[str, Any]:
    return {
        "name": file.name,
        "type": file.content_type,
        "sha256": file.sha256,
        "size": file.size,
        "note": note,
    }


@app.job()
def copies(ctx: Context, files: list[File]) -> list[str]:
    for file in files:
        ctx.output(file.name, file.path)
    return [file.name for file in files]
