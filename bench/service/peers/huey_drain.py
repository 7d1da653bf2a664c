"""Fills Huey's queue, starts two warm process workers, and prints the seconds until every result is stored."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from bench.service.peers import gates
from bench.service.peers.huey_app import gate, huey, noop

WARM_UP, WORKERS = 200, 2


def main(jobs: int, folder: Path) -> None:
    for n in range(WARM_UP):
        noop(n)
    for _ in range(WORKERS):
        gate(str(folder))
    for n in range(jobs):
        noop(n)
    print("filled", flush=True)
    gates.await_all(folder, WORKERS)
    time.sleep(0.2)
    begin = gates.open_all(folder)
    while huey.result_count() < WARM_UP + jobs:
        time.sleep(0.01)
    print(time.perf_counter() - begin, flush=True)


main(int(sys.argv[1]), Path(sys.argv[2]))
