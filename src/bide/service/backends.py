"""Creates the backends that the settings name: store, engine, progress store and event loop.

`STORES` has the store of each URL scheme. The dependencies of each backend are imported here, when a setting names it, so
that the others need not be installed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from urllib.parse import urlsplit

from bide.core.errors import SetupError
from bide.server.config import Config, EngineConfig, StoreConfig
from bide.server.progress import ProgressStore
from bide.server.progress.memory import MemoryProgressStore
from bide.server.registry import Registry
from bide.server.store import SharedDatabase, SharedStore, Store, StoreDatabase
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


class StoreBackend(NamedTuple):
    """The factories of one kind of store. The stores that they return are not open yet."""

    store: Callable[[StoreConfig, DataFolder], Store]
    database: Callable[[StoreConfig, DataFolder], StoreDatabase]
    progress: Callable[[StoreConfig], ProgressStore]
    # The store of a worker, which receives only events of the worker's own jobs, and its database.
    shared: Callable[[StoreConfig], SharedStore] | None = None
    shared_database: Callable[[StoreConfig], SharedDatabase] | None = None


def _sqlite_store(config: StoreConfig, folder: DataFolder) -> Store:
    from bide.server.store.sqlite.store import SqliteStore

    return SqliteStore(folder.database)


def _sqlite_database(config: StoreConfig, folder: DataFolder) -> StoreDatabase:
    from bide.server.store.sqlite.file import SqliteFile

    return SqliteFile(folder.database)


def _postgres_store(config: StoreConfig, folder: DataFolder) -> Store:
    _require_psycopg()
    from bide.server.store.postgres.store import PostgresStore

    return PostgresStore(_url(config), connections=config.connections, counts_age=COUNTS_AGE)


def _postgres_shared(config: StoreConfig) -> SharedStore:
    _require_psycopg()
    from bide.server.store.postgres.store import PostgresStore

    return PostgresStore(_url(config), connections=config.connections, held_only=True)


def _postgres_database(config: StoreConfig) -> PostgresServer:
    _require_psycopg()
    from bide.server.store.postgres.server import PostgresServer

    return PostgresServer(_url(config))


def _postgres_progress(config: StoreConfig) -> ProgressStore:
    server = _postgres_database(config)
    from bide.server.progress.postgres import PostgresProgressStore

    return PostgresProgressStore(server)


def _url(config: StoreConfig) -> str:
    assert config.url is not None
    return config.url


_SQLITE = StoreBackend(_sqlite_store, _sqlite_database, lambda config: MemoryProgressStore())
_POSTGRES = StoreBackend(
    _postgres_store,
    lambda config, folder: _postgres_database(config),
    _postgres_progress,
    _postgres_shared,
    _postgres_database,
)
# By the scheme of the URL that --store names. Without a URL the store is a file in the data folder.
STORES: dict[str, StoreBackend] = {"": _SQLITE, "postgresql": _POSTGRES, "postgres": _POSTGRES}


def store_backend(config: StoreConfig) -> StoreBackend:
    if config.url is None:
        return STORES[""]
    scheme = config.url.partition(":")[0].lower() if ":" in config.url else ""
    if not scheme or scheme not in STORES:
        raise SetupError(
            f"unknown store {scheme or config.url!r}: write postgresql://user@host:5432/database"
        )
    return STORES[scheme]


def make_store(config: StoreConfig, folder: DataFolder) -> Store:
    return store_backend(config).store(config, folder)


def make_shared_store(config: StoreConfig) -> SharedStore:
    make = store_backend(config).shared
    if make is None:
        raise SetupError(NOT_SHARED)
    return make(config)


def make_database(config: StoreConfig, folder: DataFolder) -> StoreDatabase:
    """Returns the database of the store that `make_store` returns."""
    return store_backend(config).database(config, folder)


def make_shared_database(config: StoreConfig) -> SharedDatabase:
    """Returns the database of the store that `make_shared_store` returns."""
    make = store_backend(config).shared_database
    if make is None:
        raise SetupError(NOT_SHARED)
    return make(config)


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
    if store_backend(config.store).shared is None:
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
    return store_backend(store).progress(store)
