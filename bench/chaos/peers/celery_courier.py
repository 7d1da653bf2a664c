"""Celery on Redis or RabbitMQ so that a task survives its worker, as its documentation says.

Late acknowledgement, rejection when a child is lost, prefetch 1; durable queues and publisher confirms on RabbitMQ, and
a heartbeat of ten seconds; on Redis a visibility timeout of ten seconds, many times the length of a task, checked every
second. Results go to Redis.

`python -m bench.chaos.peers.celery_courier JOBS BACKLOG OVER` submits, and prints each number once it is acknowledged. It
retries, keeps at most BACKLOG tasks waiting, and ends once the file OVER exists.
"""

# The peers are not installed where types are checked.
# mypy: disable-error-code="import-not-found,untyped-decorator"

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from celery import Celery

from bench.chaos import marks

SILENCE = 20.0  # seconds; twice the visibility timeout
URL = os.environ["BENCH_BROKER"]
app = Celery("courier", broker=URL, backend=os.environ["BENCH_RESULTS"])
app.conf.task_acks_late = True
app.conf.task_reject_on_worker_lost = True
app.conf.worker_prefetch_multiplier = 1
app.conf.broker_connection_retry_on_startup = True
app.conf.broker_connection_max_retries = None
if URL.startswith("redis"):
    app.conf.broker_transport_options = {
        "visibility_timeout": 10,
        "unacked_restore_interval": 1,
        "unacked_restore_throttle": 1,
        "unacked_mutex_expire": 10,
    }
else:
    app.conf.broker_heartbeat = 10
    app.conf.broker_transport_options = {"confirm_publish": True}


@app.task(name="work")
def work(number: int) -> int:
    return marks.work(number)


def main(jobs: int, backlog: int, over: Path) -> None:
    tail = marks.Tail(Path(os.environ[marks.PLACE]))
    lost, last, number = 0, time.monotonic(), 0
    while number < jobs or not over.exists():
        while number - lost - len(tail.finished) > backlog:
            if tail.grow():
                last = time.monotonic()
            elif time.monotonic() - last > SILENCE:
                lost, last = (
                    number - len(tail.finished),
                    time.monotonic(),
                )  # the remaining tasks are lost
            time.sleep(0.02)
        _insist(number)
        print(number, flush=True)
        number += 1


def _insist(number: int) -> None:
    while True:
        try:
            work.apply_async((number,))
        except Exception as error:
            print(f"{number} again: {error!r}", file=sys.stderr, flush=True)
            time.sleep(0.1)
        else:
            return


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
