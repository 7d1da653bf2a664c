"""Fills Celery's queue, starts two warm prefork children, and prints the seconds until every result is stored."""

# mypy: disable-error-code="import-not-found"

from __future__ import annotations

import sys
import time
from pathlib import Path

import redis

from bench.service.peers import gates
from bench.service.peers.celery_app import URL, gate, noop

WARM_UP, WORKERS = 200, 2
LAST = 32  # more than the worker prefetches: once these have ended, all have


def main(jobs: int, folder: Path) -> None:
    store = redis.Redis.from_url(URL)
    store.flushdb()
    for n in range(WARM_UP):
        noop.delay(n)
    for _ in range(WORKERS):
        gate.delay(str(folder))
    keys = [f"celery-task-meta-{noop.delay(n).id}" for n in range(jobs)]
    print("filled", flush=True)
    gates.await_all(folder, WORKERS)
    time.sleep(0.2)
    begin = gates.open_all(folder)
    while store.exists(*keys[-LAST:]) < LAST:
        time.sleep(0.002)
    seconds = time.perf_counter() - begin
    if store.exists(*keys) < jobs:
        raise RuntimeError("some jobs have not ended, so the time is meaningless")
    print(seconds, flush=True)


main(int(sys.argv[1]), Path(sys.argv[2]))
