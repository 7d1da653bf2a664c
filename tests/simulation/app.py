"""The jobs of the simulation. Handlers record what they have done."""

from __future__ import annotations

import asyncio
from typing import ClassVar

from bide import App, Context, File

app = App(queues={"leaves": 2})
PAIR = 2  # jobs of the kind `pair` that run at once
ran: list[tuple[str, str, int]] = []  # job, step, fence


async def _do(ctx: Context, step: str, seconds: float) -> int:
    ran.append((ctx.job_id, step, ctx.fence))
    await asyncio.sleep(seconds)
    return ctx.fence


@app.job()
async def quick(ctx: Context, number: int) -> int:
    return number


@app.job(retries=1, backoff=1.0)
async def steps(ctx: Context, number: int) -> int:
    for step in ("first", "second"):
        await ctx.step(step, _do, ctx, step, 0.05)
    if ctx.attempt == 1 and number % 2:
        raise ValueError("once")
    return number


@app.job(retries=2, backoff=1.0)
async def family(ctx: Context, number: int) -> int:
    await ctx.step("before", _do, ctx, "before", 0.01)
    total: int = sum(ctx.gather(*(ctx.spawn("leaf", number=number + i) for i in range(2))))
    await ctx.step("after", _do, ctx, "after", 0.01)
    return total


@app.job(retries=2, backoff=1.0)
async def relay(ctx: Context, number: int, source: File) -> int:
    """Pass a file of another job to a child job."""
    (found,) = ctx.gather(ctx.spawn("reader", number=number, source=source))
    return int(found)


@app.job(retries=2, backoff=1.0)
async def maker(ctx: Context, number: int) -> int:
    """Pass a file of its own to a child job."""
    made = ctx.output("made.txt", str(number).encode())
    (found,) = ctx.gather(ctx.spawn("reader", number=number, source=made))
    return int(found)


@app.job(retries=2, backoff=1.0)
async def lonely(ctx: Context, number: int) -> int:
    """Does not wait for its child."""
    ctx.spawn("leaf", number=number)
    await asyncio.sleep(0.2)
    return number


@app.job(queue="leaves")
async def leaf(ctx: Context, number: int) -> int:
    await _do(ctx, "leaf", 0.1)
    return number


@app.job(queue="leaves")
async def reader(ctx: Context, number: int, source: File) -> int:
    await asyncio.sleep(0.05)
    assert source.path.read_bytes()
    return number


@app.job(at_most_once=True)
async def once(ctx: Context, number: int) -> int:
    await _do(ctx, "once", 0.2 if number % 3 else 15.0)
    return number


@app.job(timeout=5.0)
async def slow(ctx: Context, number: int) -> int:
    await _do(ctx, "slow", 2.0 if number % 3 else 60.0)
    return number


@app.job(concurrency=PAIR)
async def pair(ctx: Context, number: int) -> int:
    await _do(ctx, "pair", 1.0 if number % 3 else 4.0)
    return number


@app.job(retries=1000, backoff=1.0, backoff_cap=1.0, retry_minimum=6.0)
async def storm(ctx: Context, number: int) -> int:
    await _do(ctx, "storm", 0.01)
    raise ValueError("always")


class Vendor:
    """A dependency that fails for a while."""

    down = False
    hangs = False
    calls: ClassVar[list[str]] = []  # jobs, while it was down


app.breaker("vendor", open_for=30.0, open_cap=300.0)


@app.job(retries=1, backoff=1.0, timeout=20.0)
async def calls(ctx: Context, number: int) -> int:
    await ctx.step("before", _do, ctx, "before", 0.01)
    async with ctx.breaker("vendor"):
        await asyncio.sleep(0.5)
        if Vendor.down:
            Vendor.calls.append(ctx.job_id)
            if Vendor.hangs:
                await asyncio.sleep(3600)
            raise ConnectionError("the vendor is down")
    return number


KINDS = ("quick", "steps", "family", "relay", "maker", "lonely", "once", "slow", "pair")
for _kind in app.kinds.values():
    _kind.is_async = False  # they are coroutines, but the engine treats them as sync handlers
