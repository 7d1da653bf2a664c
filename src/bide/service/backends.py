"""Creates the backends that the settings name: store, engine, progress store and event loop.

The dependencies of each backend are imported here, when a setting names it, so that the others need not be installed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from bide.core.errors import SetupError
from bide.server.config import Config, EngineConfig, StoreConfig
from bide.server.progress import ProgressStore
from bide.server.progress.memory import MemoryProgressStore
from bide.server.registry import Registry
from bide.server.store import SharedStore, Store, StoreDatabase
from bide.service.data_folder import DataFolder

if TYPE_CHECKING:
    from bide.server.engine.celery.broker import Broker
    from bide.server.engine.celery.engine import CeleryEngine
    from bide.server.store.postgres.server import PostgresServer

ENGINES = ("embedded", "celery")
REDIS_SCHEMES = ("redis", "rediss", "unix")
# Seconds that queue counts are cached; PostgreSQL takes 70 ms to count 300,000 waiting jobs.
COUNTS_AGE = 1.0
NOT_SHARED = (
    "workers need a store that several processes can share, and SQLite allows one service only: "
    "name a database with --store postgresql://…"
)


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's factory if uvloop is installed; None selects the standard event loop."""
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


# --- stores


def make_store(config: StoreConfig, folder: DataFolder) -> Store:
    """Return the store without opening it."""
    if config.url is None:
        from bide.server.store.sqlite.store import SqliteStore

        return SqliteStore(folder.database)
    _require_psycopg()
    from bide.server.store.postgres.store import PostgresStore

    return PostgresStore(config.url, connections=config.connections, counts_age=COUNTS_AGE)


def make_shared_store(config: StoreConfig) -> SharedStore:
    """Return the store of a worker without opening it. It receives only events of the worker's own jobs."""
    if config.url is None:
        raise SetupError(NOT_SHARED)
    _require_psycopg()
    from bide.server.store.postgres.store import PostgresStore

    return PostgresStore(config.url, connections=config.connections, held_only=True)


def make_database(config: StoreConfig, folder: DataFolder) -> StoreDatabase:
    """Return the database of the store that `make_store` returns."""
    if config.url is None:
        from bide.server.store.sqlite.file import SqliteFile

        return SqliteFile(folder.database)
    return make_server(config.url)


def make_server(url: str) -> PostgresServer:
    _require_psycopg()
    from bide.server.store.postgres.server import PostgresServer

    return PostgresServer(url)


def _require_psycopg() -> None:
    try:
        import psycopg  # noqa: F401
    except ImportError as error:
        what = f"{error.name} is not installed" if error.name else f"psycopg cannot be used ({error})"
        raise SetupError.not_installed(what, "postgres") from None


# --- engines


def check_engine(config: Config) -> None:
    """Raise SetupError if the settings of the engine contradict each other."""
    engine = config.engine
    if engine.name not in ENGINES:
        raise SetupError(f"unknown engine {engine.name!r}: use {' or '.join(ENGINES)}")
    if engine.name == "embedded":
        if engine.broker is not None:
            raise SetupError(
                "the embedded engine uses no broker: add --engine celery, or remove --broker"
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
    from bide.server.engine.celery.broker import Broker

    return Broker(config.broker)


def require_celery() -> None:
    try:
        import celery
        import redis  # noqa: F401
    except ImportError as error:
        raise SetupError.not_installed(f"{error.name} is not installed", "celery") from None
    del celery


def make_celery_engine(registry: Registry, store: Store, config: Config) -> CeleryEngine:
    from bide.server.engine.celery.engine import CeleryEngine
    from bide.server.engine.celery.hint_publisher import HintPublisher
    from bide.server.runner.slots import served

    broker = make_broker(config.engine)
    hints = HintPublisher(broker, cast(Any, broker.celery(served(registry))))
    return CeleryEngine(registry, cast(SharedStore, store), hints)


# --- progress stores


def make_progress_store(
    progress: str | None, store: StoreConfig, broker: str | None = None
) -> ProgressStore:
    """Return the progress store that replicas share: the Redis that `progress` names, else the broker if it is a
    Redis, else a table in the store's database. A service on SQLite has no replicas and uses memory.
    """
    url = progress or (broker if broker and urlsplit(broker).scheme in REDIS_SCHEMES else None)
    if url is not None:
        if urlsplit(url).scheme not in REDIS_SCHEMES:
            raise SetupError(
                f"--progress {urlsplit(url).scheme or url!r} is not a Redis: write redis://host:6379/0"
            )
        try:
            from bide.server.progress.redis import RedisProgressStore
        except ModuleNotFoundError as error:
            raise SetupError.not_installed(f"{error.name} is not installed", "redis") from None
        return RedisProgressStore(url)
    if store.url is not None:
        server = make_server(store.url)
        from bide.server.progress.postgres import PostgresProgressStore

        return PostgresProgressStore(server)
    return MemoryProgressStore()
