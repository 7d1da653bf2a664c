"""Lost workers of jobs whose kind only some of the services know, as during a rolling deploy."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bide import App, Context
from bide.core.jobs.record import Status
from bide.core.jobs.state_machine import cancel
from bide.server import upkeep
from bide.server.blobs.files import FileBlobs
from bide.server.blobs.orphans import Orphans
from bide.server.config import Config, UpkeepConfig
from bide.server.estimates import Estimates
from bide.server.store.sqlite.store import SqliteStore
from bide.server.upkeep import CleanUp, Upkeep
from bide.testing.clock import ManualClock
from bide.testing.store.harness import StoreHarness


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[StoreHarness]:
    clock = ManualClock()
    harness = StoreHarness(lambda: SqliteStore(tmp_path / "bide.db", clock), clock)
    await harness.open()
    yield harness
    await harness.store.close()


def service(harness: StoreHarness, folder: Path, *kinds: str) -> Upkeep:
    """The upkeep of a service whose app has these kinds. They must not run twice."""
    app = App()
    for kind in kinds:

        @app.job(name=kind, at_most_once=True)
        def handler(ctx: Context) -> None: ...

    blobs = FileBlobs(folder / "blobs")
    orphans = Orphans(blobs, harness.store.identity, UpkeepConfig().quarantine)
    clean_up = CleanUp(harness.store, blobs, orphans, folder / "work", UpkeepConfig())
    return Upkeep(harness.store, app, Estimates(), Config(), lambda queue, kind: None, clean_up)


async def test_a_service_that_does_not_know_the_kind_leaves_a_lost_job_to_one_that_does(
    harness: StoreHarness, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    job = await harness.run()
    await harness.store.void()
    other = service(harness, tmp_path, "new")
    for _ in range(3):
        await other.recover()
    left = await harness.get(job.id)
    assert (left.status, left.held, left.losses) == (Status.PROCESSING, True, 0)
    assert caplog.text.count("does not know its kind 'work'") == 1
    await service(harness, tmp_path, "work").recover()
    ended = await harness.get(job.id)
    assert ended.status is Status.ERROR and ended.error is not None
    assert ended.error.code == "WORKER_LOST"


async def test_a_job_whose_kind_no_service_knows_can_be_cancelled(
    harness: StoreHarness, tmp_path: Path
) -> None:
    job = await harness.run()
    await harness.store.void()
    other = service(harness, tmp_path, "new")
    await other.recover()
    await harness.apply(cancel(await harness.get(job.id)))
    await other.recover()
    assert (await harness.get(job.id)).status is Status.CANCELLED


async def test_jobs_of_unknown_kinds_do_not_keep_others_from_being_rescued(
    harness: StoreHarness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "RESCUE_BATCH", 3)
    for _ in range(4):
        await harness.run()
    known = await harness.run(kind="new")
    await harness.store.void()
    other = service(harness, tmp_path, "new")
    for _ in range(3):
        await other.recover()
    assert (await harness.get(known.id)).status is Status.ERROR
