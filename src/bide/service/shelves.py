"""Where replicas share the progress of running jobs: Redis, a table of the store's database, or memory for one alone."""

from __future__ import annotations

from urllib.parse import urlsplit

from bide.core.errors import SetupError
from bide.server.config import StoreConfig
from bide.server.progress import ProgressStore
from bide.server.progress.memory import MemoryProgressStore
from bide.service.stores import make_server

REDIS = ("redis", "rediss", "unix")


def make_shelf(progress: str | None, store: StoreConfig, broker: str | None = None) -> ProgressStore:
    """What `progress` names; else the broker, if that is a Redis, else what goes with the store."""
    url = progress or (broker if broker and urlsplit(broker).scheme in REDIS else None)
    if url is not None:
        if urlsplit(url).scheme not in REDIS:
            raise SetupError(
                f"progress cannot be kept in {urlsplit(url).scheme or url!r}: write redis://host:6379/0"
            )
        try:
            from bide.server.progress.redis import RedisProgressStore
        except ModuleNotFoundError as error:
            raise SetupError(f"{error.name} is missing: pip install 'bide[redis]'") from None
        return RedisProgressStore(url)
    if store.url is not None:
        server = make_server(store.url)
        from bide.server.progress.postgres import PostgresProgressStore

        return PostgresProgressStore(server)
    return MemoryProgressStore()
