"""The store of the tests of the engine and of HTTP: SQLite, or the one that BIDE_TEST_STORE names.

BIDE_TEST_STORE=postgresql://bide@127.0.0.1:5432/test make test ARGS=tests/integration
BIDE_TEST_STORE=memory: make test ARGS=tests/integration/engine

`memory:` is the store of tests/memory_store.py, which `IN_MEMORY` adds to the stores of bide.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from bide.core.clock import Clock, SystemClock
from bide.core.errors import SetupError
from bide.server.config import StoreConfig
from bide.server.progress.memory import MemoryProgressStore
from bide.server.store import Store
from bide.server.store.postgres.store import PostgresStore
from bide.server.store.sqlite.store import SqliteStore
from bide.service.backends import STORES, StoreBackend
from bide.service.data_folder import DataFolder
from tests.memory_store import MemoryStore, Tables

_tables: dict[str, Tables] = {}  # by URL: they outlive a service, as a file does


class MemoryDatabase:
    """The `StoreDatabase` of a store in memory, which has no schema."""

    shown = "memory"

    def migrate(self) -> list[int]:
        return []

    def begin_epoch(self) -> str:
        raise SetupError("a store in memory has one epoch")

    def describe(self) -> str:
        return "in memory"

    def identity(self) -> str | None:
        return None


def _memory_store(config: StoreConfig, folder: DataFolder) -> Store:
    assert config.url is not None
    return MemoryStore(_tables.setdefault(config.url, Tables()), SystemClock())


IN_MEMORY = StoreBackend(
    _memory_store, lambda config, folder: MemoryDatabase(), lambda config: MemoryProgressStore()
)
if os.environ.get("BIDE_TEST_STORE") == "memory:":
    STORES["memory"] = IN_MEMORY


def store_config(place: Path) -> StoreConfig:
    """The store of a service whose data is in `place`."""
    named = os.environ.get("BIDE_TEST_STORE")
    if named is None:
        return StoreConfig()
    if named == "memory:":
        return StoreConfig(url=f"memory:{place}")
    return StoreConfig(url=f"{named}?schema=t{hashlib.sha256(str(place).encode()).hexdigest()[:16]}")


def make_store(place: Path, clock: Clock) -> Store:
    url = store_config(place).url
    if url is None:
        return SqliteStore(place / "bide.db", clock)
    if url.startswith("memory:"):
        return MemoryStore(_tables.setdefault(url, Tables()), clock)
    return PostgresStore(url, clock)
