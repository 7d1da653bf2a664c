"""Handlers that the suite of engines runs in real child processes."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from pathlib import Path

from bide import App, Context, JobError

app = App(queues={"narrow": 1})
app.breaker("vendor", failures=2, open_for=0.5, open_cap=0.5, counts=ConnectionError)
logger = logging.getLogger("engine.handlers")


def note(path: str, text: str) -> str:
    """Append a line to a file, so that it survives the child process."""
    with Path(path).open("a") as file:
        file.write(text + "\n")
    return text


@app.job()
def add(a: int, b: int = 1) -> int:
    return a + b


@app.job()
def runs_once(ctx: Context, log: str) -> None:
    note(log, ctx.job_id)


@app.job()
def sleep(ctx: Context, seconds: float, log: str) -> str:
    note(log, f"{ctx.fence}")
    time.sleep(seconds)
    return "slept"


@app.job()
async def nap(ctx: Context, seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "rested"


@app.job(retries=2, backoff=0.05)
def fails(ctx: Context, log: str, times: int = 99) -> int:
    note(log, str(ctx.attempt))
    if ctx.attempt <= times:
        raise JobError("NOT_YET", "try later", retryable=True)
    return ctx.attempt


@app.job(timeout=0.3)
def too_slow(ctx: Context) -> None:
    time.sleep(60)


@app.job(stall=0.3)
def stalls(ctx: Context) -> None:
    time.sleep(60)


@app.job()
def halfway(ctx: Context, log: str, go: str) -> None:
    """Wait halfway until the file `go` exists."""
    ctx.progress(1, 2, unit="pages", message="Reading")
    note(log, "begun")
    while not Path(go).exists():
        time.sleep(0.01)


@app.job()
def dies(ctx: Context, log: str, times: int = 99) -> str:
    """Kill the process in the middle, after a step that must not be repeated."""
    ctx.step("first", note, log, "step")
    note(log, str(ctx.fence))
    if ctx.fence <= times:
        os.kill(os.getpid(), signal.SIGKILL)
    return "survived"


@app.job(max_losses=2)
def climbs(ctx: Context, times: int, by_step: bool) -> str:
    """Kill the process several times, each time after a further step or more progress."""
    if by_step:
        for number in range(1, min(ctx.fence, times) + 1):
            ctx.step(f"step {number}", lambda: None)
    else:
        ctx.progress(ctx.fence, 100)
    if ctx.fence <= times:
        os.kill(os.getpid(), signal.SIGKILL)
    return "survived"


@app.job(max_losses=1)
def fragile(ctx: Context, log: str) -> None:
    note(log, "ran")
    os.kill(os.getpid(), signal.SIGKILL)


@app.job(at_most_once=True)
def once(ctx: Context, log: str) -> None:
    note(log, "ran")
    os.kill(os.getpid(), signal.SIGKILL)


@app.job()
def family(ctx: Context, log: str, bad: int = -1) -> list[int]:
    note(log, "parent")
    return ctx.gather(*[ctx.spawn("child", number=n, fail=n == bad) for n in range(3)])


@app.job(queue="children")
def child(ctx: Context, number: int, fail: bool = False) -> int:
    if fail:
        raise JobError("ODD", "cannot", retryable=False)
    return number * 10


@app.job()
def waits_long(ctx: Context, log: str) -> None:
    ctx.gather(ctx.spawn("sleep", seconds=60, log=log))


@app.job(queue="narrow")
def narrow(ctx: Context, name: str, log: str) -> None:
    note(log, f"begin {name}")
    time.sleep(0.02)
    note(log, f"end {name}")


@app.job(concurrency=1, concurrency_key="input.customer")
def one_per_customer(ctx: Context, customer: str, log: str) -> None:
    note(log, f"begin {customer}")
    time.sleep(0.02)
    note(log, f"end {customer}")


@app.job()
def logs(ctx: Context) -> None:
    ctx.log("hello", page=3)
    ctx.output("hello.txt", b"hello")


@app.job()
def traces(ctx: Context) -> str | None:
    ctx.step("first", time.sleep, 0.01)
    return ctx.step("second", lambda: ctx.trace_id)


@app.job()
def logs_records(ctx: Context) -> None:
    logger.info("page %d of %d", 1, 2)
    logger.warning("page 2 is empty")
    ctx.step("read", int, "three")


@app.job(retries=1, backoff=0.05)
def emits(ctx: Context, chunks: int) -> int:
    for number in range(chunks):
        ctx.emit({"attempt": ctx.attempt, "number": number})
    if ctx.attempt == 1:
        raise JobError("NOT_YET", "try later", retryable=True)
    ctx.step("kept", str, "after the output")
    ctx.emit("the last text")
    return chunks


def _call(down: str, log: str, text: str) -> str:
    """Call a dependency, which fails while the file `down` exists."""
    note(log, text)
    if Path(down).exists():
        raise ConnectionError("the vendor is down")
    return text


@app.job(retries=1, backoff=0.05)
def calls(ctx: Context, down: str, log: str) -> str:
    with ctx.breaker("vendor"):
        return _call(down, log, ctx.job_id)


@app.job(retries=1, backoff=0.05)
async def calls_async(ctx: Context, down: str, log: str) -> str:
    async with ctx.breaker("vendor"):
        try:
            return _call(down, log, ctx.job_id)
        finally:
            await asyncio.sleep(0)


@app.job()
def rejected(ctx: Context) -> None:
    """The dependency works, and rejects the job."""
    with ctx.breaker("vendor"):
        raise LookupError("no such video")
