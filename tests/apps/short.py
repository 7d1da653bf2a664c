"""A kind that is usually short, with exceptions, for tests of prefetched jobs."""

from __future__ import annotations

import os
import signal
import time

from bide import App, Context

app = App()


@app.job()
def quick(ctx: Context, seconds: float = 0.0, kill: bool = False, step: bool = False) -> str:
    if step:
        ctx.step("one", lambda: 1)
        ctx.log("stepped")
    if kill:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(seconds)
    return "ok"


@app.job()
def long(ctx: Context, seconds: float = 0.2) -> str:
    time.sleep(seconds)
    return "long"


@app.job(at_most_once=True)
def once(ctx: Context) -> str:
    return "once"


@app.job()
def sends(ctx: Context) -> str:
    ctx.spawn("quick")
    return "sent"
