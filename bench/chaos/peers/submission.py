"""`python -m bench.chaos.peers.submission MODULE JOBS` submits, and prints each number once it is acknowledged.

One after another, a little slower than two workers work, so that it lasts until the last blow and hardly anything waits:
what is measured as recovery is not the way through a long queue.
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
