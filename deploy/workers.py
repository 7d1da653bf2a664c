"""Prints the number of workers that a queue needs, so that all waiting jobs start within a time.

python workers.py video --within 60 --concurrency 4 --most 20

Reads GET /metrics (backlog) and GET /kinds (learned durations). Use it to scale the workers:
docker compose up --detach --no-recreate --scale worker=$(python workers.py video)
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import urllib.request


def fetch(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as response:
        text: str = response.read().decode()
    return text


def waiting(metrics: str, queue: str) -> float:
    found = re.search(
        rf'^bide_queue_backlog{{queue="{re.escape(queue)}"}} (\S+)$', metrics, re.MULTILINE
    )
    return float(found[1]) if found else 0.0


def seconds(kinds: str, queue: str) -> float:
    """Returns the median duration of the slowest kind of this queue; a minute if none is known."""
    learned = [k["durations"] for k in json.loads(kinds)["kinds"] if k["queue"] == queue]
    return max((d["p50"] for d in learned if d), default=60.0)


def workers(backlog: float, duration: float, within: float, concurrency: int) -> int:
    """A slot completes `within / duration` jobs in that time, at least one."""
    slots = backlog / max(1.0, within / max(duration, 0.001))
    return math.ceil(slots / concurrency)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("queue")
    parser.add_argument("--url", default=os.environ.get("BIDE_URL", "http://127.0.0.1:8642"))
    parser.add_argument(
        "--within", type=float, default=60.0, help="seconds until the last waiting job starts"
    )
    parser.add_argument("--concurrency", type=int, default=2, help="concurrency of one worker")
    parser.add_argument("--least", type=int, default=1)
    parser.add_argument("--most", type=int, default=10)
    given = parser.parse_args()
    backlog = waiting(fetch(f"{given.url}/metrics"), given.queue)
    duration = seconds(fetch(f"{given.url}/kinds"), given.queue)
    wanted = workers(backlog, duration, given.within, given.concurrency)
    print(min(max(wanted, given.least), given.most))


if __name__ == "__main__":
    main()
