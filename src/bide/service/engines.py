"""Which engine a setting names: the service's own children, or workers of Celery. What each needs is imported here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from bide.core.errors import SetupError
from bide.server.config import Config, EngineConfig
from bide.server.registry import Registry
from bide.server.store import SharedStore, Store
from bide.service.stores import NOT_SHARED

if TYPE_CHECKING:
    from bide.server.engine.broker import Broker
    from bide.server.engine.celery import CeleryEngine

ENGINES = ("embedded", "celery")


def check_engine(config: Config) -> None:
    """SetupError when its settings cannot go together."""
    engine = config.engine
    if engine.name not in ENGINES:
        raise SetupError(f"no engine {engine.name!r}: there are {' and '.join(ENGINES)}")
    if engine.name == "embedded":
        if engine.broker is not None:
            raise SetupError(
                "a broker is named, but the embedded engine needs none: say --engine celery, or leave --broker out"
            )
        return
    make_broker(engine)
    if config.store.url is None:
        raise SetupError(NOT_SHARED)


def make_broker(config: EngineConfig) -> Broker:
    if config.broker is None:
        raise SetupError(
            "the Celery engine needs a broker: --broker redis://host:6379/0 or amqp://user@host:5672//"
        )
    require_celery()
    from bide.server.engine.broker import Broker

    return Broker(config.broker)


def require_celery() -> None:
    try:
        import celery
        import redis  # noqa: F401 — only whether it is there
    except ImportError as error:
        raise SetupError(f"{error.name} is missing: pip install 'bide[celery]'") from None
    del celery


def make_celery_engine(registry: Registry, store: Store, config: Config) -> CeleryEngine:
    from bide.server.engine.celery import CeleryEngine
    from bide.server.engine.concurrency import served
    from bide.server.engine.hint_publisher import HintPublisher

    broker = make_broker(config.engine)
    hints = HintPublisher(broker, cast(Any, broker.celery(served(registry))))
    return CeleryEngine(registry, cast(SharedStore, store), hints)
