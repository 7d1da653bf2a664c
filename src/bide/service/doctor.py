"""Checks of Celery settings, broker and workers for `bide doctor`. Each returns a description or raises SetupError."""

from __future__ import annotations

from typing import Any

from bide.core.errors import SetupError
from bide.server.config import StoreConfig
from bide.server.engine.celery.broker import check, check_settings
from bide.server.engine.celery.worker_heartbeats import SILENT, WorkerHeartbeat, read
from bide.server.registry import Registry
from bide.server.runner.slots import served
from bide.server.worker.app_location import parse
from bide.service.assembly import shared_database_of
from bide.service.worker import RUNTIME
from bide.service.worker_runtime import WorkerRuntime


def celery_app(target: str) -> Any:
    """Return the Celery app MODULE:NAME; None if it is something else."""
    import importlib
    import sys

    from celery import Celery

    location = parse(target)
    sys.path[:0] = [folder for folder in location.search if folder not in sys.path]
    try:
        found = getattr(importlib.import_module(location.module), location.attribute, None)
    except ImportError:
        return None  # loading the app reports the error
    if not isinstance(found, Celery):
        return None
    if not isinstance(getattr(found, RUNTIME, None), WorkerRuntime):
        raise SetupError(
            f"{target} is a Celery app without bide: create it with app.celery(store, broker)"
        )
    return found


def runtime_of(app: Any) -> WorkerRuntime:
    runtime: WorkerRuntime = getattr(app, RUNTIME)
    return runtime


def settings(app: Any) -> str:
    wrong = list(check_settings(app))
    if wrong:
        raise SetupError("; ".join(wrong))
    return "early acknowledgement, no results, prefetch 1"


def broker(url: str, registry: Registry | None) -> str:
    waiting = check(url, served(registry) if registry is not None else ["default"])
    return "waiting hints: " + ", ".join(f"{queue} {number}" for queue, number in waiting.items())


def workers(store: str, registry: Registry | None) -> str:
    """List the live workers. Raise SetupError if there are none, or if they cannot run a kind of the app."""
    alive = read(shared_database_of(StoreConfig(url=store)).live_workers(SILENT))
    if not alive:
        raise SetupError(
            "no worker is running: start one with `bide worker MODULE:app --store … --broker …`"
        )
    wrong = [f"{w.name}: {trouble}" for w in alive for trouble in w.troubles]
    if registry is not None:
        wrong += _missing(alive, registry)
    if wrong:
        raise SetupError("; ".join(wrong))
    return "; ".join(f"{w.name}: {', '.join(w.queues)}, concurrency {w.concurrency}" for w in alive)


def _missing(alive: list[WorkerHeartbeat], registry: Registry) -> list[str]:
    found = []
    for queue, kinds in sorted(registry.queues.items()):
        serving = [worker for worker in alive if queue in worker.queues]
        if not serving:
            found.append(f"no worker serves queue {queue}: start one with --queues {queue}")
        for kind in kinds if serving else ():
            lacking = [worker.name for worker in serving if kind.name not in worker.kinds]
            if lacking:
                found.append(
                    f"kind {kind.name} is missing at {', '.join(lacking)}: restart with the current app"
                )
    return found
