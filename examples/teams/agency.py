"""A media agency: 500 videos per day, sent together every night: python agency.py [COUNT [URL]]

Started by cron at 22:00. If it crashes, start it again: the keys prevent that a video is paid for twice, and the ledger has
the jobs that are not finished. All requests share one budget, so none of them is refused, however many jobs wait.
"""

from __future__ import annotations

import sys
from datetime import date
from pathlib import Path

from bide import Client, JobFailed

count = int(sys.argv[1]) if len(sys.argv) > 1 else 500
url = sys.argv[2] if len(sys.argv) > 2 else None  # None: sync.so itself, with the key in SYNC_API_KEY
videos = [f"https://agency.example/tonight/{number}.mp4" for number in range(count)]
out = Path("films")
out.mkdir(exist_ok=True)

with Client(url, api="sync.so", ledger="agency.ledger") as client:
    for video in videos:
        order = {"model": "lipsync-2", "input": [{"type": "video", "url": video}]}
        client.submit("lipsync", order, idempotency_key=f"{date.today()}-{Path(video).stem}")
    done = failed = 0
    for job in client.as_completed(client.unacknowledged(), progress=True):
        try:
            job.result()
            job.download("result", out / f"{job.id}.mp4")
            done += 1
        except JobFailed as error:
            print(f"{job.id}: {error}")
            failed += 1
        client.acknowledge(job)
    print(f"{done} films, {failed} failed, {client.requests} requests")
