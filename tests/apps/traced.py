"""Kinds whose spans are tested."""

from __future__ import annotations

import os
import signal

from bide import App, Context, JobError

app = App()


@app.job(queue="docs", retries=1, backoff=0.05)
def album(ctx: Context, fails: bool = True) -> dict[str, object]:
    """Fails at first, then spawns a child."""
    ctx.step("fetch", lambda: 1)
    if fails and ctx.attempt == 1:
        ctx.step("read", _fail)
    (page,) = ctx.gather(ctx.spawn("page", number=1))
    return {"traceId": ctx.trace_id, "headers": ctx.trace_headers, "page": page}


def _fail() -> None:
    raise JobError("NO_TEXT", "the document has no text")


@app.job(queue="pages")
def page(ctx: Context, number: int) -> dict[str, str]:
    return ctx.trace_headers


@app.job(queue="docs")
def dies(ctx: Context, marker: str) -> str:
    """Its first process is killed."""
    if not os.path.exists(marker):  # noqa: PTH110
        open(marker, "w").close()  # noqa: PTH123
        os.kill(os.getpid(), signal.SIGKILL)
    return "alive"
