"""Presigned uploads to a storage server of another project that verifies signatures: with plain HTTP, and with boto3."""

from __future__ import annotations

import asyncio
import hashlib
import os
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from bide.core.jobs.record import Job
from bide.server.blobs import Signed
from bide.server.config import BlobsConfig, Config
from bide.server.upload_record import UploadStatus
from bide.server.worker.app_location import AppLocation
from bide.service.assembly import assemble
from bide.testing.blobs import send
from tests.integration.asgi import call
from tests.integration.cable import Cable
from tests.servers.swift import Swift
from tests.stores import store_config

BUCKET = "bide-presigned"
CONTENT = os.urandom(5000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Door:
    """A service whose jobs are not run: only its store, storage and HTTP."""

    def __init__(self, folder: Path, url: str) -> None:
        location = AppLocation("tests.apps.handlers")
        config = Config(data=folder / "data", store=store_config(folder), blobs=BlobsConfig(url))
        self.service = assemble(location.load(), location, config)

    async def call(self, method: str, path: str, **more: Any) -> Any:
        return await call(self.service.http, method, path, **more)

    async def presign(self, **more: Any) -> Any:
        body = {"name": "a.bin", "contentType": "video/mp4", "size": len(CONTENT), **more}
        reply = await self.call("POST", "/uploads/presign", json=body)
        assert reply.status == 201, reply.body
        return reply.json()

    async def complete(self, upload_id: str) -> Any:
        return await self.call("POST", f"/uploads/{upload_id}/complete")

    async def job(self, job_id: str) -> Job:
        (job,) = await self.service.store.get([job_id])
        assert isinstance(job, Job)
        return job


@pytest_asyncio.fixture
async def cable(swift: Swift) -> AsyncIterator[Cable]:
    async with Cable(swift.endpoint) as cable:
        yield cable


@pytest_asyncio.fixture
async def door(
    swift: Swift, cable: Cable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Door]:
    for name, value in swift.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("bide.server.blobs.s3_client.ATTEMPTS", 1)
    swift.make_bucket(BUCKET)
    url = swift.url(BUCKET, uuid.uuid4().hex).replace(swift.endpoint, cable.url)
    door = Door(tmp_path, url)
    service = door.service
    service.folder.lock()
    await service.store.open(service.on_events)
    service.uploads.open(service.folder.replica)
    yield door
    await service.uploads.close()
    await service.blobs.close()
    await service.store.close()
    service.folder.unlock()


def put(signed: Any, body: bytes = CONTENT, **other: Any) -> int:
    request = Signed(signed["url"], signed["method"], signed["headers"])
    return send(request, body, other.get("headers"))


async def test_straight_to_storage_and_into_a_job(door: Door) -> None:
    signed = await door.presign(kind="reads", sha256=SHA256)
    assert "127.0.0.1" in signed["url"] and "service.example" not in signed["url"]
    assert "testing" not in signed["url"]  # the secret
    early = await door.complete(signed["uploadId"])
    assert (early.status, early.json()["code"]) == (409, "upload-conflict")
    assert await asyncio.to_thread(put, signed) == 200
    done = await door.complete(signed["uploadId"])
    assert (done.status, done.json()["sha256"]) == (200, SHA256), done.body
    assert (await door.job(signed["job"]["jobId"])).status == "PENDING"
    # The signature still holds, and changes nothing of what was verified.
    assert await asyncio.to_thread(put, signed, bytes(len(CONTENT))) == 200
    shown = await door.call("GET", f"/files/{signed['uploadId']}")
    assert shown.body == CONTENT
    refused = await door.call("PUT", f"/uploads/{signed['uploadId']}/content", body=b"x")
    assert refused.status == 404


async def test_a_file_that_the_service_received_is_hashed_once(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bide.server.blobs.s3.hashlib", None)
    for content in (CONTENT, os.urandom(9 * 1024 * 1024)):
        stored = (await door.call("POST", "/uploads", body=content)).json()
        assert stored["sha256"] == hashlib.sha256(content).hexdigest()
        assert (await door.call("GET", f"/files/{stored['uploadId']}")).body == content


async def test_storage_refuses_what_was_not_signed(door: Door) -> None:
    signed = await door.presign()
    other_type = {**signed["headers"], "Content-Type": "text/html"}
    tampered = {**signed, "url": signed["url"].replace("X-Amz-Expires=3600", "X-Amz-Expires=7200")}
    assert tampered != signed
    elsewhere = {**signed, "url": signed["url"].replace(signed["uploadId"], "0" * 26)}
    statuses = [
        await asyncio.to_thread(put, signed, CONTENT + b"x"),
        await asyncio.to_thread(put, signed, CONTENT, headers=other_type),
        await asyncio.to_thread(put, tampered),
        await asyncio.to_thread(put, elsewhere),
        await asyncio.to_thread(put, {**signed, "method": "DELETE"}),
    ]
    assert [status // 100 for status in statuses] == [4] * 5
    assert (await door.complete(signed["uploadId"])).status == 409


async def test_what_somebody_put_past_the_signature_is_not_taken(door: Door, swift: Swift) -> None:
    blobs: Any = door.service.blobs
    client = swift.client()
    for body, kind, code in (
        (CONTENT[:-1], "video/mp4", "wrong-length"),
        (CONTENT, "text/html", "wrong-content"),
        (bytes(len(CONTENT)), "video/mp4", "checksum-mismatch"),
    ):
        signed = await door.presign(sha256=SHA256)
        key = f"{blobs.location.prefix}uploads/{signed['uploadId']}/incoming"
        client.put_object(Bucket=BUCKET, Key=key, Body=body, ContentType=kind)
        reply = await door.complete(signed["uploadId"])
        assert reply.json()["code"] == code
        assert await blobs.head(f"uploads/{signed['uploadId']}/incoming") is None
        assert await blobs.head(f"uploads/{signed['uploadId']}/content") is None
        assert await asyncio.to_thread(put, signed) == 200  # it can be put again, and be right
        assert (await door.complete(signed["uploadId"])).status == 200
    client.close()


async def test_in_parts_with_boto3_beside(door: Door, swift: Swift) -> None:
    """Parts by signed requests; what the service says of them is what boto3 sees in the bucket."""
    content = os.urandom(8 * 1024 * 1024 + 100)
    sha256 = hashlib.sha256(content).hexdigest()
    begun = await door.presign(size=len(content), multipart=True, kind="reads", sha256=sha256)
    upload_id = begun["uploadId"]
    assert (begun["url"], begun["parts"]) == (None, 2)
    cut = {1: content[: begun["partSize"]], 2: content[begun["partSize"] :]}
    signed = (await door.call("POST", f"/uploads/{upload_id}/parts", json={"numbers": [2, 1]})).json()[
        "parts"
    ]
    assert await asyncio.to_thread(put, signed[0], cut[2][:-1]) >= 400  # not as many as were signed
    assert await asyncio.to_thread(put, signed[0], cut[2]) == 200
    known = (await door.call("GET", f"/uploads/{upload_id}/parts")).json()
    assert ([part["number"] for part in known["parts"]], known["missing"]) == ([2], [1])
    early = await door.complete(upload_id)
    assert (early.status, early.json()["code"]) == (409, "upload-conflict")
    assert await asyncio.to_thread(put, signed[1], cut[1]) == 200
    client = swift.client()
    begun_there = client.list_multipart_uploads(Bucket=BUCKET)["Uploads"]
    (there,) = [one for one in begun_there if upload_id in one["Key"]]
    listed = client.list_parts(Bucket=BUCKET, Key=there["Key"], UploadId=there["UploadId"])["Parts"]
    assert [part["Size"] for part in listed] == [len(cut[1]), len(cut[2])]
    done = await door.complete(upload_id)
    assert (done.status, done.json()["sha256"]) == (200, sha256), done.body
    assert client.head_object(Bucket=BUCKET, Key=there["Key"])["ContentLength"] == len(content)
    assert (await door.job(begun["job"]["jobId"])).status == "PENDING"
    client.close()


async def test_an_aborted_one_leaves_nothing_in_the_bucket(door: Door, swift: Swift) -> None:
    begun = await door.presign(size=8 * 1024 * 1024 + 10, multipart=True)
    signed = (
        await door.call("POST", f"/uploads/{begun['uploadId']}/parts", json={"numbers": [2]})
    ).json()["parts"][0]
    assert (await door.call("DELETE", f"/uploads/{begun['uploadId']}")).status == 204
    assert await asyncio.to_thread(put, signed, bytes(signed["size"])) in (400, 404)
    client = swift.client()
    left = client.list_multipart_uploads(Bucket=BUCKET).get("Uploads", [])
    assert not [one for one in left if begun["uploadId"] in one["Key"]]
    client.close()


async def test_boto3_puts_and_nobody_completes(door: Door, swift: Swift) -> None:
    """By the key alone, as a program with its own credential would; an event reports it."""
    signed = await door.presign(kind="reads")
    blobs: Any = door.service.blobs
    key = f"{blobs.location.prefix}uploads/{signed['uploadId']}/incoming"
    client = swift.client()
    client.put_object(Bucket=BUCKET, Key=key, Body=CONTENT, ContentType="video/mp4")
    client.close()
    record = {
        "eventName": "ObjectCreated:Put",
        "s3": {"bucket": {"name": BUCKET}, "object": {"key": key}},
    }
    heard = await door.call("POST", "/uploads/events", json={"Records": [record]})
    assert (heard.status, heard.json()) == (202, {"uploads": 1})
    await door.service.uploads.presigned.tick()
    found: Any = await door.service.store.upload(signed["uploadId"])
    assert found.status is UploadStatus.DONE
    assert (await door.job(signed["job"]["jobId"])).status == "PENDING"


async def test_storage_is_away_at_each_call(door: Door, cable: Cable) -> None:
    signed = await door.presign(kind="reads")
    begun = await door.presign(size=20_000_000, multipart=True)
    await asyncio.to_thread(put, signed)
    direct = await door.call("POST", "/uploads", body=CONTENT)
    assert direct.status == 201
    await cable.cut()
    replies = [
        await door.complete(signed["uploadId"]),
        await door.complete(begun["uploadId"]),
        await door.call("GET", f"/uploads/{begun['uploadId']}/parts"),
        await door.call(
            "POST", "/uploads/presign", json={"name": "a", "size": 10_000_000, "multipart": True}
        ),
        await door.call("POST", "/uploads", body=CONTENT),
        await door.call("GET", f"/files/{direct.json()['uploadId']}"),
    ]
    for reply in replies:
        assert (reply.status, reply.json()["code"]) == (503, "storage-unavailable"), reply.body
        assert int(reply.headers["retry-after"]) >= 1
    await door.service.uploads.presigned.tick()
    await cable.mend()
    assert (await door.complete(signed["uploadId"])).status == 200
    assert (await door.job(signed["job"]["jobId"])).status == "PENDING"
