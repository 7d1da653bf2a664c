"""`python -m bench.chaos.peers.celery_courier JOBS BACKLOG OVER` submits to Celery, and prints each number once it is
acknowledged. It retries, keeps at most BACKLOG tasks waiting, and ends once the file OVER exists.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from bench.chaos import marks
from bench.chaos.peers.celery_app import submit

SILENCE = 20.0  # seconds; twice the visibility timeout


def main(jobs: int, backlog: int, over: Path) -> None:
    tail = marks.Tail(Path(os.environ[marks.PLACE]))
    lost, last, number = 0, time.monotonic(), 0
    while number < jobs or not over.exists():
        while number - lost - len(tail.finished) > backlog:
            if tail.grow():
                last = time.monotonic()
            elif time.monotonic() - last > SILENCE:
                # The remaining tasks are lost.
                lost, last = number - len(tail.finished), time.monotonic()
            time.sleep(0.02)
        _insist(number)
        print(number, flush=True)
        number += 1


def _insist(number: int) -> None:
    while True:
        try:
            submit(number)
        except Exception as error:
            print(f"{number} again: {error!r}", file=sys.stderr, flush=True)
            time.sleep(0.1)
        else:
            return


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
