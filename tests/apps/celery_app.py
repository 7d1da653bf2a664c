"""Tasks of a plain Celery app, for a worker with Flower; REDIS_URL is the address of its Redis."""

from __future__ import annotations

import os
import time
from typing import Any

from celery import Celery

app = Celery(
    "celery_app", broker=os.environ.get("REDIS_URL", ""), backend=os.environ.get("REDIS_URL", "")
)
app.conf.update(task_track_started=True, broker_connection_retry_on_startup=True)


@app.task(name="add", bind=True)
def add(self: Any, a: int, b: int, seconds: float = 0.0) -> int:
    print(f"add has begun: {self.request.id}")  # Celery writes it to the log of the worker
    time.sleep(seconds)
    return a + b


@app.task(name="divide")
def divide(a: int, b: int) -> float:
    return a / b
