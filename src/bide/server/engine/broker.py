"""The broker: its address, the Celery app that speaks to it, and which settings of Celery would do harm.

1. A password is never shown: `shown` is the address without it.
2. A message is a hint and nothing else. It is acknowledged before it is acted on, has no result, is not written to disk,
   and says only in which queue there may be work.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from celery import Celery
from kombu import Connection, Exchange, Queue
from kombu.exceptions import OperationalError

from bide.core.errors import SetupError
from bide.server.registry import DEFAULT_QUEUE

HINT = "bide.hint"
STRATEGY = "bide.server.engine.hint_consumer:strategy"
PATIENCE = 5.0  # seconds for the broker to answer
POOLS = ("solo", "threads")

# Whatever harms is named here with what it does; `judge` compares.
SETTINGS: dict[str, Any] = {
    "task_ignore_result": True,
    "task_acks_late": False,
    "task_default_delivery_mode": "transient",
    "worker_prefetch_multiplier": 1,
    "worker_pool": "solo",
    "broker_connection_retry_on_startup": True,
    "broker_connection_max_retries": None,
    "broker_heartbeat": 20,
    "task_default_queue": DEFAULT_QUEUE,
    "worker_enable_prefetch_count_reduction": False,
    # Redis: a queue that is taken from again is looked at after this many seconds at most.
    "broker_transport_options": {"polling_interval": 0.2},
    "worker_cancel_long_running_tasks_on_connection_loss": True,  # there are none: without a warning
}
_WHY = {
    "task_ignore_result": "hints have no results: set it to True",
    "task_acks_late": "hints are acknowledged early, and leases recover what a lost worker had: set it to False",
    "worker_prefetch_multiplier": "a worker would keep hints from others that are free: set it to 1",
    "worker_pool": "bide's own children run the handlers, Celery's pool would only stand beside them: set it to 'solo'",
}


class Broker:
    """A Redis or a RabbitMQ by its address."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("redis", "rediss", "amqp", "amqps"):
            raise SetupError(
                f"no broker {parts.scheme or url!r}: write redis://host:6379/0 or amqp://user@host:5672//"
            )
        self.url = url
        user, _, host = parts.netloc.rpartition("@")
        name = user.partition(":")[0]
        self.shown = urlunsplit(
            parts._replace(netloc=f"{name}@{host}" if name else host, query="", fragment="")
        )

    @property
    def is_redis(self) -> bool:
        return self.url.startswith("redis")

    def celery(self, queues: Iterable[str], **settings: Any) -> Celery:
        """A Celery app with the right settings; `settings` are Celery's own, and outrank them."""
        app = Celery("bide", broker=self.url, set_as_current=False)
        app.conf.update(SETTINGS)
        app.conf.task_queues = [queue_of(name) for name in sorted(queues)]
        app.conf.update(settings)

        @app.task(name=HINT, ignore_result=True, Strategy=STRATEGY)  # type: ignore[untyped-decorator]
        def hint(queue: str) -> None:
            """Never run: the strategy hands it to bide's engine."""

        return app

    def connect(self, app: Celery) -> Connection:
        """For a thread of its own; nobody waits for a silent broker for longer than PATIENCE."""
        limits = (
            {"socket_timeout": PATIENCE, "socket_connect_timeout": PATIENCE}
            if self.is_redis
            else {"read_timeout": PATIENCE, "write_timeout": PATIENCE}
        )
        options = {**app.conf.broker_transport_options, **limits}
        connection = app.connection_for_write(
            connect_timeout=PATIENCE, transport_options=options, heartbeat=0
        )
        # Once and at once: left to itself it would try for ever, or wait for two seconds before it gives up.
        connection.ensure_connection(max_retries=1, interval_start=0, interval_step=0)
        return connection

    def explain(self, error: BaseException) -> str:
        """Why it cannot be used, and what to do."""
        text = " ".join(str(error).split()) or type(error).__name__
        if any(word in text.lower() for word in ("auth", "access_refused", "access refused", "noperm")):
            return f"the broker {self.shown} refuses this user ({text}): check user and password in its address"
        return f"the broker {self.shown} cannot be reached ({text}): is it running, and is the address right?"


def queue_of(name: str) -> Queue:
    """Durable, for Celery's other programs expect that of a name; what is in it is not."""
    return Queue(name, Exchange(name, type="direct"), routing_key=name)


def check(url: str, queues: Iterable[str]) -> dict[str, int]:
    """How many hints wait in each queue; SetupError when the broker cannot be used."""
    broker = Broker(url)
    app = broker.celery(queues)
    errors = broker_errors(app)
    try:
        with broker.connect(app) as connection:
            channel = connection.channel()
            return {q: queue_of(q)(channel).queue_declare().message_count for q in sorted(queues)}
    except errors as error:
        raise SetupError(broker.explain(error)) from None


def broker_errors(app: Celery) -> tuple[type[BaseException], ...]:
    """What a broker that is away, or was, is told by."""
    connection = app.connection_for_write()
    return (OperationalError, OSError, *connection.connection_errors, *connection.channel_errors)


def judge(app: Celery) -> Iterator[str]:
    """What is wrong with the settings of a Celery app that shall carry hints."""
    conf = app.conf
    for name, why in _WHY.items():
        if conf.get(name) != SETTINGS[name] and not (name == "worker_pool" and conf.get(name) in POOLS):
            yield f"{name} is {conf.get(name)!r}: {why}"
    if conf.result_backend not in (None, "disabled", "disabled://"):
        yield "result_backend is set: jobs and their results are in the store, nothing would ever be in it: remove it"
    if "visibility_timeout" in conf.broker_transport_options:
        yield (
            "broker_transport_options has a visibility_timeout: it is for tasks that are acknowledged late, "
            "here leases (--lease) say when a job was lost: remove it"
        )
    if conf.task_queue_max_priority is not None or any(
        (queue.queue_arguments or {}).get("x-max-priority") for queue in conf.task_queues or ()
    ):
        yield (
            "task_queue_max_priority, or x-max-priority of a queue, is set: the store decides which job is next, "
            "by the job's own priority; remove it"
        )
    if conf.task_always_eager:
        yield "task_always_eager is set: no hint would ever reach a worker: remove it"
    if conf.task_create_missing_queues is False:
        yield "task_create_missing_queues is False: a queue that only a submission names would get no hints"
