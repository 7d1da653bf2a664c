"""Bare Celery: late acknowledgement and results in Redis, defaults otherwise.

`python -m bench.scale.peers.bare_celery JOBS FOLDER CHILDREN` fills its queue, starts warm prefork children, and prints
the seconds until every result is stored and the queue is empty.
"""

# The peers are not installed where types are checked.
# mypy: disable-error-code="import-not-found,untyped-decorator"

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import redis
from celery import Celery

from bench.service.peers import gates

BROKER, RESULTS = os.environ["BENCH_BROKER"], os.environ["BENCH_RESULTS"]
app = Celery("bench", broker=BROKER, backend=RESULTS)
app.conf.task_acks_late = True
app.conf.broker_connection_retry_on_startup = True
WARM_UP = 200
LAST = 64  # more than the workers prefetch: once these have ended, all have


@app.task(name="noop")
def noop(n: int) -> int:
    return n


@app.task(name="gate")
def gate(folder: str) -> None:
    gates.enter(Path(folder))


def main(jobs: int, folder: Path, children: int) -> None:
    store = redis.Redis.from_url(RESULTS)
    for n in range(WARM_UP):
        noop.delay(n)
    for _ in range(children):
        gate.delay(str(folder))
    keys = [f"celery-task-meta-{noop.delay(n).id}" for n in range(jobs)]
    print("filled", flush=True)
    gates.await_all(folder, children)
    time.sleep(0.2)
    begin = gates.open_all(folder)
    while store.exists(*keys[-LAST:]) < LAST:
        time.sleep(0.01)
    with app.connection_for_read() as connection:
        queue = app.amqp.queues["celery"](connection.default_channel)
        while queue.queue_declare().message_count:
            time.sleep(0.01)
    seconds = time.perf_counter() - begin
    if store.exists(*keys) < jobs:
        raise RuntimeError("some jobs have not ended, so the time is meaningless")
    print(seconds, flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
