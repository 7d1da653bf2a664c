"""A marketing team: 250 personal videos at nine on Tuesday and on Thursday: python marketing.py [COUNT [URL]]

Reads names, and writes links.csv with the address of each video for the mailing tool. A video that failed is submitted once
more, under another key.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

from bide import Client, JobFailed

count = int(sys.argv[1]) if len(sys.argv) > 1 else 250
url = sys.argv[2] if len(sys.argv) > 2 else None  # None: sync.so itself, with the key in SYNC_API_KEY
left = [f"customer-{number}" for number in range(count)]
links: dict[str, str] = {}

with Client(url, api="sync.so", ledger="marketing.ledger") as client:
    for attempt in (1, 2):
        names = {}
        for name in left:
            order = {"model": "lipsync-2", "input": []}
            job = client.submit("video", order, idempotency_key=f"spring-{name}-{attempt}")
            names[job.id] = name
        for job in client.as_completed(client.unacknowledged(), progress=True):
            try:
                links[names.get(job.id, job.id)] = job.result()
            except JobFailed as error:
                print(f"{names.get(job.id, job.id)}: {error}")
            client.acknowledge(job)
        left = [name for name in left if name not in links]
    print(f"{len(links)} videos, {len(left)} customers without one, {client.requests} requests")

with Path("links.csv").open("w", newline="") as file:
    csv.writer(file).writerows(sorted(links.items()))
