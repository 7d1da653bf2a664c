"""A store in memory passes the suite: the operations of a backend are enough for a whole store."""

from __future__ import annotations

from pathlib import Path

from bide.core.clock import Clock
from bide.server.store import Store
from bide.testing.store import StoreSuite
from tests.memory_store import MemoryStore, Tables


class TestMemoryStore(StoreSuite):
    def store(self, place: Path, clock: Clock) -> Store:
        tables: dict[Path, Tables] = self.__dict__.setdefault("tables", {})
        return MemoryStore(tables.setdefault(place, Tables()), clock)
