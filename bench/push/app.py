"""The jobs that bide runs while the delivery of their events is measured."""

from __future__ import annotations

import asyncio

from bide import App, Context

app = App()


@app.job()
def noop(n: int) -> int:
    return n


@app.job(timeout=600)
async def talk(ctx: Context, seconds: float, rate: float) -> int:
    """Emits numbers at a rate per second, and returns how many."""
    loop = asyncio.get_running_loop()
    begin = loop.time()
    count = round(seconds * rate)
    for n in range(count):
        await asyncio.sleep(max(0.0, begin + n / rate - loop.time()))
        ctx.emit({"n": n})
    return count
