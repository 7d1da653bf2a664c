"""A Celery app as in "First steps with Celery": broker, result backend, defaults otherwise. With BENCH_LATE, a task is
acknowledged after it has run.
"""

# The peers are not installed where types are checked.
# mypy: disable-error-code="import-not-found,untyped-decorator"

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

from celery import Celery

from bench.service.peers import gates

RESULTS = os.environ["BENCH_RESULTS"]
LATE = bool(os.environ.get("BENCH_LATE"))
app = Celery("bench", broker=os.environ["BENCH_BROKER"], backend=RESULTS)
app.conf.broker_connection_retry_on_startup = True
app.conf.task_acks_late = LATE


@app.task
def noop(n: int) -> int:
    return n


@app.task
def gate(folder: str) -> None:
    gates.enter(Path(folder))


@app.task
def stamp(port: int) -> None:
    now = time.time()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(repr(now).encode(), ("127.0.0.1", port))
