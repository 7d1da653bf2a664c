"""`python -m bench.before.latency URL JOBS`: for each line of stdin, submits jobs one after the other, each after the result
of the one before, and prints the seconds.
"""

from __future__ import annotations

import asyncio
import sys
import time

from bide import AsyncClient

WARM_UP = 20  # jobs


async def main(url: str, jobs: int) -> None:
    async with AsyncClient(url) as client:
        await _run(client, WARM_UP)
        print("ready", flush=True)
        while await asyncio.to_thread(sys.stdin.readline):
            began = time.perf_counter()
            await _run(client, jobs)
            print(time.perf_counter() - began, flush=True)


async def _run(client: AsyncClient, jobs: int) -> None:
    for _ in range(jobs):
        job = await client.submit("noop", {"n": 1})
        await job.result(timeout=60)


asyncio.run(main(sys.argv[1], int(sys.argv[2])))
