"""Databases that share a folder or a bucket for their files, and backups that are restored beside newer files."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from bide.cli import root
from bide.core.jobs.record import Job
from bide.core.wire.http import job_id
from bide.server.blobs import UPLOADS, BlobMissing, Blobs, upload_key
from bide.server.blobs.factory import make_blobs
from bide.server.blobs.orphans import Orphans
from bide.server.store import NewJob
from bide.server.store.sqlite.store import SqliteStore
from bide.server.upload_record import Upload, Way, owner_of
from bide.testing.blobs import read
from tests.servers.swift import Swift

BUCKET = "bide-shared"
WEEK = 7 * 86400.0
HOUR = 3600.0


@pytest.fixture(params=["folder", "bucket"])
async def blobs(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Blobs]:
    place = str(tmp_path / "blobs")
    if request.param == "bucket":
        swift: Swift = request.getfixturevalue("swift")
        for name, value in swift.environment.items():
            monkeypatch.setenv(name, value)
        swift.make_bucket(BUCKET)
        place = swift.url(BUCKET, uuid.uuid4().hex)
    blobs = make_blobs(place)
    yield blobs
    await blobs.close()


class Installation:
    """A database, and what it has stored beside the others."""

    def __init__(self, store: SqliteStore, blobs: Blobs) -> None:
        self.store = store
        self.blobs = blobs
        self.orphans = Orphans(blobs, store.identity, WEEK)

    async def add(self) -> tuple[str, str]:
        """The blobs of a job and of an upload that the database knows."""
        now = self.store.now()
        job = Job(job_id(now, os.urandom(16)), "work", "default", now, now)
        await self.store.insert([NewJob(job, b"{}")])
        file = await asyncio.to_thread(self.blobs.put, job.id, 1, "a", b"a", "text/plain")
        upload = Upload(job_id(now, os.urandom(16)), Way.DIRECT, "a", now, now)
        await self.store.add_upload(upload)
        source = self.store.path.with_name("source")
        source.write_bytes(b"a")
        await self.blobs.adopt(upload_key(upload.id), source, "text/plain")
        return file.blob, upload_key(upload.id)

    async def sweep(self, now: float) -> None:
        await self.orphans.sweep("", "", self.store.known, now, HOUR)
        await self.orphans.sweep(UPLOADS, owner_of(""), self.store.known_uploads, now, HOUR)


@asynccontextmanager
async def installation(path: Path, blobs: Blobs) -> AsyncIterator[Installation]:
    path.parent.mkdir(exist_ok=True)
    store = SqliteStore(path)
    await store.open(lambda events: None)
    try:
        yield Installation(store, blobs)
    finally:
        await store.close()


async def readable(blobs: Blobs, keys: tuple[str, ...]) -> int:
    there = 0
    for key in keys:
        try:
            there += await read(blobs, key) == b"a"
        except BlobMissing:
            continue
    return there


async def test_files_of_another_database_are_not_removed(
    blobs: Blobs, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    later = time.time() + 2 * HOUR
    async with (
        installation(tmp_path / "one" / "bide.db", blobs) as one,
        installation(tmp_path / "two" / "bide.db", blobs) as two,
    ):
        files = (*await one.add(), *await two.add())
        await one.sweep(later - HOUR - 60)  # the first one, with nothing old enough: it claims the place
        for now in (later, later + 2 * WEEK):
            await two.sweep(now)
            assert not await two.orphans.may_remove(now)
        assert await readable(blobs, files) == 4
        assert not await blobs.quarantined("") and not await blobs.quarantined(UPLOADS)
    (complaint, *_) = [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR]
    assert "belong to store" in complaint and "--blobs" in complaint and ".store" in complaint


async def test_a_restored_older_database_keeps_newer_files_for_a_week(
    blobs: Blobs, tmp_path: Path
) -> None:
    path, newer, older = tmp_path / "bide.db", tmp_path / "newer.db", tmp_path / "older.db"
    async with installation(path, blobs) as before:
        kept = await before.add()
    shutil.copy(path, older)
    async with installation(path, blobs) as before:
        files = await before.add()
        await before.sweep(time.time() + 2 * HOUR)
        assert not await blobs.quarantined("")
    shutil.copy(path, newer)
    shutil.copy(older, path)
    now = time.time() + 2 * HOUR
    async with installation(path, blobs) as restored:
        await restored.sweep(now)
        await restored.sweep(now + WEEK - 3 * HOUR)
        assert await readable(blobs, files) == 2, "in quarantine"
        assert len(await blobs.quarantined("")) == len(await blobs.quarantined(UPLOADS)) == 1
    shutil.copy(newer, path)
    async with installation(path, blobs) as back:
        await back.sweep(now + 2 * WEEK)
        assert await readable(blobs, files) == 2
        assert not await blobs.quarantined("") and not await blobs.quarantined(UPLOADS)
    shutil.copy(older, path)
    async with installation(path, blobs) as restored:
        await restored.sweep(now)
        await restored.sweep(now + WEEK + HOUR)
        assert (await readable(blobs, files), await readable(blobs, kept)) == (0, 2)
        assert not await blobs.quarantined("") and not await blobs.quarantined(UPLOADS)


async def test_doctor_tells_whose_files_they_are(blobs: Blobs, tmp_path: Path) -> None:
    def ask(data: str) -> str:
        words = ["doctor", "--data", str(tmp_path / data)]
        place = getattr(blobs, "location", None)
        if place is not None:
            words += [
                "--blobs",
                f"s3://{place.bucket}/{place.prefix}?endpoint={place.endpoint}&region=us-east-1",
            ]
        else:
            words += ["--blobs", str(tmp_path / "blobs")]
        done = CliRunner().invoke(root, words)
        return next(line for line in done.output.splitlines() if "files: " in line)

    async with (
        installation(tmp_path / "one" / "bide.db", blobs) as one,
        installation(tmp_path / "two" / "bide.db", blobs),
    ):
        await one.sweep(time.time())
    assert (await asyncio.to_thread(ask, "one")).startswith("ok")
    wrong = await asyncio.to_thread(ask, "two")
    assert wrong.startswith("wrong") and "belong to store" in wrong and "--blobs" in wrong


async def test_doctor_looks_at_the_files_in_the_data_folder(tmp_path: Path) -> None:
    blobs = make_blobs(str(tmp_path / "data" / "blobs"))
    async with installation(tmp_path / "data" / "bide.db", blobs) as one:
        await one.sweep(time.time())
    words = ["doctor", "--data", str(tmp_path / "data")]
    done = await asyncio.to_thread(CliRunner().invoke, root, words)
    assert done.exit_code == 0, done.output
    async with installation(tmp_path / "other" / "bide.db", blobs) as other:
        shutil.copy(other.store.path, tmp_path / "data" / "bide.db")
    done = await asyncio.to_thread(CliRunner().invoke, root, words)
    assert done.exit_code == 1 and "belong to store" in done.output
