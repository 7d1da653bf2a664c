"""Publishes hints to the broker: messages that name a queue which may have jobs. One thread sends them.

1. There is not one message per job: the broker holds at most two hints per worker and queue.
2. Only this thread waits for the broker. While the broker is unreachable, hints are kept as one number per queue and sent
   later.
3. A lost hint delays a job but does not lose it: the engine requests hints again for jobs that still wait.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Mapping
from typing import Any

from celery import Celery
from kombu import Connection, Producer

from bide.server.engine.celery.broker import HINT, TIMEOUT, Broker, broker_errors, queue_of

log = logging.getLogger("bide.engine")
PAUSE = 0.02  # seconds between two rounds, in a stream of submissions
CHECK = 3.0  # seconds without hints after which the connection is checked
RETRY_AFTER = 1.0  # seconds between two attempts to connect
MIN_LIMIT = 2  # hints that may wait in a queue without a known worker


class HintPublisher:
    """Sends hints from a thread of its own."""

    def __init__(self, broker: Broker, app: Celery) -> None:
        self._broker = broker
        self._app = app
        self._errors = broker_errors(app)
        self._lock = threading.Lock()
        self._wanted: dict[str, int] = {}
        self._limits: Mapping[str, int] = {}
        self._wake = threading.Event()
        self._closed = False
        self._connection: Connection | None = None
        self._thread = threading.Thread(target=self._run, name="bide-hints", daemon=True)
        self.problem: str | None = None
        self.sent = 0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Send the remaining hints if the broker is reachable, and end the thread."""
        self._closed = True
        self._wake.set()
        self._thread.join(TIMEOUT)

    def request(self, queue: str, jobs: int = 1) -> None:
        """Request hints for this many jobs. Return immediately."""
        with self._lock:
            self._wanted[queue] = self._wanted.get(queue, 0) + jobs
        self._wake.set()

    def set_workers(self, workers: Mapping[str, int]) -> None:
        """Set how many workers serve each queue, which limits the hints that wait in the broker."""
        self._limits = {queue: max(MIN_LIMIT, 2 * number) for queue, number in workers.items()}

    def _run(self) -> None:
        going = True
        while going:
            self._wake.wait(CHECK)
            self._wake.clear()
            going = not self._closed
            with self._lock:
                wanted, self._wanted = self._wanted, {}
            try:
                self._publish(wanted)
            except self._errors as error:
                self._failed(wanted, error)
            except Exception as error:
                log.exception("cannot send hints; retrying")
                self._failed(wanted, error)
            if going:
                time.sleep(PAUSE if self.problem is None else RETRY_AFTER)
        self._disconnect()

    def _failed(self, wanted: Mapping[str, int], error: BaseException) -> None:
        self._disconnect()
        for queue, jobs in wanted.items():
            self.request(queue, jobs)
        problem = self._broker.explain(error)
        if problem != self.problem:
            log.error("%s Jobs are still accepted; workers look for them every few seconds", problem)
        self.problem = problem

    def _publish(self, wanted: Mapping[str, int]) -> None:
        while True:
            fresh = self._connection is None
            try:
                if self._connection is None:
                    self._connection = self._broker.connect(self._app)
                    self._channel = self._connection.channel()
                producer = Producer(self._channel)
                for queue, jobs in wanted.items():
                    waiting = queue_of(queue)(self._channel).queue_declare().message_count
                    for _ in range(min(jobs, self._limits.get(queue, MIN_LIMIT) - waiting)):
                        self._send(producer, queue)
                if not wanted:  # only checks the connection
                    queue_of(self._app.conf.task_default_queue)(self._channel).queue_declare()
                break
            except self._errors:
                if fresh:
                    raise
                self._disconnect()  # the broker may have restarted since the last hint
        if self.problem is not None:
            self.problem = None
            log.info("the broker %s is reachable again", self._broker.shown)

    def _send(self, producer: Any, queue: str) -> None:
        # Directly into the queue, because a flush of the broker would remove a binding.
        options = {"exchange": "", "routing_key": queue, "retry": False, "ignore_result": True}
        self._app.send_task(HINT, (queue,), producer=producer, **options)
        self.sent += 1

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(Exception):
                connection.collect(TIMEOUT)
