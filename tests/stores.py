"""The store of the tests of the engine and of HTTP: SQLite, or the PostgreSQL database that BIDE_TEST_STORE names.

BIDE_TEST_STORE=postgresql://bide@127.0.0.1:5432/test make test ARGS=tests/integration
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from bide.core.clock import Clock
from bide.server.config import StoreConfig
from bide.server.store import Store
from bide.server.store.postgres.store import PostgresStore
from bide.server.store.sqlite.store import SqliteStore


def store_config(place: Path) -> StoreConfig:
    """The store of a service whose data is in `place`."""
    named = os.environ.get("BIDE_TEST_STORE")
    if named is None:
        return StoreConfig()
    return StoreConfig(url=f"{named}?schema=t{hashlib.sha256(str(place).encode()).hexdigest()[:16]}")


def make_store(place: Path, clock: Clock) -> Store:
    url = store_config(place).url
    return SqliteStore(place / "bide.db", clock) if url is None else PostgresStore(url, clock)
