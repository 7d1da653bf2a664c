"""Uploads that two replicas receive into a bucket: any of them continues, and no byte is on their disks."""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
import uuid
from base64 import b64encode
from collections.abc import AsyncIterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from bide.core.jobs.record import Job
from bide.server.blobs import upload_key
from bide.server.blobs.s3 import S3Blobs
from bide.server.config import BlobsConfig, Config, StoreConfig, UploadConfig
from bide.server.store import ClaimRequest, StoreUnavailable
from bide.server.upload_record import Upload, UploadStatus
from bide.server.uploads import bucket as bucket_module
from bide.server.worker.app_location import AppLocation
from bide.service.assembly import assemble
from tests.integration.asgi import call
from tests.integration.cable import Cable
from tests.integration.http.service import Reply, scope
from tests.servers.postgres import Postgres
from tests.servers.swift import Swift

BUCKET = "bide-uploads"
MIB = 1024 * 1024
SIZE = 11 * MIB + 7
CONTENT = os.urandom(SIZE)
SHA256 = hashlib.sha256(CONTENT).hexdigest()
TUS = {"tus-resumable": "1.0.0"}
OFFSET = "application/offset+octet-stream"
WEEKS = 15 * 86400.0


class Replica:
    """A service whose jobs are not run: only its store, storage and HTTP."""

    def __init__(self, folder: Path, store: str, blobs: str) -> None:
        location = AppLocation("tests.apps.uploads")
        config = Config(
            data=folder, store=StoreConfig(url=store), blobs=BlobsConfig(blobs), uploads=UploadConfig()
        )
        self.service = assemble(location.load(), location, config)
        self.uploads = self.service.uploads
        self.folder = folder
        self.peers: Sequence[Replica] = []

    @property
    def blobs(self) -> S3Blobs:
        assert isinstance(self.service.blobs, S3Blobs)
        return self.service.blobs

    async def open(self) -> None:
        self.service.folder.lock()
        await self.service.store.open(self.service.on_events)
        self.uploads.open(self.service.folder.replica)

    async def close(self) -> None:
        await self.uploads.close()
        await self.service.blobs.close()
        await self.service.store.close()
        self.service.folder.unlock()

    async def call(self, method: str, path: str, **more: Any) -> Any:
        return await call(self.service.http, method, path, **more)

    async def begin(self, size: int | None = SIZE, **metadata: str) -> str:
        told = {**TUS, "upload-length": str(size)}
        if size is None:
            told = {**TUS, "upload-defer-length": "1"}
        words = [f"{name} {b64encode(value.encode()).decode()}" for name, value in metadata.items()]
        reply = await self.call("POST", "/files", headers={**told, "upload-metadata": ",".join(words)})
        assert reply.status == 201, reply.body
        return str(reply.headers["location"])

    async def patch(self, place: str, first: int, last: int, **more: str) -> Any:
        """Sends these bytes of the content."""
        told = {**TUS, "content-type": OFFSET, "upload-offset": str(first), **more}
        return await self.call("PATCH", place, body=CONTENT[first:last], headers=told)

    async def offset(self, place: str) -> int:
        reply = await self.call("HEAD", place, headers=TUS)
        assert reply.status == 200, (reply.status, reply.body)
        return int(reply.headers["upload-offset"])

    async def upload(self, place: str) -> Upload:
        found = await self.service.store.upload(place.rpartition("/")[2])
        assert isinstance(found, Upload)
        return found

    async def whole(self, place: str) -> None:
        """The file is the content, and nothing else of the upload is in the bucket or on a disk."""
        upload = await self.upload(place)
        assert (upload.status, upload.sha256, upload.bucket) == (UploadStatus.DONE, SHA256, None)
        assert (await self.call("GET", place)).body == CONTENT
        await self.settle()
        assert await self.keys() == [upload.blob]
        assert await self.blobs.multiparts("uploads") == []
        assert not list((self.folder / "uploads").iterdir())

    async def settle(self) -> None:
        """Superseded objects are removed."""
        for replica in self.peers:
            assert replica.uploads._bucket is not None
            await replica.uploads._bucket.close()

    async def keys(self) -> list[str]:
        found: list[str] = []
        prefix = self.blobs.location.prefix
        async for page in self.blobs._client.pages("list_objects_v2", Prefix=f"{prefix}uploads/"):
            found += [item["Key"].removeprefix(prefix) for item in page.get("Contents", ())]
        return found


class SlowPatch:
    """A PATCH whose client stops in the middle."""

    def __init__(self, replica: Replica, place: str, first: int, last: int, announced: int) -> None:
        self._pieces = [CONTENT[first:last]]
        self._more = asyncio.Event()
        self.reading = asyncio.Event()
        self.reply: Reply | None = None
        told = {**TUS, "content-type": OFFSET, "upload-offset": str(first), "host": "service.example"}
        lines = {**told, "content-length": str(announced)}
        self.task = asyncio.ensure_future(self._run(replica, scope("PATCH", place, lines)))

    async def _run(self, replica: Replica, scope: Any) -> None:
        sent: list[Any] = []

        async def receive() -> dict[str, Any]:
            if self._pieces:
                return {"type": "http.request", "body": self._pieces.pop(), "more_body": True}
            self.reading.set()
            await self._more.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)

        await replica.service.http(scope, receive, send)
        if sent:
            lines = {k.decode(): v.decode() for k, v in sent[0]["headers"]}
            self.reply = Reply(sent[0]["status"], lines, b"".join(m.get("body", b"") for m in sent[1:]))

    async def leave(self) -> None:
        self._more.set()
        await self.task


@pytest_asyncio.fixture
async def cable(swift: Swift) -> AsyncIterator[Cable]:
    async with Cable(swift.endpoint) as cable:
        yield cable


@pytest_asyncio.fixture
async def replicas(
    swift: Swift, postgres: Postgres, cable: Cable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Sequence[Replica]]:
    for name, value in swift.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("bide.server.blobs.s3_client.ATTEMPTS", 1)
    monkeypatch.setattr(bucket_module, "PART", 5 * MIB)  # the smallest that storage accepts
    swift.make_bucket(BUCKET)
    blobs = swift.url(BUCKET, uuid.uuid4().hex).replace(swift.endpoint, cable.url)
    store = f"{postgres.url}?schema=t{uuid.uuid4().hex[:16]}"
    found = [Replica(tmp_path / name, store, blobs) for name in "ab"]
    for replica in found:
        replica.peers = found
        await replica.open()
    yield found
    for replica in found:
        await replica.close()


async def test_any_replica_continues(replicas: Sequence[Replica]) -> None:
    one, two = replicas
    place = await one.begin(kind="look", filename="a.bin")
    end = 6 * MIB
    assert (await one.patch(place, 0, end)).headers["upload-offset"] == str(end)
    stored = (await one.upload(place)).bucket
    assert stored is not None and [size for size, _ in stored.parts] == [5 * MIB]
    assert await two.keys() == [stored.tail]
    assert await two.offset(place) == end
    wrong = await two.patch(place, 0, 10)
    assert (wrong.status, wrong.json()["code"]) == (409, "wrong-offset")
    reply = await two.patch(place, end, end + 1000)
    assert (reply.status, reply.headers["upload-offset"]) == (204, str(end + 1000))
    reply = await one.patch(place, end + 1000, SIZE)
    assert (reply.status, reply.headers["upload-offset"]) == (204, str(SIZE)), reply.body
    await two.whole(place)
    (job,) = await two.service.store.get([reply.headers["job-location"].rpartition("/")[2]])
    assert isinstance(job, Job)
    repeated = await two.call("HEAD", place, headers=TUS)
    assert repeated.headers["repr-digest"] == reply.headers["repr-digest"]


async def test_one_replica_neither_copies_nor_reads_what_it_has_sent(
    replicas: Sequence[Replica], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = replicas
    called: list[str] = []
    send = type(one.blobs._client).call

    async def counted(self: Any, operation: str, **given: Any) -> Any:
        called.append(operation)
        return await send(self, operation, **given)

    monkeypatch.setattr(type(one.blobs._client), "call", counted)
    place = await one.begin()
    for first, last in ((0, 2 * MIB), (2 * MIB, 7 * MIB), (7 * MIB, SIZE)):
        assert (await one.patch(place, first, last)).status == 204
    assert "get_object" not in called and "copy_object" not in called
    assert called.count("upload_part") == 3 and called.count("put_object") == 2
    await one.whole(place)
    # A file below one part is one object from the beginning.
    called.clear()
    small = await two.begin(3000)
    assert (await two.patch(small, 0, 3000)).status == 204
    assert called == ["put_object"]
    assert (await one.call("GET", small)).body == CONTENT[:3000]


async def test_small_pieces_and_no_size_in_advance(replicas: Sequence[Replica]) -> None:
    place, first = await replicas[0].begin(None), 0
    for number, last in enumerate((1000, 1000, 5000, 6 * MIB, SIZE - 1)):
        reply = await replicas[number % 2].patch(place, first, last)
        assert reply.headers["upload-offset"] == str(last), reply.body
        first = last
    reply = await replicas[1].patch(place, first, SIZE, **{"upload-length": str(SIZE)})
    assert reply.status == 204, reply.body
    await replicas[0].whole(place)
    empty = await replicas[0].begin(0)
    upload = await replicas[0].upload(empty)
    assert (upload.status, upload.size) == (UploadStatus.DONE, 0)
    assert (await replicas[1].call("GET", empty)).body == b""


async def test_the_newer_of_two_writers_wins(replicas: Sequence[Replica]) -> None:
    one, two = replicas
    place = await one.begin()
    await one.patch(place, 0, 1000)
    slow = SlowPatch(one, place, 1000, 6 * MIB, SIZE - 1000)
    await asyncio.wait_for(slow.reading.wait(), 60)
    assert await two.offset(place) == 1000, "nothing more is recorded"
    assert (await two.patch(place, 1000, 7 * MIB)).status == 204
    await slow.leave()
    assert await two.offset(place) == 7 * MIB, "the older one has changed nothing"
    late = await one.patch(place, 7 * MIB, SIZE)
    assert late.status == 204, late.body
    await two.whole(place)


async def test_the_older_writer_learns_that_it_has_lost(
    replicas: Sequence[Replica], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = replicas
    monkeypatch.setattr(bucket_module, "CHECKPOINT", 1)
    place = await one.begin()
    await one.patch(place, 0, 1000)
    slow = SlowPatch(one, place, 1000, 10 * MIB, SIZE - 1000)
    await asyncio.wait_for(slow.reading.wait(), 60)
    assert await two.offset(place) >= 1000
    slow._pieces.append(CONTENT[10 * MIB : 11 * MIB])
    slow._more.set()
    await slow.task
    at = await two.offset(place)
    assert (await two.patch(place, at, SIZE)).status == 204
    await one.whole(place)


async def test_killed_between_the_object_and_its_record(
    replicas: Sequence[Replica], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = replicas

    async def lost(what: object) -> None:
        raise StoreUnavailable("the connection is lost")

    place = await one.begin(kind="look")
    await one.patch(place, 0, 6 * MIB)
    with monkeypatch.context() as patch:
        for name in ("finish", "receive"):
            patch.setattr(one.service.store, name, lost)
        assert (await one.patch(place, 6 * MIB, SIZE)).status == 503
    before = await two.upload(place)
    assert before.received == 6 * MIB
    assert await two.offset(place) == SIZE, "its parts were joined"
    assert (await two.upload(place)).job_id is not None
    await two.call("GET", place)
    assert (await two.upload(place)).sha256 == SHA256


async def test_killed_between_the_object_and_the_check_of_its_hash(
    replicas: Sequence[Replica], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = replicas

    async def lost(what: object) -> None:
        raise StoreUnavailable("the connection is lost")

    place = await one.begin(sha256="0" * 64)
    with monkeypatch.context() as patch:
        patch.setattr(one.uploads._lifecycle, "_check_promised", lost)
        assert (await one.patch(place, 0, SIZE)).status == 503
    assert (await two.upload(place)).received == SIZE
    await two.uploads._expiry._complete(two.service.store.now() + 60)
    reply = await two.call("HEAD", place, headers=TUS)
    assert reply.status in (404, 410), "the bytes are not those that the sender has declared"


async def test_the_upkeep_of_any_replica_finishes(
    replicas: Sequence[Replica], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = replicas

    async def lost(what: object) -> None:
        raise StoreUnavailable("the connection is lost")

    place = await one.begin()
    await one.patch(place, 0, 6 * MIB)
    with monkeypatch.context() as patch:
        patch.setattr(one.service.store, "finish", lost)
        assert (await one.patch(place, 6 * MIB, SIZE)).status == 503
    assert (await two.upload(place)).received == SIZE
    await two.uploads._expiry._complete(two.service.store.now() + 60)
    upload = await two.upload(place)
    assert (upload.status, upload.sha256) == (UploadStatus.DONE, SHA256)


async def test_a_part_that_a_stale_process_overwrites_is_noticed(replicas: Sequence[Replica]) -> None:
    """The checksum is that of the stored bytes, and a declared one is still compared."""
    one, _ = replicas
    for promised in (False, True):
        place = await (one.begin(sha256=SHA256) if promised else one.begin())
        await one.patch(place, 0, 6 * MIB)
        upload = await one.upload(place)
        assert upload.bucket is not None
        other = os.urandom(5 * MIB)
        await one.blobs.put_part(upload_key(upload.id), upload.bucket.multipart, 1, other)
        reply = await one.patch(place, 6 * MIB, SIZE)
        if promised:
            assert reply.status == 460, reply.body
            continue
        assert reply.status == 204, reply.body
        stored = (await one.call("GET", place)).body
        assert stored == other + CONTENT[5 * MIB :]
        assert (await one.upload(place)).sha256 == hashlib.sha256(stored).hexdigest()


async def test_bytes_with_a_wrong_checksum_do_not_count(replicas: Sequence[Replica]) -> None:
    one, two = replicas
    place = await one.begin()
    wrong = {"upload-checksum": f"sha1 {b64encode(bytes(20)).decode()}"}
    right = hashlib.sha1(CONTENT[: 6 * MIB]).digest()
    assert (await one.patch(place, 0, 6 * MIB, **wrong)).status == 460
    assert await two.offset(place) == 0
    assert await one.blobs.multiparts("uploads") == []
    sent = {"upload-checksum": f"sha1 {b64encode(right).decode()}"}
    assert (await one.patch(place, 0, 6 * MIB, **sent)).status == 204
    assert (await one.patch(place, 6 * MIB, SIZE, **wrong)).status == 460
    assert (await one.patch(place, 6 * MIB, SIZE)).status == 204
    await one.whole(place)


async def test_storage_that_is_away_for_a_while(replicas: Sequence[Replica], cable: Cable) -> None:
    one, two = replicas
    place = await one.begin()
    assert (await one.patch(place, 0, 6 * MIB)).status == 204
    await cable.cut()
    reply = await one.patch(place, 6 * MIB, SIZE)
    assert (reply.status, reply.json()["code"]) == (503, "storage-unavailable")
    await cable.mend()
    assert await two.offset(place) == 6 * MIB
    assert (await two.patch(place, 6 * MIB, SIZE)).status == 204
    await one.whole(place)


async def test_lost_parts_are_reported(replicas: Sequence[Replica]) -> None:
    one, two = replicas
    place = await one.begin()
    await one.patch(place, 0, 6 * MIB)
    upload = await one.upload(place)
    assert upload.bucket is not None
    await one.blobs.abort(upload_key(upload.id), upload.bucket.multipart)
    reply = await two.patch(place, 6 * MIB, SIZE)
    assert (reply.status, "lost" in reply.json()["detail"]) == (410, True)
    assert (await one.call("HEAD", place, headers=TUS)).status == 410
    assert await one.keys() == []


async def test_what_is_removed_leaves_nothing_and_orphans_are_aborted(
    replicas: Sequence[Replica],
) -> None:
    one, two = replicas
    place = await one.begin()
    await one.patch(place, 0, 6 * MIB)
    assert (await two.call("DELETE", place, headers=TUS)).status == 204
    assert await one.keys() == [] and await one.blobs.multiparts("uploads") == []
    kept = await one.begin()
    await one.patch(kept, 0, 6 * MIB)
    upload = await one.upload(kept)
    for key in (upload_key(upload.id), upload_key(upload.id[:-4] + "0000")):
        await one.blobs.begin(key, "video/mp4")
    await two.uploads._expiry._sweep(time.time())
    assert len(await two.blobs.multiparts("uploads")) == 3, "they are young"
    await two.uploads._expiry._sweep(time.time() + WEEKS)
    assert upload.bucket is not None
    (left,) = await two.blobs.multiparts("uploads")
    assert left.multipart == upload.bucket.multipart


@pytest.mark.parametrize("size", [5 * MIB, 9 * MIB, 20 * MIB, 400_000])
async def test_chunks_in_any_order_at_any_replica(replicas: Sequence[Replica], size: int) -> None:
    """As parts, as several parts each, as one object, and as objects that are too small to be parts."""
    total = SIZE if size >= 5 * MIB else 1_500_000
    wanted = {"name": "a.bin", "size": total, "chunkSize": size, "kind": "look"}
    begun = (await replicas[0].call("POST", "/uploads/chunked", json=wanted)).json()
    place, reply = f"/uploads/{begun['uploadId']}", None
    numbers = list(range(begun["chunks"]))
    short = await replicas[0].call("PUT", f"{place}/chunks/0", body=b"x")
    assert short.status == 422
    for number in [*numbers[1:], 0]:
        body = CONTENT[:total][number * size : (number + 1) * size]
        reply = await replicas[number % 2].call("PUT", f"{place}/chunks/{number}", body=body)
        assert reply.status == (200 if number == 0 else 204), reply.body
    assert reply is not None and reply.json()["sha256"] == hashlib.sha256(CONTENT[:total]).hexdigest()
    found = await replicas[1].call("GET", f"/files/{begun['uploadId']}")
    assert found.body == CONTENT[:total]
    assert len(await replicas[0].keys()) == 1
    assert await replicas[0].blobs.multiparts("uploads") == []


async def test_uploads_in_one_request(replicas: Sequence[Replica]) -> None:
    one, two = replicas
    for content in (CONTENT, b"small", b""):
        digest = hashlib.sha256(content).hexdigest()
        reply = await one.call("POST", f"/uploads?name=a&sha256={digest}", body=content)
        assert reply.status == 201, reply.body
        assert (await two.call("GET", f"/files/{reply.json()['uploadId']}")).body == content
    before = await one.keys()
    for content in (CONTENT, b"small"):
        wrong = await one.call("POST", f"/uploads?name=a&sha256={'0' * 64}", body=content)
        assert wrong.status == 460
    await one.settle()
    assert await one.keys() == before and await one.blobs.multiparts("uploads") == []
    form = (
        b'--x\r\nContent-Disposition: form-data; name="job"\r\n\r\n{"kind": "look"}\r\n'
        b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\nhello\r\n--x--\r\n'
    )
    told = {"content-type": "multipart/form-data; boundary=x"}
    assert (await one.call("POST", "/jobs", body=form, headers=told)).status == 202
    (claimed,) = await two.service.store.claim("w", [ClaimRequest("default", ("look",), 1)], 1, 30.0)
    (file,) = claimed.files
    assert b"".join([piece async for piece in await two.blobs.open(file.file.blob)]) == b"hello"


async def test_concatenation_of_parts_from_both(replicas: Sequence[Replica]) -> None:
    one, two = replicas
    cuts, places = (0, 6 * MIB, 6 * MIB + 10, SIZE), []
    for number, (first, last) in enumerate(pairwise(cuts)):
        replica = replicas[number % 2]
        told = {**TUS, "upload-length": str(last - first), "upload-concat": "partial"}
        place = (await replica.call("POST", "/files", headers=told)).headers["location"]
        body = {"content-type": OFFSET, "upload-offset": "0", **TUS}
        reply = await replica.call("PATCH", place, body=CONTENT[first:last], headers=body)
        assert reply.status == 204, reply.body
        places.append(place)
    assert await two.offset(places[0]) == 6 * MIB
    final = {**TUS, "upload-concat": f"final;{' '.join(places)}"}
    for replica in (one, two):  # the second time as if the first response was lost
        place = (await replica.call("POST", "/files", headers=final)).headers["location"]
        assert (await one.call("GET", place)).body == CONTENT
        assert (await two.upload(place)).sha256 == SHA256


async def test_uploads_share_the_memory(
    replicas: Sequence[Replica], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow client that holds the buffers delays another one, whose bytes are then kept."""
    one, _ = replicas
    memory = one.uploads._bucket.memory  # type: ignore[union-attr]
    monkeypatch.setattr(memory, "_limit", 4 * MIB)
    monkeypatch.setattr(bucket_module, "BUFFER_TIMEOUT", 0.05)
    places = [await one.begin(12 * MIB), await one.begin(12 * MIB)]
    slow = SlowPatch(one, places[0], 0, 5 * MIB, 12 * MIB)
    await asyncio.wait_for(slow.reading.wait(), 60)
    assert memory._used == 5 * MIB
    other = SlowPatch(one, places[1], 0, 6 * MIB, 12 * MIB)
    await other.task
    assert other.reply is not None and other.reply.status == 503
    await slow.leave()
    assert memory._used == 0
    assert await one.offset(places[0]) == 5 * MIB
