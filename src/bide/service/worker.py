"""A Celery worker with bide's engine in the same process, started and stopped by Celery bootsteps.

1. The worker runtime starts before Celery's consumer and stops after it, so that every hint has a receiver.
2. The first SIGTERM or SIGINT drains; another one, or SIGQUIT, returns the running jobs to the queue immediately.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from typing import Any

from celery import Celery, bootsteps, signals
from celery.worker import state

from bide.core.errors import SetupError
from bide.server.config import Config
from bide.server.engine.celery.broker import POOLS
from bide.server.engine.celery.hint_consumer import ATTRIBUTE, ConnectionStep
from bide.server.registry import Registry
from bide.server.runner.slots import served
from bide.server.worker.app_location import AppLocation
from bide.service.backends import check_engine, make_broker
from bide.service.worker_runtime import WorkerRuntime

RUNTIME = "bide_runtime"  # the attribute of a Celery app with its WorkerRuntime


class RuntimeStep(bootsteps.StartStopStep):  # type: ignore[misc]  # Celery has no types
    """Starts and stops the worker runtime."""

    requires = ("celery.worker.components:Hub", "celery.worker.components:Pool")

    def create(self, w: Any) -> None:
        pool = getattr(w.pool_cls, "__module__", "").rpartition(".")[2]
        pool = {"thread": "threads"}.get(pool, pool)
        if pool not in POOLS or not w.use_eventloop:
            raise SetupError(
                f"Celery's pool is {pool!r}, but the handlers run in bide's own children, whose number -c sets: "
                "start the worker with --pool solo"
            )

    def start(self, w: Any) -> None:
        runtime: WorkerRuntime = getattr(w.app, RUNTIME)
        self._stopping = lambda **_: runtime.stop()
        signals.worker_shutting_down.connect(self._stopping)
        runtime.start(sorted(w.app.amqp.queues.consume_from), w.concurrency)

    def stop(self, w: Any) -> None:
        runtime: WorkerRuntime = getattr(w.app, RUNTIME)
        if not runtime.ending:  # Celery stops without a signal
            runtime.stop()
        runtime.join()
        signals.worker_shutting_down.disconnect(self._stopping)

    def terminate(self, w: Any) -> None:
        runtime: WorkerRuntime = getattr(w.app, RUNTIME)
        if not runtime.ending:
            runtime.stop()
        runtime.stop()
        self.stop(w)


def make_celery(
    registry: Registry, locate: Callable[[], AppLocation], config: Config, **settings: Any
) -> Celery:
    """Return a Celery app whose workers run this app's jobs; `settings` are Celery's."""
    check_engine(config)
    app = make_broker(config.engine).celery(served(registry), **settings)
    runtime = WorkerRuntime(registry, locate, config)
    setattr(app, RUNTIME, runtime)
    setattr(app, ATTRIBUTE, runtime.hint_consumer)
    app.steps["worker"].add(RuntimeStep)
    app.steps["consumer"].add(ConnectionStep)
    return app


def run_worker(
    registry: Registry,
    location: AppLocation,
    config: Config,
    *,
    queues: Sequence[str] | None,
    log_level: str,
    keep_logging: bool = False,
    started: Callable[[str], None] = lambda name: None,
) -> int:
    """Run until a signal stops it; return the exit code. With `keep_logging`, Celery does not configure logging."""
    app = make_celery(registry, lambda: location, config, worker_hijack_root_logger=not keep_logging)
    runtime: WorkerRuntime = getattr(app, RUNTIME)
    names = list(queues) if queues else sorted(served(registry))
    # Until Celery installs its own handlers. The runtime may run jobs by then.
    for stop_signal in (signal.SIGTERM, signal.SIGINT):
        signal.signal(stop_signal, lambda *_: setattr(state, "should_stop", 0))
    runtime.start(names, config.worker.workers)
    started(runtime.name)
    host, _, number = runtime.name.rpartition(".")
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
        if not runtime.ending:
            runtime.stop()
        runtime.join()
    return 1 if runtime.failure is not None else int(worker.exitcode or 0)
