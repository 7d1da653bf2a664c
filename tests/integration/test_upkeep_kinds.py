"""Lost workers of jobs whose kind only some of the services know, as during a rolling deploy."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bide import App, Context
from bide.core.job import cancel
from bide.core.record import Status
from bide.server import upkeep
from bide.server.blobs.files import FileBlobs
from bide.server.config import UpkeepConfig
from bide.server.estimates import Estimates
from bide.server.store.sqlite.store import SqliteStore
from bide.server.upkeep import Upkeep
from bide.testing.clock import ManualClock
from bide.testing.store.bench import Bench


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    clock = ManualClock()
    bench = Bench(lambda: SqliteStore(tmp_path / "bide.db", clock), clock)
    await bench.open()
    yield bench
    await bench.store.close()


def service(bench: Bench, folder: Path, *kinds: str) -> Upkeep:
    """The upkeep of a service whose app has these kinds. They must not run twice."""
    app = App()
    for kind in kinds:

        @app.job(name=kind, at_most_once=True)
        def handler(ctx: Context) -> None: ...

    return Upkeep(
        bench.store,
        FileBlobs(folder / "blobs"),
        app,
        Estimates(),
        UpkeepConfig(),
        lambda queue, kind: None,
        work=folder / "work",
    )


async def test_a_service_that_does_not_know_the_kind_leaves_a_lost_job_to_one_that_does(
    bench: Bench, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    job = await bench.run()
    await bench.store.void()
    other = service(bench, tmp_path, "new")
    for _ in range(3):
        await other.recover()
    left = await bench.get(job.id)
    assert (left.status, left.held, left.losses) == (Status.PROCESSING, True, 0)
    assert caplog.text.count("does not know its kind 'work'") == 1
    await service(bench, tmp_path, "work").recover()
    ended = await bench.get(job.id)
    assert ended.status is Status.ERROR and ended.error is not None
    assert ended.error.code == "WORKER_LOST"


async def test_a_job_whose_kind_no_service_knows_can_be_cancelled(bench: Bench, tmp_path: Path) -> None:
    job = await bench.run()
    await bench.store.void()
    other = service(bench, tmp_path, "new")
    await other.recover()
    await bench.apply(cancel(await bench.get(job.id)))
    await other.recover()
    assert (await bench.get(job.id)).status is Status.CANCELLED


async def test_jobs_of_unknown_kinds_do_not_keep_others_from_being_rescued(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "RESCUE_BATCH", 3)
    for _ in range(4):
        await bench.run()
    known = await bench.run(kind="new")
    await bench.store.void()
    other = service(bench, tmp_path, "new")
    for _ in range(3):
        await other.recover()
    assert (await bench.get(known.id)).status is Status.ERROR
