"""A real Celery worker with bide's engine beside it: Celery's own bootsteps start and stop it.

1. bide's half starts before Celery's consumer and stops after it: no hint comes while there is nobody to take it.
2. The first SIGTERM or SIGINT drains; another, or SIGQUIT, hands the running jobs back at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from celery import Celery, bootsteps, signals

from bide.core.errors import SetupError
from bide.server.config import Config
from bide.server.engine.broker import POOLS
from bide.server.engine.concurrency import served
from bide.server.engine.hint_consumer import ATTRIBUTE, ConnectionStep
from bide.server.registry import Registry
from bide.server.worker.app_location import AppLocation
from bide.service.engines import check_engine, make_broker
from bide.service.node import Node

NODE = "bide_node"  # the attribute of a Celery app that names its node


class Work(bootsteps.StartStopStep):  # type: ignore[misc]  # Celery has no types
    """bide's half of a worker."""

    requires = ("celery.worker.components:Hub", "celery.worker.components:Pool")

    def create(self, w: Any) -> None:
        pool = getattr(w.pool_cls, "__module__", "").rpartition(".")[2]
        pool = {"thread": "threads"}.get(pool, pool)
        if pool not in POOLS or not w.use_eventloop:
            raise SetupError(
                f"Celery's pool is {pool!r}, but bide's own children run the handlers, and -c says how many: "
                "start it with --pool solo"
            )

    def start(self, w: Any) -> None:
        node: Node = getattr(w.app, NODE)
        self._stopping = lambda **_: node.stop()
        signals.worker_shutting_down.connect(self._stopping)
        node.start(sorted(w.app.amqp.queues.consume_from), w.concurrency)

    def stop(self, w: Any) -> None:
        node: Node = getattr(w.app, NODE)
        if not node.ending:  # no signal, but another way to the end
            node.stop()
        node.join()
        signals.worker_shutting_down.disconnect(self._stopping)

    def terminate(self, w: Any) -> None:
        node: Node = getattr(w.app, NODE)
        if not node.ending:
            node.stop()
        node.stop()
        self.stop(w)


def make_celery(
    registry: Registry, locate: Callable[[], AppLocation], config: Config, **settings: Any
) -> Celery:
    """A Celery app whose workers run this app's jobs; `settings` are Celery's own."""
    check_engine(config)
    app = make_broker(config.engine).celery(served(registry), **settings)
    node = Node(registry, locate, config)
    setattr(app, NODE, node)
    setattr(app, ATTRIBUTE, node.hint_consumer)
    app.steps["worker"].add(Work)
    app.steps["consumer"].add(ConnectionStep)
    return app


def run_worker(
    registry: Registry,
    location: AppLocation,
    config: Config,
    *,
    queues: Sequence[str] | None,
    log_level: str,
    started: Callable[[str], None] = lambda name: None,
) -> int:
    """Works until a signal ends it; the exit code."""
    app = make_celery(registry, lambda: location, config)
    node: Node = getattr(app, NODE)
    names = list(queues) if queues else sorted(served(registry))
    node.start(names, config.worker.workers)
    started(node.name)
    host, _, number = node.name.rpartition(".")
    worker = app.Worker(
        hostname=f"bide-{number}@{host}",
        queues=names,
        concurrency=config.worker.workers,
        pool="solo",
        loglevel=log_level,
        quiet=True,
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
    )
    try:
        worker.start()
    finally:
        if not node.ending:
            node.stop()
        node.join()
    return 1 if node.failure is not None else int(worker.exitcode or 0)
