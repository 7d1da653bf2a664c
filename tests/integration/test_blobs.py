"""Folder and bucket pass the same suite, and what only a bucket can get wrong."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from pathlib import Path

import pytest
import pytest_asyncio
from click.testing import CliRunner

from bide.cli import root
from bide.core.errors import JobError, SetupError, StorageUnavailable
from bide.server.blobs import Blobs, upload_key
from bide.server.blobs.factory import make_blobs
from bide.server.blobs.files import FileBlobs
from bide.server.blobs.s3 import S3Blobs
from bide.server.blobs.s3_client import BucketLocation, read_bucket_url
from bide.testing import ManualClock
from bide.testing.blobs import JOB, LARGE, BlobsSuite, PartStorageSuite, SigningSuite, read
from tests.servers.swift import Swift

BUCKET = "bide-tests"


@pytest.fixture
def bucket(swift: Swift, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a place of its own in the bucket."""
    for name, value in swift.environment.items():
        monkeypatch.setenv(name, value)
    swift.make_bucket(BUCKET)
    return swift.url(BUCKET, uuid.uuid4().hex)


@pytest_asyncio.fixture
async def blobs(bucket: str) -> AsyncIterator[S3Blobs]:
    blobs = S3Blobs(bucket)
    yield blobs
    await blobs.close()


class TestFiles(BlobsSuite):
    async def blobs(self, place: Path) -> Blobs:
        return FileBlobs(place / "blobs")


class TestS3(BlobsSuite, SigningSuite, PartStorageSuite):
    @pytest.fixture(autouse=True)
    def at(self, bucket: str) -> None:
        self.url = bucket

    async def blobs(self, place: Path) -> Blobs:
        return make_blobs(self.url)

    async def signing(self, place: Path) -> S3Blobs:
        return S3Blobs(self.url)

    async def parted(self, place: Path) -> S3Blobs:
        return S3Blobs(self.url)


async def test_the_service_signs_for_a_folder(tmp_path: Path, bucket: str) -> None:
    assert FileBlobs(tmp_path).signing(ManualClock()).receiver is not None
    assert FileBlobs(tmp_path).part_storage() is None, "a local folder receives uploads"
    s3 = S3Blobs(bucket)
    assert s3.signing(ManualClock()).receiver is None, "the storage receives the requests"
    await s3.close()


async def test_a_finished_file_on_the_same_disk_is_not_copied(tmp_path: Path) -> None:
    source = tmp_path / "finished"
    source.write_bytes(b"x")
    number = source.stat().st_ino
    kept = FileBlobs(tmp_path / "blobs")
    await kept.adopt(upload_key("u"), source, "text/plain")
    assert kept.path(upload_key("u")).stat().st_ino == number


async def test_what_is_fetched_comes_once_and_is_what_was_stored(
    blobs: S3Blobs, swift: Swift, tmp_path: Path
) -> None:
    file = await asyncio.to_thread(blobs.put, JOB, 1, "a", LARGE, "text/plain")
    path = await asyncio.to_thread(blobs.fetch, file, tmp_path)
    number = path.stat().st_ino
    assert (await asyncio.to_thread(blobs.fetch, file, tmp_path)).stat().st_ino == number
    client = swift.client()
    client.put_object(Bucket=BUCKET, Key=f"{blobs.location.prefix}{file.blob}", Body=b"other")
    client.close()
    with pytest.raises(JobError, match="FILE_CHANGED"):
        await asyncio.to_thread(blobs.fetch, file, tmp_path / "elsewhere")
    assert not [place for place in (tmp_path / "elsewhere").rglob("*") if place.is_file()]


# --- where it is


def test_an_address_is_read() -> None:
    assert read_bucket_url("s3://files") == BucketLocation("files", "", None, None)
    assert read_bucket_url(
        "s3://files/a/b/?region=eu-central-1&endpoint=https://s3.example.org"
    ) == BucketLocation("files", "a/b/", "https://s3.example.org", "eu-central-1")


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("s3://", "must have the form"),
        ("gs://files", "must have the form"),
        ("s3://files?acl=public", "unknown: acl"),
        ("s3://files?endpoint=s3.example.org", "must be a URL"),
        ("s3://key:secret@files", "AWS_ACCESS_KEY_ID"),
    ],
)
def test_an_address_that_is_none_says_why(url: str, says: str) -> None:
    with pytest.raises(SetupError, match=says) as caught:
        make_blobs(url)
    assert "secret@" not in str(caught.value)


# --- storage that is away, or refuses


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch) -> str:
    """An address where nothing listens."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "very-secret")
    return "s3://files/a?endpoint=http://127.0.0.1:9&region=us-east-1"


async def test_away_at_each_call(nobody: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bide.server.blobs.s3_client.ATTEMPTS", 1)
    kept = S3Blobs(nobody)
    source = tmp_path / "finished"
    source.write_bytes(LARGE)
    key = upload_key("u")
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: kept.open(key),
        lambda: kept.adopt(key, source, "text/plain"),
        lambda: kept.remove(JOB),
        lambda: kept.owners("", 0.0),
        lambda: kept.head(key),
        lambda: kept.begin(key, "text/plain"),
        lambda: kept.parts(key, "m"),
        lambda: kept.finish(key, "m", []),
        lambda: kept.abort(key, "m"),
        lambda: kept.put_object(key, b"x", "text/plain"),
        lambda: kept.put_part(key, "m", 1, b"x"),
        lambda: kept.remove_object(key),
        lambda: kept.multiparts("uploads"),
    ]
    outcomes = await asyncio.gather(*(call() for call in calls), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [StorageUnavailable] * len(calls)
    assert source.read_bytes() == LARGE  # no received byte is lost
    for what in (source, b"bytes"):
        with pytest.raises(JobError) as failed:
            await asyncio.to_thread(kept.put, JOB, 1, "a", what, "text/plain")
        assert (failed.value.code, failed.value.retryable) == ("STORAGE_UNAVAILABLE", True)
    with pytest.raises(SetupError, match="failed"):
        await kept.check()
    await kept.close()


async def test_broken_off_while_it_is_read(blobs: S3Blobs) -> None:
    """By a server that promises more than it sends."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + b"x" * 1000)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    kept = S3Blobs(f"s3://files?endpoint=http://127.0.0.1:{port}&region=us-east-1")
    async with aclosing(await kept.open("a")) as pieces:
        with pytest.raises(StorageUnavailable):
            async for _ in pieces:
                pass
    await kept.close()
    server.close()


async def test_a_wrong_credential_and_a_bucket_that_is_not_there(
    swift: Swift, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = S3Blobs(swift.url("bide-there-is-none"))
    with pytest.raises(SetupError, match="the bucket does not exist"):
        await elsewhere.check()
    await elsewhere.close()
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "very-secret")
    stranger = S3Blobs(bucket)
    with pytest.raises(SetupError, match="the secret key or the region is wrong") as caught:
        await stranger.check()
    assert "very-secret" not in str(caught.value)
    await stranger.close()


async def test_without_a_credential_it_says_where_to_put_one(
    bucket: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    kept = S3Blobs(bucket)
    with pytest.raises(StorageUnavailable, match="AWS_ACCESS_KEY_ID"):
        await kept.head("a")
    await kept.close()


def test_doctor_tells_whether_files_can_be_kept(bucket: str, swift: Swift) -> None:
    def ask(url: str) -> str:
        done = CliRunner().invoke(root, ["doctor", "--blobs", url])
        return next(line for line in done.output.splitlines() if "files: " in line)

    assert "written, read and removed" in ask(bucket)
    assert "wrong" in ask(swift.url("bide-there-is-none"))


async def test_a_key_with_anything_in_it_is_signed(blobs: S3Blobs) -> None:
    file = await asyncio.to_thread(blobs.put, JOB, 1, "a+b &c=ü%.txt", b"x", "text/plain")
    assert await read(blobs, file.blob) == b"x"
