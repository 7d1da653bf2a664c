"""Celery on Redis or RabbitMQ so that a task survives its worker, as its documentation says.

Late acknowledgement, rejection when a child is lost, prefetch 1; durable queues and publisher confirms on RabbitMQ, and
a heartbeat of ten seconds. The visibility timeout of Redis is an hour by default; here it is ten seconds, many times the
length of a task, and checked every second. Results go to Redis.
"""

# The peers are not installed where types are checked.
# mypy: disable-error-code="import-not-found,untyped-decorator"

from __future__ import annotations

import os

from celery import Celery

from bench.chaos import marks

URL = os.environ["BENCH_BROKER"]
app = Celery("chaos", broker=URL, backend=os.environ["BENCH_RESULTS"])
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


def submit(number: int) -> None:
    work.delay(number)
