"""Tells workers through the broker in which queues there may be work: few messages, from one thread.

1. Never one message a job: as many as there are workers to wake, while fewer than twice that wait in the broker.
2. Nobody waits for the broker but this thread. While it is away wants are kept, one number a queue, and told when it
   is back.
3. A hint that is lost costs a moment, never a job: the engine asks again for whatever still waits.
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

from bide.server.engine.broker import HINT, PATIENCE, Broker, broker_errors, queue_of

log = logging.getLogger("bide.engine")
PAUSE = 0.02  # between two rounds, in a stream of submissions
CHECK = 3.0  # without anything to say, the broker is asked whether it is there
AGAIN = 1.0  # between two tries to reach it
FEWEST = 2  # hints that may wait in a queue that nobody is known to serve


class HintPublisher:
    """The one thread that speaks to the broker."""

    def __init__(self, broker: Broker, app: Celery) -> None:
        self._broker = broker
        self._app = app
        self._errors = broker_errors(app)
        self._lock = threading.Lock()
        self._wanted: dict[str, int] = {}
        self._most: Mapping[str, int] = {}
        self._ring = threading.Event()
        self._closed = False
        self._connection: Connection | None = None
        self._thread = threading.Thread(target=self._run, name="bide-hints", daemon=True)
        self.trouble: str | None = None
        self.sent = 0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Says what it still has to say, if the broker takes it."""
        self._closed = True
        self._ring.set()
        self._thread.join(PATIENCE)

    def want(self, queue: str, jobs: int = 1) -> None:
        """There may be so many more jobs to do. Returns at once."""
        with self._lock:
            self._wanted[queue] = self._wanted.get(queue, 0) + jobs
        self._ring.set()

    def allow(self, workers: Mapping[str, int]) -> None:
        """How many workers serve each queue."""
        self._most = {queue: max(FEWEST, 2 * number) for queue, number in workers.items()}

    def _run(self) -> None:
        going = True
        while going:
            self._ring.wait(CHECK)
            self._ring.clear()
            going = not self._closed
            with self._lock:
                wanted, self._wanted = self._wanted, {}
            try:
                self._tell(wanted)
            except self._errors as error:
                self._lost(wanted, error)
            except Exception as error:
                log.exception("hints cannot be sent; trying again")
                self._lost(wanted, error)
            if going:
                time.sleep(PAUSE if self.trouble is None else AGAIN)
        self._disconnect()

    def _lost(self, wanted: Mapping[str, int], error: BaseException) -> None:
        self._disconnect()
        for queue, jobs in wanted.items():
            self.want(queue, jobs)
        trouble = self._broker.explain(error)
        if trouble != self.trouble:
            log.error("%s Jobs are accepted; workers look for them every few seconds", trouble)
        self.trouble = trouble

    def _tell(self, wanted: Mapping[str, int]) -> None:
        fresh = self._connection is None
        try:
            self._tell_all(wanted)
        except self._errors:
            if fresh:
                raise
            self._disconnect()  # it may have been restarted since the last word
            self._tell_all(wanted)
        if self.trouble is not None:
            self.trouble = None
            log.info("the broker %s is back", self._broker.shown)

    def _tell_all(self, wanted: Mapping[str, int]) -> None:
        if self._connection is None:
            self._connection = self._broker.connect(self._app)
            self._channel = self._connection.channel()
        channel = self._channel
        producer = Producer(channel)
        for queue, jobs in wanted.items():
            waiting = queue_of(queue)(channel).queue_declare().message_count
            for _ in range(min(jobs, self._most.get(queue, FEWEST) - waiting)):
                self._send(producer, queue)
        if not wanted:  # only to know whether it is there
            queue_of(self._app.conf.task_default_queue)(channel).queue_declare()

    def _send(self, producer: Any, queue: str) -> None:
        # Straight into the queue: no binding that a flush of the broker could take away.
        options = {"exchange": "", "routing_key": queue, "retry": False, "ignore_result": True}
        self._app.send_task(HINT, (queue,), producer=producer, **options)
        self.sent += 1

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(Exception):
                connection.collect(PATIENCE)
