"""Handlers for tests of lost leases."""

from __future__ import annotations

import time
from pathlib import Path

from bide import App, Context, JobError

app = App(queues={"default": 4})


def note(log: str, ctx: Context) -> None:
    with Path(log).open("a") as file:
        file.write(f"{ctx.job_id}\n")


@app.job(at_most_once=True)
def steady(ctx: Context, until: str, log: str) -> str:
    """Runs until the file is removed."""
    note(log, ctx)
    while Path(until).exists():
        time.sleep(0.01)
    return "steady"


@app.job()
def plain(ctx: Context, until: str, log: str) -> str:
    note(log, ctx)
    while Path(until).exists():
        time.sleep(0.01)
    return "plain"


@app.job(stall=1.5)
def chatty(ctx: Context, until: str, log: str) -> str:
    note(log, ctx)
    done = 0
    while Path(until).exists():
        done += 1
        ctx.progress(done)
        time.sleep(0.1)
    return "chatty"


@app.job(retries=1, backoff=1.0)
def again(ctx: Context) -> int:
    if ctx.attempt == 1:
        raise JobError("NOT_YET", "try later")
    return ctx.attempt
