"""What uploads may take together: bytes are charged as they arrive by every way, and declared sizes only reserve."""

from __future__ import annotations

import asyncio
import hashlib
from base64 import b64encode
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest

from bide.core.errors import StorageFull
from bide.server.config import Config, UploadConfig
from bide.server.store import UploadBytes
from bide.server.uploads import quota
from tests.integration.http.service import Reply, Service, scope

KIB = 1024
QUOTA = 800 * KIB
TUS = {"tus-resumable": "1.0.0"}
PIECE = bytes(50 * KIB)


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    config = Config(data=tmp_path, uploads=UploadConfig(quota=QUOTA))
    async with Service(tmp_path, config=config).opened() as service:
        yield service


def on_disk(service: Service) -> int:
    folders = (service.staging.root, service.blobs.root / "uploads")
    return sum(p.stat().st_blocks * 512 for f in folders for p in f.rglob("*") if p.is_file())


async def presign(service: Service, size: int, **more: Any) -> dict[str, Any]:
    reply = await service.call("POST", "/uploads/presign", json={"name": "a", "size": size, **more})
    assert reply.status == 201, reply.body
    signed: dict[str, Any] = reply.json()
    return signed


def target(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.path}?{parts.query}"


async def create(service: Service, size: int) -> Reply:
    return await service.call("POST", "/files", headers={**TUS, "upload-length": str(size)})


async def patch(service: Service, place: str, offset: int, body: bytes, **more: str) -> Reply:
    headers = {**TUS, "upload-offset": str(offset), "content-type": "application/offset+octet-stream"}
    return await service.call("PATCH", place, body=body, headers={**headers, **more})


class Sender:
    """A request whose body comes in pieces, when the test says so."""

    def __init__(self, service: Service, method: str, path: str, headers: dict[str, str]) -> None:
        self._pieces: asyncio.Queue[bytes] = asyncio.Queue()
        self.statuses: list[int] = []
        self._size = int(headers["Content-Length"])

        async def receive() -> dict[str, Any]:
            piece = await self._pieces.get()
            self._size -= len(piece)
            return {"type": "http.request", "body": piece, "more_body": self._size > 0}

        async def send(message: Any) -> None:
            if "status" in message:
                self.statuses.append(message["status"])

        self.task = asyncio.ensure_future(service.app(scope(method, path, headers), receive, send))

    async def piece(self, data: bytes = PIECE) -> None:
        self._pieces.put_nowait(data)
        for _ in range(20):
            await asyncio.sleep(0)
        await asyncio.sleep(0.005)


async def test_parallel_requests_to_one_signed_address_take_it_over(service: Service) -> None:
    size = 4 * len(PIECE)
    signed = await presign(service, size)
    senders = []
    for _ in range(12):
        sender = Sender(service, "PUT", target(signed["url"]), signed["headers"])
        senders.append(sender)
        for _ in range(3):
            await sender.piece()
    await asyncio.gather(*(sender.task for sender in senders[:-1]))
    assert [sender.statuses for sender in senders[:-1]] == [[409]] * 11
    assert on_disk(service) <= size
    await senders[-1].piece()
    await senders[-1].task
    assert senders[-1].statuses == [200]
    assert await service.store.upload_bytes() == UploadBytes(size, 0)
    assert (await service.call("POST", f"/uploads/{signed['uploadId']}/complete")).status == 200


async def test_what_is_put_with_signatures_is_charged(service: Service) -> None:
    """Whether it is completed or not."""
    one, two = await presign(service, 300 * KIB), await presign(service, 300 * KIB)
    three = await presign(service, 300 * KIB)  # not all of them fit
    statuses = []
    for signed in (one, two, three):
        reply = await service.call(
            "PUT", target(signed["url"]), body=bytes(300 * KIB), headers=signed["headers"]
        )
        statuses.append(reply.status)
    assert statuses == [200, 200, 507]
    assert await service.store.upload_bytes() == UploadBytes(600 * KIB, 300 * KIB)
    assert on_disk(service) <= QUOTA
    # Again: the old bytes stay until the new ones have come, and both do not fit.
    again = await service.call("PUT", target(one["url"]), body=bytes(300 * KIB), headers=one["headers"])
    assert again.status == 507
    for signed in (one, two):
        done = await service.call("POST", f"/uploads/{signed['uploadId']}/complete")
        assert done.status == 200, done.body


async def test_parts_are_charged_once_each(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bide.server.uploads.presigned.MIN_PART", 100 * KIB)
    signed = await presign(service, 250 * KIB, multipart=True)
    path = f"/uploads/{signed['uploadId']}/parts"
    parts = (await service.call("POST", path, json={"numbers": [1, 2, 3]})).json()["parts"]
    for _ in range(2):
        for part in parts:
            reply = await service.call(
                "PUT", target(part["url"]), body=bytes(part["size"]), headers=part["headers"]
            )
            assert reply.status == 200, reply.body
    assert await service.store.upload_bytes() == UploadBytes(250 * KIB, 0)
    assert service.quota.check_quota(550 * KIB) == 550 * KIB
    done = await service.call("POST", f"/uploads/{signed['uploadId']}/complete")
    assert done.status == 200, done.body


async def test_a_full_disk_refuses_what_is_signed_and_what_is_put(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    signed = await presign(service, len(PIECE))
    monkeypatch.setattr(quota, "SPARE", 1 << 60)
    reply = await service.call("PUT", target(signed["url"]), body=PIECE, headers=signed["headers"])
    assert (reply.status, reply.json()["code"]) == (507, "storage-full")
    assert on_disk(service) == 0
    more = await service.call("POST", "/uploads/presign", json={"name": "a", "size": 5})
    assert more.status == 507


def test_the_disk_is_asked_again_only_if_what_it_had_is_used_up_or_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free, asked = [quota.SPARE + 100, quota.SPARE + 100, quota.SPARE + 5], []

    def disk_usage(folder: Path) -> SimpleNamespace:
        asked.append(folder)
        return SimpleNamespace(free=free[len(asked) - 1])

    monkeypatch.setattr(quota, "shutil", SimpleNamespace(disk_usage=disk_usage))
    now = 0.0
    monkeypatch.setattr(quota, "time", SimpleNamespace(monotonic=lambda: now))
    disk = quota.Quota(UploadConfig(), tmp_path)
    disk.check_disk(60)
    disk.check_disk(30)
    assert len(asked) == 1
    disk.check_disk(30)  # 90 of the 100 bytes were used
    assert len(asked) == 2
    now = 2 * quota.DISK_INTERVAL
    with pytest.raises(StorageFull):
        disk.check_disk(30)
    assert len(asked) == 3


@pytest.mark.parametrize("way", ["tus", "chunks", "presigned"])
async def test_declared_sizes_alone_leave_room_for_others(service: Service, way: str) -> None:
    statuses = []
    for _ in range(20):  # a client that declares the maximum size and sends nothing
        size = QUOTA
        while True:
            if way == "tus":
                reply = await create(service, size)
            else:
                path = "/uploads/chunked" if way == "chunks" else "/uploads/presign"
                reply = await service.call("POST", path, json={"name": "a", "size": size})
            if reply.status == 201:
                break
            size //= 2
        statuses.append(reply.status)
        await service.expiry.tick()
        service.clock.advance(10)
    sent = await service.call("POST", "/uploads?name=a", body=bytes(QUOTA // 4))
    assert sent.status == 201, sent.body
    place = (await create(service, QUOTA // 8)).headers["location"]
    assert (await patch(service, place, 0, bytes(QUOTA // 8))).status == 204
    assert (await service.store.upload_bytes()).stored == QUOTA // 4 + QUOTA // 8


async def test_an_accepted_upload_finishes_beside_others(service: Service) -> None:
    """Once it has sent half of its bytes, the rest is kept for it."""
    place = (await create(service, 300 * KIB)).headers["location"]
    assert (await patch(service, place, 0, bytes(150 * KIB))).status == 204
    await service.expiry.tick()
    others = [await service.call("POST", "/uploads", body=bytes(100 * KIB)) for _ in range(8)]
    assert [reply.status for reply in others] == [201] * 5 + [507] * 3, [r.body for r in others]
    for offset in (150 * KIB, 250 * KIB):
        reply = await patch(service, place, offset, bytes(min(100 * KIB, 300 * KIB - offset)))
        assert reply.status == 204, reply.body
    assert (await service.store.upload_bytes()) == UploadBytes(800 * KIB, 0)
    full = await service.call("POST", "/uploads", body=b"x")
    assert full.status == 507 and "upload quota is full" in full.json()["detail"]


async def test_more_was_accepted_than_fits(service: Service) -> None:
    """Then the last bytes are refused: the received bytes are kept, and the upload resumes when there is space."""
    one = (await create(service, 600 * KIB)).headers["location"]
    two = (await create(service, 400 * KIB)).headers["location"]
    assert (await patch(service, one, 0, bytes(600 * KIB))).status == 204
    assert (await patch(service, two, 0, bytes(150 * KIB))).status == 204
    refused = await patch(service, two, 150 * KIB, bytes(100 * KIB))
    assert refused.status == 507
    await service.call("DELETE", one, headers=TUS)
    head = await service.call("HEAD", two, headers=TUS)
    assert head.headers["upload-offset"] == str(150 * KIB)
    assert (await patch(service, two, 150 * KIB, bytes(250 * KIB))).status == 204


async def test_bytes_that_are_not_kept_do_not_stay_on_the_disk(service: Service) -> None:
    wrong = "sha1 " + b64encode(hashlib.sha1(b"other").digest()).decode()
    for _ in range(6):
        place = (await create(service, 100 * KIB)).headers["location"]
        reply = await patch(service, place, 0, bytes(100 * KIB), **{"upload-checksum": wrong})
        assert reply.status == 460
    assert on_disk(service) == 0


async def test_half_of_a_chunk_is_charged_until_it_comes_again(service: Service) -> None:
    begun = await service.call(
        "POST", "/uploads/chunked", json={"name": "a", "size": 300 * KIB, "chunkSize": 300 * KIB}
    )
    path = f"/uploads/{begun.json()['uploadId']}"
    half = await service.send(scope("PUT", f"{path}/chunks/0", {}), [bytes(200 * KIB)])
    assert half.status == 422
    free = service.quota.check_quota(0, reserved=True)
    assert free <= QUOTA - 200 * KIB
    assert (await service.call("PUT", f"{path}/chunks/0", body=bytes(300 * KIB))).status == 200
    assert service.quota.check_quota(0, reserved=True) == QUOTA - 300 * KIB
    assert (await service.call("POST", f"{path}/complete")).status == 200
    await service.call("DELETE", path)
    assert service.quota.check_quota(0) == QUOTA
