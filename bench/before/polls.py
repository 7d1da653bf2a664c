"""Waits for many jobs through the public client; prints the CPU seconds per poll. Each run is a separate process."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import sys
from time import process_time

from bide import AsyncClient

WARM_UP, POLLS = 8_000, 20_000
CHEAP = 1e-7  # the price of a request: every job is always due


async def main(url: str, jobs: int) -> None:
    client = AsyncClient(url, "k", api="sync.so", limit="1000000000/1s", price=CHEAP)
    async with client:
        handles = [client.job(f"job-{number}") for number in range(jobs)]
        waiting = asyncio.create_task(client.wait_all(handles))
        await _sent(client, waiting, WARM_UP)
        gc.collect()
        gc.freeze()  # as `bide wait` does
        os.kill(os.getpid(), signal.SIGSTOP)  # until the first slice
        began, polls = process_time(), client.requests
        await _sent(client, waiting, polls + POLLS)
        used, polls = process_time() - began, client.requests - polls
        print(json.dumps({"cpu": used / polls, "polls": polls}), flush=True)
        waiting.cancel()
        await asyncio.wait([waiting])


async def _sent(client: AsyncClient, waiting: asyncio.Task[object], requests: int) -> None:
    while client.requests < requests:
        if waiting.done():
            raise RuntimeError(f"the wait ended after {client.requests} requests")
        await asyncio.sleep(0.05)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
