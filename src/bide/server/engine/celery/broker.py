"""The broker: its URL, the Celery app that uses it, and the Celery settings that do not fit.

1. A password is never shown: `shown` is the URL without it.
2. A message is only a hint. It is acknowledged before it is handled, has no result, is not written to disk, and contains
   only the name of a queue that may have jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from celery import Celery
from kombu import Connection, Exchange, Queue
from kombu.exceptions import OperationalError

from bide.core.errors import SetupError
from bide.server.config import without_password
from bide.server.registry import DEFAULT_QUEUE

HINT = "bide.hint"
STRATEGY = "bide.server.engine.celery.hint_consumer:strategy"
TIMEOUT = 5.0  # seconds for the broker to answer
POOLS = ("solo", "threads")

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
    # Redis: seconds until a queue that is consumed again is polled.
    "broker_transport_options": {"polling_interval": 0.2},
    # Hints never run as tasks, so this has no effect but to avoid Celery's warning.
    "worker_cancel_long_running_tasks_on_connection_loss": True,
}
# The remedies that `check_settings` reports if an app has another value.
_WHY = {
    "task_ignore_result": "hints have no results: set it to True",
    "task_acks_late": "hints are acknowledged early, and leases recover the jobs of a lost worker: set it to False",
    "worker_prefetch_multiplier": "a busy worker would prefetch hints that free workers need: set it to 1",
    "worker_pool": "bide's own children run the handlers, and Celery's pool would be unused: set it to 'solo'",
}


class Broker:
    """A Redis or RabbitMQ server, given by its URL."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("redis", "rediss", "amqp", "amqps"):
            raise SetupError(
                f"unknown broker {parts.scheme or url!r}: write redis://host:6379/0 or amqp://user@host:5672//"
            )
        self.url = url
        bare = parts._replace(netloc=without_password(parts.netloc), query="", fragment="")
        self.shown = urlunsplit(bare)

    @property
    def is_redis(self) -> bool:
        return self.url.startswith("redis")

    def celery(self, queues: Iterable[str], **settings: Any) -> Celery:
        """A Celery app with bide's settings; `settings` are Celery's own and take precedence."""
        app = Celery("bide", broker=self.url, set_as_current=False)
        app.conf.update(SETTINGS)
        app.conf.task_queues = [queue_of(name) for name in sorted(queues)]
        app.conf.update(settings)

        @app.task(name=HINT, ignore_result=True, Strategy=STRATEGY)  # type: ignore[untyped-decorator]
        def hint(queue: str) -> None:
            """Never runs: the strategy passes the hint to bide's engine."""

        return app

    def connect(self, app: Celery) -> Connection:
        """Connect, in a thread of the caller's. No operation waits for a silent broker longer than TIMEOUT."""
        limits = (
            {"socket_timeout": TIMEOUT, "socket_connect_timeout": TIMEOUT}
            if self.is_redis
            else {"read_timeout": TIMEOUT, "write_timeout": TIMEOUT}
        )
        options = {**app.conf.broker_transport_options, **limits}
        connection = app.connection_for_write(
            connect_timeout=TIMEOUT, transport_options=options, heartbeat=0
        )
        # One retry without delay. Kombu's defaults retry for ever, or wait two seconds before they fail.
        connection.ensure_connection(max_retries=1, interval_start=0, interval_step=0)
        return connection

    def explain(self, error: BaseException) -> str:
        """The reason why the broker cannot be used, and what to do."""
        text = " ".join(str(error).split()) or type(error).__name__
        if any(word in text.lower() for word in ("auth", "access_refused", "access refused", "noperm")):
            return (
                f"the broker {self.shown} rejects this user ({text}): check user and password in its URL"
            )
        return f"the broker {self.shown} cannot be reached ({text}): check that it is running and that the URL is right."


def queue_of(name: str) -> Queue:
    """A durable queue, because Celery's other programs declare it as durable. Its messages are transient."""
    return Queue(name, Exchange(name, type="direct"), routing_key=name)


def check(url: str, queues: Iterable[str]) -> dict[str, int]:
    """How many hints wait in each queue. SetupError if the broker cannot be used."""
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
    """The exceptions that an unreachable or lost broker raises."""
    connection = app.connection_for_write()
    return (OperationalError, OSError, *connection.connection_errors, *connection.channel_errors)


def check_settings(app: Celery) -> Iterator[str]:
    """The problems with the settings of a Celery app that is to carry hints."""
    conf = app.conf
    for name, why in _WHY.items():
        if conf.get(name) != SETTINGS[name] and not (name == "worker_pool" and conf.get(name) in POOLS):
            yield f"{name} is {conf.get(name)!r}: {why}"
    if conf.result_backend not in (None, "disabled", "disabled://"):
        yield "result_backend is set: bide keeps results in its store and never uses it: remove it"
    if "visibility_timeout" in conf.broker_transport_options:
        yield (
            "broker_transport_options has a visibility_timeout: it is for tasks that are acknowledged late, "
            "and bide detects lost jobs by their leases (--lease): remove it"
        )
    if conf.task_queue_max_priority is not None or any(
        (queue.queue_arguments or {}).get("x-max-priority") for queue in conf.task_queues or ()
    ):
        yield (
            "task_queue_max_priority, or x-max-priority of a queue, is set: the store picks the next job by the job's "
            "own priority: remove it"
        )
    if conf.task_always_eager:
        yield "task_always_eager is set: hints would never reach a worker: remove it"
    if conf.task_create_missing_queues is False:
        yield "task_create_missing_queues is False: a queue that only a submission names would get no hints: remove it"
