"""Jobs that leave a mark wherever they go, so that a repetition can be seen afterwards."""

from __future__ import annotations

import os
import random
import time

from bide import App, Context

app = App(queues={"leaves": 2})


def mark(ctx: Context, step: str) -> int:
    """One line that is complete or absent, whatever is killed."""
    fd = os.open(os.environ["BIDE_CHAOS_MARKS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(fd, f"{ctx.job_id} {step} {ctx.fence}\n".encode())
    finally:
        os.close(fd)
    time.sleep(random.uniform(0.001, 0.02))
    return ctx.fence


@app.job()
def work(ctx: Context, number: int) -> int:
    for step in ("first", "second", "third"):
        ctx.step(step, mark, ctx, step)
    return number


@app.job()
def family(ctx: Context, number: int) -> int:
    ctx.step("before", mark, ctx, "before")
    leaves = [ctx.spawn("leaf", number=number + i) for i in range(2)]
    total: int = sum(ctx.gather(*leaves))
    ctx.step("after", mark, ctx, "after")
    return total


@app.job(queue="leaves")
def leaf(ctx: Context, number: int) -> int:
    ctx.step("only", mark, ctx, "only")
    return number
