"""Prints the number of workers that a queue needs, so that its jobs wait no longer than --target-wait of the service.

python workers.py video --concurrency 4 --most 20

Reads bide_workers_needed of GET /metrics, the number of handler processes. Use it to scale the workers:
docker compose up --detach --no-recreate --scale worker=$(python workers.py video)
"""

from __future__ import annotations

import argparse
import math
import os
import re
import urllib.request


def fetch(url: str, key: str | None) -> str:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=10) as response:
        text: str = response.read().decode()
    return text


def needed(metrics: str, queue: str) -> float:
    found = re.search(
        rf'^bide_workers_needed{{queue="{re.escape(queue)}"}} (\S+)$', metrics, re.MULTILINE
    )
    return float(found[1]) if found else 0.0


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("queue")
    parser.add_argument("--url", default=os.environ.get("BIDE_URL", "http://127.0.0.1:8642"))
    parser.add_argument("--concurrency", type=int, default=2, help="concurrency of one worker")
    parser.add_argument("--least", type=int, default=1)
    parser.add_argument("--most", type=int, default=10)
    given = parser.parse_args()
    processes = needed(fetch(f"{given.url}/metrics", os.environ.get("BIDE_KEY")), given.queue)
    workers = math.ceil(processes / given.concurrency)
    print(min(max(workers, given.least), given.most))


if __name__ == "__main__":
    main()
