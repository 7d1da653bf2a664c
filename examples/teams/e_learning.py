"""An e-learning platform: subtitles for 200 lectures every night, 1,000 per week: python e_learning.py [COUNT [URL]]

The night ends after `NIGHT` seconds. The lectures that are not done then stay in the ledger, and the next night reports
them.
"""

from __future__ import annotations

import sys
from datetime import date

from bide import Client, JobFailed, WaitTimeout

NIGHT = 8 * 3600.0
count = int(sys.argv[1]) if len(sys.argv) > 1 else 200
url = sys.argv[2] if len(sys.argv) > 2 else None  # None: sync.so itself, with the key in SYNC_API_KEY

with Client(url, api="sync.so", ledger="e-learning.ledger") as client:
    for number in range(count):
        key = f"{date.today()}-lecture-{number}"
        client.submit("subtitles", {"model": "lipsync-2", "input": []}, idempotency_key=key)
    done = failed = 0
    waiting = client.unacknowledged()  # also those of the night before
    try:
        for job in client.as_completed(waiting, timeout=NIGHT, progress=True):
            try:
                job.result()
                done += 1
            except JobFailed as error:
                print(f"{job.id}: {error}")
                failed += 1
            client.acknowledge(job)
    except WaitTimeout:
        print(f"{len(waiting) - done - failed} lectures continue; the next night reports them")
    print(f"{done} subtitles, {failed} failed, {client.requests} requests")
