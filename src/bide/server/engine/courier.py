"""Celery's part in a worker: it carries hints from the broker to bide's engine, and leaves them there when that is busy.

1. No hint reaches Celery's pool: the strategy of its task acknowledges it and hands it over.
2. A hint that comes while nothing of its queue could start goes back, and the queue is left alone until something can:
   so hints go to workers that are free.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Protocol

from celery import Celery, bootsteps
from kombu.exceptions import DecodeError

log = logging.getLogger("bide.worker")
HOME = "bide_courier"  # the attribute of a Celery app that names its courier


class Runner(Protocol):
    """Who runs jobs; called from Celery's thread."""

    def room(self, queue: str) -> bool:
        """Whether a job of this queue could start now."""
        ...

    def hint(self, queue: str) -> None:
        """There may be work in this queue."""
        ...


class Courier:
    """Between one Celery consumer and one runner."""

    def __init__(self, runner: Runner) -> None:
        self.closed = False
        self._runner = runner
        self._consumer: Any = None
        self._left: set[str] = set()  # queues that nothing is taken from now

    def attach(self, consumer: Any) -> None:
        """A connection to the broker is made, or made anew: it takes from all its queues."""
        self._left.clear()
        self._consumer = consumer

    def detach(self) -> None:
        self._consumer = None

    def take(self, message: Any, queue: str) -> None:
        errors = self._consumer.connection_errors
        if self._runner.room(queue):
            message.ack_log_error(log, errors)
            self._runner.hint(queue)
            return
        message.reject_log_error(log, errors, requeue=True)
        if queue not in self._left:
            self._left.add(queue)
            self._soon(self._leave, queue)

    def come_back(self) -> bool:
        """Takes again from queues that there is room for; whether some are still left alone. Any thread may call it."""
        for queue in list(self._left):
            if not self.closed and self._runner.room(queue):
                self._left.discard(queue)
                self._soon(self._return, queue)
        return bool(self._left)

    def _soon(self, do: Callable[[str], None], queue: str) -> None:
        consumer = self._consumer
        if consumer is not None:
            consumer.hub.call_soon(do, queue)

    def _leave(self, queue: str) -> None:
        consumer = self._consumer
        if consumer is not None and consumer.task_consumer and queue in self._left:
            consumer.task_consumer.cancel_by_queue(queue)

    def _return(self, queue: str) -> None:
        consumer = self._consumer
        if consumer is None or not consumer.task_consumer or queue in self._left or self.closed:
            return
        if not consumer.task_consumer.consuming_from(queue):
            consumer.task_consumer.add_queue(consumer.app.amqp.queues[queue])
            consumer.task_consumer.consume()


class Gate(bootsteps.StartStopStep):  # type: ignore[misc]  # Celery has no types
    """Tells the courier which connection hints come from."""

    requires = ("celery.worker.consumer.tasks:Tasks",)

    def start(self, c: Any) -> None:
        getattr(c.app, HOME).attach(c)

    def stop(self, c: Any) -> None:
        getattr(c.app, HOME).detach()

    def shutdown(self, c: Any) -> None:
        self.stop(c)


def strategy(task: Any, app: Celery, consumer: Any, **_: Any) -> Callable[..., None]:
    """What Celery does with a message of the task `bide.hint`."""
    courier: Courier = getattr(app, HOME)

    def handle(message: Any, body: Any, *_: Any, **__: Any) -> None:
        try:
            (queue,) = message.payload[0]
        except (DecodeError, TypeError, ValueError, KeyError, IndexError) as error:
            log.error("a hint that cannot be read was dropped: %s", error)
            message.ack_log_error(log, consumer.connection_errors)
            return
        courier.take(message, str(queue))

    return handle
