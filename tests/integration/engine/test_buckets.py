"""A service whose files are in a bucket: handlers, callers and the upkeep see what they would see with a folder."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bide.core.jobs.record import Status
from bide.server.blobs import BlobMissing
from bide.server.config import BlobsConfig, Config, UpkeepConfig, WorkerConfig
from bide.testing.blobs import read
from bide.testing.engine.harness import EngineHarness, result
from tests.integration.asgi import call
from tests.integration.cable import Cable
from tests.servers.swift import Swift
from tests.stores import store_config

BUCKET = "bide-engine"


@pytest.fixture
def bucket(swift: Swift, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in swift.environment.items():
        monkeypatch.setenv(name, value)
    swift.make_bucket(BUCKET)
    return swift.url(BUCKET, uuid.uuid4().hex)


@asynccontextmanager
async def serving(folder: Path, url: str) -> AsyncIterator[EngineHarness]:
    config = Config(
        data=folder / "data",
        store=store_config(folder),
        blobs=BlobsConfig(url),
        worker=WorkerConfig(workers=2, grace=2.5, drain=0.0),
        upkeep=UpkeepConfig(interval=0.05),
    )
    harness = EngineHarness("tests.apps.handlers", config)
    await harness.start()
    try:
        yield harness
    finally:
        await harness.stop()


async def test_files_and_results_go_through_the_bucket(bucket: str, tmp_path: Path) -> None:
    async with serving(tmp_path, bucket) as harness:
        job, large = await asyncio.gather(harness.run("files"), harness.run("large", {"size": 100_000}))
        assert result(job)["text"] == "hello.txt: hello"
        assert result(job)["copied"] == "hello"
        assert not list((tmp_path / "data").glob("blobs/*"))

        shown = await call(harness.service.http, "GET", f"/jobs/{job.id}/files/hello.txt")
        assert (shown.status, shown.body) == (200, b"hello")
        assert shown.headers["content-disposition"].startswith("attachment")
        part = {"Range": "bytes=1-3"}
        some = await call(harness.service.http, "GET", f"/jobs/{job.id}/files/hello.txt", headers=part)
        assert (some.status, some.body) == (206, b"ell")
        whole = await call(harness.service.http, "GET", f"/jobs/{large.id}/result")
        assert json.loads(whole.body) == "x" * 100_000

        gone = await call(harness.service.http, "DELETE", f"/jobs/{job.id}")
        assert gone.status == 204
        with pytest.raises(BlobMissing):
            await harness.service.blobs.open(job.files[0].blob)


async def test_what_is_over_leaves_the_bucket(bucket: str, tmp_path: Path) -> None:
    async with serving(tmp_path, bucket) as harness:
        blobs = harness.service.blobs
        orphan = await asyncio.to_thread(blobs.put, "0" * 26, 1, "a", b"a", "text/plain")
        job = await harness.run("forgettable")
        async with asyncio.timeout(30):
            while set(await blobs.owners("", harness.store.now() + 60)) & {job.id}:
                await asyncio.sleep(0.05)
        await harness.service.upkeep.clean_up._sweep(harness.store.now() + 7200)
        assert await read(blobs, orphan.blob) == b"a", "it is only in quarantine"
        await harness.service.upkeep.clean_up._sweep(harness.store.now() + 8 * 86400)
        with pytest.raises(BlobMissing):
            await blobs.open(orphan.blob)


async def test_storage_that_comes_back_has_lost_nothing(
    swift: Swift, bucket: str, tmp_path: Path
) -> None:
    cable = Cable(swift.endpoint)
    await cable.mend()
    async with serving(tmp_path, bucket.replace(swift.endpoint, cable.url)) as harness:
        before = await harness.run("large", {"size": 100_000})
        await cable.cut()
        try:
            url = f"/jobs/{before.id}/result"
            refused, job = await asyncio.gather(
                call(harness.service.http, "GET", url), harness.run("large", {"size": 100_000})
            )
            assert (refused.status, refused.json()["code"]) == (503, "storage-unavailable")
            assert int(refused.headers["retry-after"]) >= 1
            assert job.status is Status.ERROR and job.error is not None
            assert (job.error.code, job.error.retryable) == ("STORAGE_UNAVAILABLE", True)
            deleted = await harness.run("child", {"number": 1})
            gone = await call(harness.service.http, "DELETE", f"/jobs/{deleted.id}")
            assert gone.status == 204  # its record is the truth
        finally:
            await cable.mend()
        again = await call(harness.service.http, "POST", f"/jobs/{job.id}/retry")
        assert again.status == 202
        assert (await harness.ended(job.id)).status is Status.DONE
        for done in (before, job):
            answer = await call(harness.service.http, "GET", f"/jobs/{done.id}/result")
            assert json.loads(answer.body) == "x" * 100_000
    await cable.cut()
