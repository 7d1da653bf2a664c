"""A clinic: 200 recordings per day, sent together at nine: python healthcare.py [COUNT [URL]]

A transcript takes 2 to 15 minutes, and the staff wait for it, so each is handed over as soon as it is done.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from bide import AsyncClient, JobFailed

count = int(sys.argv[1]) if len(sys.argv) > 1 else 200
url = sys.argv[2] if len(sys.argv) > 2 else None  # None: sync.so itself, with the key in SYNC_API_KEY
out = Path("transcripts")


async def main() -> None:
    # A request is worth 0.5 seconds of waiting, half of the default: more requests, less delay.
    async with AsyncClient(url, api="sync.so", ledger="healthcare.ledger", price=0.5) as client:
        for number in range(count):
            order = {"model": "lipsync-2", "input": []}
            await client.submit("transcript", order, idempotency_key=f"recording-{number}")
        handed = 0
        async for job in client.as_completed(await client.unacknowledged()):
            try:
                (out / f"{job.id}.txt").write_text(str(await job.result()))
                handed += 1
            except JobFailed as error:
                print(f"{job.id}: {error}")
            await client.acknowledge(job)  # after the file is written: a crash in between repeats it
        print(f"{handed} transcripts, {client.requests} requests")


out.mkdir(exist_ok=True)
asyncio.run(main())
