"""An app that replaces its children after a few jobs."""

from __future__ import annotations

import os
import time
from pathlib import Path

from bide import App, Context

app = App(max_jobs_per_child=2, memory_limit=300 * 1024 * 1024)


@app.job()
def pid() -> int:
    return os.getpid()


@app.job()
def fill(ctx: Context, megabytes: int) -> int:
    data = bytearray(megabytes * 1024 * 1024)
    for i in range(0, len(data), 4096):
        data[i] = 1
    time.sleep(30)
    return len(data)


@app.job()
def sleep(ctx: Context, seconds: float, log: str) -> str:
    with Path(log).open("a") as file:
        file.write(f"{ctx.fence}\n")
    time.sleep(seconds)
    return "slept"


@app.job()
async def nap(ctx: Context, seconds: float) -> None:
    import asyncio

    await asyncio.sleep(seconds)


@app.job()
def grandchild(ctx: Context, log: str) -> None:
    import subprocess

    process = subprocess.Popen(["sleep", "300"])
    Path(log).write_text(str(process.pid))
    time.sleep(300)
