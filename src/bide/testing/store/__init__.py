"""The conformance suite of stores. Say how to create one:

    from bide.testing.store import StoreSuite

    class TestMyStore(StoreSuite):
        def store(self, place: Path, clock: Clock) -> Store:
            return MyStore(place / "jobs.db", clock)

The suite calls `store` again with the same place when a test reopens the store: the data must still be there. Stores at
different places must not share data. Needs pytest and pytest-asyncio.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

# Before the parts are imported, so that a failing assert in them shows its values.
_PARTS = (
    "harness",
    "breakers",
    "bulk",
    "changes",
    "claims",
    "concurrency",
    "events",
    "fairness",
    "inserts",
    "lists",
    "records",
    "relatives",
    "removal",
    "retry_budgets",
    "search",
    "statistics",
    "time",
    "uniqueness",
    "uploads",
)
pytest.register_assert_rewrite(*(f"{__name__}.{part}" for part in _PARTS))

from bide.core.clock import Clock  # noqa: E402
from bide.server.store import Store  # noqa: E402
from bide.testing.clock import ManualClock  # noqa: E402
from bide.testing.store.breakers import Breakers  # noqa: E402
from bide.testing.store.bulk import Bulk  # noqa: E402
from bide.testing.store.changes import Changes  # noqa: E402
from bide.testing.store.claims import Claims  # noqa: E402
from bide.testing.store.concurrency import Concurrency  # noqa: E402
from bide.testing.store.events import Events  # noqa: E402
from bide.testing.store.fairness import Fairness  # noqa: E402
from bide.testing.store.harness import StoreHarness  # noqa: E402
from bide.testing.store.inserts import Inserts  # noqa: E402
from bide.testing.store.lists import Lists  # noqa: E402
from bide.testing.store.records import Records  # noqa: E402
from bide.testing.store.relatives import Relatives  # noqa: E402
from bide.testing.store.removal import Removal  # noqa: E402
from bide.testing.store.retry_budgets import RetryBudgets  # noqa: E402
from bide.testing.store.search import Search  # noqa: E402
from bide.testing.store.statistics import StoredStatistics  # noqa: E402
from bide.testing.store.time import Time  # noqa: E402
from bide.testing.store.uniqueness import Uniqueness  # noqa: E402
from bide.testing.store.uploads import Uploads  # noqa: E402

__all__ = ["StoreHarness", "StoreSuite"]


@pytest.mark.asyncio
class StoreSuite(
    Inserts,
    Uniqueness,
    Claims,
    Fairness,
    Concurrency,
    Breakers,
    RetryBudgets,
    Changes,
    Relatives,
    Time,
    Removal,
    Lists,
    Search,
    Bulk,
    StoredStatistics,
    Events,
    Records,
    Uploads,
):
    """Every rule of `bide.server.store` that can be observed from outside."""

    def store(self, place: Path, clock: Clock) -> Store:
        """Return a store, not opened yet, with its data at `place`; an empty one on the first call."""
        raise NotImplementedError

    @pytest_asyncio.fixture
    async def harness(self, tmp_path: Path) -> AsyncIterator[StoreHarness]:
        clock = ManualClock()
        harness = StoreHarness(lambda: self.store(tmp_path, clock), clock)
        await harness.open()
        yield harness
        await harness.store.close()
