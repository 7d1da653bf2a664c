"""A social network: 10,000 videos per day, 70 every ten minutes: python moderation.py [COUNT [URL [ROUNDS [SECONDS]]]]

Each round submits the uploads since the last one, while the client still waits for earlier ones. At the end the script
prints whether the limit of the account is large enough, and which limit to ask the vendor for.
"""

from __future__ import annotations

import asyncio
import sys

from bide import AsyncClient, JobFailed, JobHandle

count = int(sys.argv[1]) if len(sys.argv) > 1 else 70
url = sys.argv[2] if len(sys.argv) > 2 else None  # None: sync.so itself, with the key in SYNC_API_KEY
rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 144  # a day
pause = float(sys.argv[4]) if len(sys.argv) > 4 else 600.0


async def decide(job: JobHandle) -> bool:
    """Wait for one verdict; a video without one stays hidden."""
    try:
        await job.result()
        return True
    except JobFailed:
        return False


async def main() -> None:
    async with AsyncClient(url, api="sync.so") as client:
        verdicts: list[asyncio.Task[bool]] = []
        for number in range(rounds):
            if number:
                await asyncio.sleep(pause)
            for _ in range(count):
                job = await client.submit("moderation", {"model": "lipsync-2", "input": []})
                verdicts.append(asyncio.create_task(decide(job)))
        shown = sum(await asyncio.gather(*verdicts))
        print(client.advice())
        print(f"{shown} videos shown, {len(verdicts) - shown} hidden, {client.requests} requests")


asyncio.run(main())
