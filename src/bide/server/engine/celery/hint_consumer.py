"""Celery's part in a worker: passes hints from the broker to bide's engine, and leaves them in the broker while the
engine is busy.

1. No hint reaches Celery's pool: the strategy of its task acknowledges it and passes it on.
2. A hint that arrives while no job of its queue can start is held for HOLD seconds. Then it is requeued, and this worker
   consumes nothing from that queue until a job can start. So hints reach workers that have free slots.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, Protocol

from celery import Celery, bootsteps
from kombu.exceptions import DecodeError

log = logging.getLogger("bide.worker")
HOLD = 0.05  # seconds that a hint is held, in which a short job may end
ATTRIBUTE = "bide_hint_consumer"  # the attribute of a Celery app that holds its HintConsumer


class HintReceiver(Protocol):
    """Runs jobs. Called from Celery's thread."""

    def has_capacity(self, queue: str) -> bool:
        """Whether a job of this queue can start now."""
        ...

    def hint(self, queue: str) -> None:
        """Report that this queue may have jobs."""
        ...


class HintConsumer:
    """Connects one Celery consumer with one receiver. Only Celery's thread touches the consumer."""

    def __init__(self, receiver: HintReceiver) -> None:
        self.closed = False
        self._receiver = receiver
        self._consumer: Any = None
        self._held: dict[str, tuple[Any, float]] = {}  # one hint per queue, and until when it is held
        self._paused: set[str] = set()  # queues that this worker does not consume now

    def attach(self, consumer: Any) -> None:
        """Called after each connection to the broker, which consumes from all queues again."""
        self._paused.clear()
        self._held.clear()
        self._consumer = consumer

    def detach(self) -> None:
        self._consumer = None

    def handle(self, message: Any, queue: str) -> None:
        if queue in self._held:  # one hint per queue is enough
            message.ack_log_error(log, self._consumer.connection_errors)
            return
        self._held[queue] = (message, time.monotonic() + HOLD)
        self._decide(queue)

    def tick(self) -> None:
        """Check held hints and paused queues again. Called periodically, from any thread."""
        for queue, (_, until) in list(self._held.items()):
            if self._receiver.has_capacity(queue) or time.monotonic() > until:
                self._soon(self._decide, queue)
        for queue in list(self._paused):
            if self._receiver.has_capacity(queue):
                self._soon(self._resume, queue)

    def close(self) -> None:
        """Stop consuming. Called from any thread but Celery's."""
        self.closed = True
        self._soon(lambda queue: None, "")  # wakes Celery's loop, which then notices the shutdown

    def _soon(self, do: Callable[[str], None], queue: str) -> None:
        consumer = self._consumer
        if consumer is not None:
            consumer.hub.call_soon(do, queue)

    def _decide(self, queue: str) -> None:
        """Pass a held hint on, keep holding it, or requeue it."""
        if queue not in self._held or self._consumer is None:
            return
        message, until = self._held[queue]
        errors = self._consumer.connection_errors
        if not self.closed and self._receiver.has_capacity(queue):
            del self._held[queue]
            message.ack_log_error(log, errors)
            self._receiver.hint(queue)
        elif self.closed or time.monotonic() > until:
            del self._held[queue]
            self._paused.add(queue)
            if self._consumer.task_consumer:
                self._consumer.task_consumer.cancel_by_queue(queue)
            message.reject_log_error(log, errors, requeue=True)

    def _resume(self, queue: str) -> None:
        consumer = self._consumer
        if consumer is None or not consumer.task_consumer or self.closed or queue not in self._paused:
            return
        self._paused.discard(queue)
        consumer.task_consumer.add_queue(consumer.app.amqp.queues[queue])
        consumer.task_consumer.consume()
        self._receiver.hint(queue)  # jobs may have arrived during the pause


class ConnectionStep(bootsteps.StartStopStep):  # type: ignore[misc]  # Celery has no types
    """Gives each new connection of Celery's consumer to the HintConsumer."""

    requires = ("celery.worker.consumer.tasks:Tasks",)

    def start(self, c: Any) -> None:
        getattr(c.app, ATTRIBUTE).attach(c)

    def stop(self, c: Any) -> None:
        getattr(c.app, ATTRIBUTE).detach()

    def shutdown(self, c: Any) -> None:
        self.stop(c)


def strategy(task: Any, app: Celery, consumer: Any, **_: Any) -> Callable[..., None]:
    """Celery's handler for messages of the task `bide.hint`."""
    hints: HintConsumer = getattr(app, ATTRIBUTE)

    def handle(message: Any, body: Any, *_: Any, **__: Any) -> None:
        try:
            (queue,) = message.payload[0]
        except (DecodeError, TypeError, ValueError, KeyError, IndexError) as error:
            log.error("dropped a hint that cannot be decoded: %s", error)
            message.ack_log_error(log, consumer.connection_errors)
            return
        hints.handle(message, str(queue))

    return handle
