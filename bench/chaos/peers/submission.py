"""`python -m bench.chaos.peers.submission MODULE JOBS` submits, and prints each number once it is acknowledged.

Submits one job after another, slightly slower than two workers run them. Submission lasts until the last fault, and the
queue stays short, so that the measured recovery time does not include the wait in a long queue.
"""

from __future__ import annotations

import importlib
import sys
import time

GAP = 0.03  # seconds between two


def main(module: str, jobs: str) -> None:
    submit = importlib.import_module(f"bench.chaos.peers.{module}").submit
    for number in range(int(jobs)):
        submit(number)
        print(number, flush=True)
        time.sleep(GAP)


if __name__ == "__main__":
    main(*sys.argv[1:])
