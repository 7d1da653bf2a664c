"""Celery's part in a worker: it carries hints from the broker to bide's engine, and leaves them there when that is busy.

1. No hint reaches Celery's pool: the strategy of its task acknowledges it and hands it over.
2. A hint that comes while nothing of its queue could start is held for a moment. Then it goes back, and the queue is
   left alone until something can: so hints go to workers that are free.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, Protocol

from celery import Celery, bootsteps
from kombu.exceptions import DecodeError

log = logging.getLogger("bide.worker")
HOLD = 0.05  # seconds that a hint is held, for a short job to end
HOME = "bide_courier"  # the attribute of a Celery app that names its courier


class HintReceiver(Protocol):
    """Who runs jobs; called from Celery's thread."""

    def room(self, queue: str) -> bool:
        """Whether a job of this queue could start now."""
        ...

    def hint(self, queue: str) -> None:
        """There may be work in this queue."""
        ...


class HintConsumer:
    """Between one Celery consumer and one runner. What touches the consumer happens in Celery's thread."""

    def __init__(self, runner: HintReceiver) -> None:
        self.closed = False
        self._runner = runner
        self._consumer: Any = None
        self._held: dict[str, tuple[Any, float]] = {}  # a hint a queue, and until when it is held
        self._left: set[str] = set()  # queues that nothing is taken from now

    def attach(self, consumer: Any) -> None:
        """A connection to the broker is made, or made anew: it takes from all its queues."""
        self._left.clear()
        self._held.clear()
        self._consumer = consumer

    def detach(self) -> None:
        self._consumer = None

    def take(self, message: Any, queue: str) -> None:
        if queue in self._held:  # one is enough
            message.ack_log_error(log, self._consumer.connection_errors)
            return
        self._held[queue] = (message, time.monotonic() + HOLD)
        self._decide(queue)

    def tick(self) -> None:
        """Has another look at what is held or left alone. Called every moment, in any thread."""
        for queue, (_, until) in list(self._held.items()):
            if self._runner.room(queue) or time.monotonic() > until:
                self._soon(self._decide, queue)
        for queue in list(self._left):
            if self._runner.room(queue):
                self._soon(self._return, queue)

    def close(self) -> None:
        """Takes nothing any more; in any thread but Celery's."""
        self.closed = True
        self._soon(lambda queue: None, "")  # Celery sees the end at its next round

    def _soon(self, do: Callable[[str], None], queue: str) -> None:
        consumer = self._consumer
        if consumer is not None:
            consumer.hub.call_soon(do, queue)

    def _decide(self, queue: str) -> None:
        """Followed, held for a moment more, or given back."""
        if queue not in self._held or self._consumer is None:
            return
        message, until = self._held[queue]
        errors = self._consumer.connection_errors
        if not self.closed and self._runner.room(queue):
            del self._held[queue]
            message.ack_log_error(log, errors)
            self._runner.hint(queue)
        elif self.closed or time.monotonic() > until:
            del self._held[queue]
            self._left.add(queue)
            if self._consumer.task_consumer:
                self._consumer.task_consumer.cancel_by_queue(queue)
            message.reject_log_error(log, errors, requeue=True)

    def _return(self, queue: str) -> None:
        consumer = self._consumer
        if consumer is None or not consumer.task_consumer or self.closed or queue not in self._left:
            return
        self._left.discard(queue)
        consumer.task_consumer.add_queue(consumer.app.amqp.queues[queue])
        consumer.task_consumer.consume()
        self._runner.hint(queue)  # whatever came meanwhile


class ConnectionStep(bootsteps.StartStopStep):  # type: ignore[misc]  # Celery has no types
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
    courier: HintConsumer = getattr(app, HOME)

    def handle(message: Any, body: Any, *_: Any, **__: Any) -> None:
        try:
            (queue,) = message.payload[0]
        except (DecodeError, TypeError, ValueError, KeyError, IndexError) as error:
            log.error("a hint that cannot be read was dropped: %s", error)
            message.ack_log_error(log, consumer.connection_errors)
            return
        courier.take(message, str(queue))

    return handle
