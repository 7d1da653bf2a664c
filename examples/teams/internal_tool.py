"""An internal tool: 20 videos at nine on each working day, 100 per week: python internal_tool.py [COUNT [URL [SECONDS]]]

The vendor cannot reach the machine, so webhooks are no option. The team knows that a video takes about six minutes, and
passes that as `expected`: then the client polls even the first jobs at a good time.
"""

from __future__ import annotations

import sys

from bide import Client, JobFailed

count = int(sys.argv[1]) if len(sys.argv) > 1 else 20
url = sys.argv[2] if len(sys.argv) > 2 else None  # None: sync.so itself, with the key in SYNC_API_KEY
expected = float(sys.argv[3]) if len(sys.argv) > 3 else 360.0

with Client(url, api="sync.so", expected=expected) as client:
    jobs = [client.submit("lipsync", {"model": "lipsync-2", "input": []}) for _ in range(count)]
    for job in client.as_completed(jobs, progress=True):
        try:
            print(job.id, job.result())
        except JobFailed as error:
            print(job.id, error)
    print(f"{count} videos, {client.requests} requests")
