"""A store of one's own, added as CONTRIBUTING.md says: the service runs jobs on it."""

from __future__ import annotations

from pathlib import Path

import pytest

from bide.core.jobs.record import Status
from bide.server.config import Config, StoreConfig, UpkeepConfig, WorkerConfig
from bide.service.backends import STORES
from bide.testing.engine.harness import EngineHarness
from tests.memory_store import MemoryStore
from tests.stores import IN_MEMORY


async def test_a_job_runs_on_a_store_that_was_added_by_its_scheme(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(STORES, "memory", IN_MEMORY)
    config = Config(
        data=tmp_path / "data",
        store=StoreConfig(url=f"memory:{tmp_path}"),
        worker=WorkerConfig(workers=1, grace=2.5, drain=0.0),
        upkeep=UpkeepConfig(interval=0.05),
    )
    harness = EngineHarness("tests.apps.handlers", config)
    await harness.start()
    try:
        assert isinstance(harness.store, MemoryStore)
        job = await harness.run("fails", {"log": str(tmp_path / "log"), "times": 2})
        assert job.status is Status.DONE
        assert (await harness.statuses(job.id)).count("RETRYING") == 2
    finally:
        await harness.stop()
