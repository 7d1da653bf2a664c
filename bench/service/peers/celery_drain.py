"""Fills Celery's queue, starts two warm prefork children, and prints the seconds until every result is stored. With late
acknowledgement, the queue must be empty, too.
"""

# mypy: disable-error-code="import-not-found"

from __future__ import annotations

import sys
import time
from pathlib import Path

import redis

from bench.service.peers import gates
from bench.service.peers.celery_app import LATE, RESULTS, app, gate, noop

WARM_UP, WORKERS = 200, 2
LAST = 64  # more than the worker prefetches: once these have ended, all have


def main(jobs: int, folder: Path) -> None:
    store = redis.Redis.from_url(RESULTS)
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
    if LATE:
        _await_empty_queue()
    seconds = time.perf_counter() - begin
    if store.exists(*keys) < jobs:
        raise RuntimeError("some jobs have not ended, so the time is meaningless")
    print(seconds, flush=True)


def _await_empty_queue() -> None:
    with app.connection_for_read() as connection:
        queue = app.amqp.queues["celery"](connection.default_channel)
        while queue.queue_declare().message_count:
            time.sleep(0.01)


main(int(sys.argv[1]), Path(sys.argv[2]))
