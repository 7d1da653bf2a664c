"""RQ with retries, which also bring back jobs whose worker was lost, once its maintenance has noticed."""

# mypy: disable-error-code="import-not-found"

from __future__ import annotations

import os

from redis import Redis
from rq import Queue, Retry

from bench.chaos import marks

queue = Queue(connection=Redis.from_url(os.environ["BENCH_REDIS"]))


def work(number: int) -> int:
    return marks.work(number)


def submit(number: int) -> None:
    queue.enqueue(work, number, retry=Retry(max=10))
