"""Handlers that write a mark at each step."""

from __future__ import annotations

import os
import time

from bench.chaos import marks
from bide import App, Context

app = App(queues={"leaves": 2})


def mark(ctx: Context, step: str) -> int:
    marks.leave(ctx.job_id, step, ctx.fence)
    marks.pause()
    return ctx.fence


@app.job()
def work(ctx: Context, number: int) -> int:
    with marks.attempt(ctx.job_id, ctx.fence):
        for step in marks.STEPS:
            ctx.step(step, mark, ctx, step)
    return number


@app.job()
def fenced(ctx: Context, number: int) -> dict[str, int]:
    """Return the fence of the attempt with the result."""
    with marks.attempt(ctx.job_id, ctx.fence):
        marks.pause()
    return {"number": number, "fence": ctx.fence}


@app.job()
def family(ctx: Context, number: int) -> int:
    with marks.attempt(ctx.job_id, ctx.fence):
        ctx.step("before", mark, ctx, "before")
        leaves = [ctx.spawn("leaf", number=number + i) for i in range(2)]
        total: int = sum(ctx.gather(*leaves))
        ctx.step("after", mark, ctx, "after")
    return total


@app.job(queue="leaves")
def leaf(ctx: Context, number: int) -> int:
    with marks.attempt(ctx.job_id, ctx.fence):
        ctx.step("only", mark, ctx, "only")
    return number


def last(ctx: Context, seconds: float) -> None:
    with marks.attempt(ctx.job_id, ctx.fence):
        time.sleep(seconds)


@app.job(at_most_once=True)
def once(ctx: Context, number: int, seconds: float) -> int:
    last(ctx, seconds)
    return number


@app.job()
def lasting(ctx: Context, number: int, seconds: float) -> dict[str, int]:
    """Return the fence of the attempt and the worker with the result."""
    last(ctx, seconds)
    return {"number": number, "fence": ctx.fence, "worker": os.getppid()}


@app.job()
def output(ctx: Context, number: int) -> int:
    ctx.output("number.txt", str(number).encode())
    return number
