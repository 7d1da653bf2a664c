"""Uploads by signed requests, where the service is the storage: what was signed is taken, and nothing else."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import pytest
import pytest_asyncio

from bide.core.errors import JobError
from bide.server.config import Config, UploadConfig
from bide.server.registry import Accepts, File
from bide.server.store import UploadBytes
from bide.server.upload_record import Upload, UploadStatus
from bide.server.uploads import presigned as presigned_module
from tests.integration.http.service import Reply, Service, kinds

CONTENT = b"\x00\x00\x00\x18ftypmp42" + b"video" * 1000
SHA256 = hashlib.sha256(CONTENT).hexdigest()


async def presign(service: Service, **more: Any) -> Reply:
    body = {"name": "a.mp4", "contentType": "video/mp4", "size": len(CONTENT), **more}
    return await service.call("POST", "/uploads/presign", json=body, headers={"Host": "bide.example"})


def target(url: str) -> str:
    parts = urlsplit(url)
    assert parts.netloc == "bide.example"
    return f"{parts.path}?{parts.query}"


async def put(service: Service, signed: dict[str, Any], body: bytes = CONTENT, **headers: str) -> Reply:
    lines = {**signed["headers"], "Content-Length": str(len(body))}
    lines.update({name.replace("_", "-"): value for name, value in headers.items()})
    return await service.call(signed["method"], target(signed["url"]), body=body, headers=lines)


async def complete(service: Service, upload_id: str) -> Reply:
    return await service.call("POST", f"/uploads/{upload_id}/complete")


async def job_of(service: Service, reply: Reply) -> Any:
    return (await service.call("GET", reply.headers["job-location"])).json()


async def test_put_and_complete(service: Service) -> None:
    reply = await presign(service, sha256=SHA256)
    assert reply.status == 201, reply.body
    signed = reply.json()
    assert (signed["method"], signed["job"], signed["partSize"]) == ("PUT", None, None)
    assert signed["url"].startswith("http://bide.example/uploads/")
    assert reply.headers["location"] == f"/uploads/{signed['uploadId']}"
    early = await complete(service, signed["uploadId"])
    assert (early.status, early.json()["code"]) == (409, "upload-conflict")
    assert (await put(service, signed)).status == 200
    done = await complete(service, signed["uploadId"])
    assert (done.status, done.json()["status"], done.json()["sha256"]) == (200, "DONE", SHA256)
    assert (await complete(service, signed["uploadId"])).json() == done.json()
    shown = await service.call("GET", f"/files/{signed['uploadId']}")
    assert shown.body == CONTENT
    job = await service.call(
        "POST", "/jobs", json={"kind": "thumbnail", "input": {"video": {"upload": signed["uploadId"]}}}
    )
    assert job.status == 202


async def test_a_job_waits_for_its_file(service: Service) -> None:
    signed = (await presign(service, kind="thumbnail", labels={"of": "ann"})).json()
    job = signed["job"]
    assert (job["status"], job["kind"], job["labels"]) == ("UPLOADING", "thumbnail", {"of": "ann"})
    assert await service.claims("thumbnail") == []
    await put(service, signed)
    done = await complete(service, signed["uploadId"])
    assert done.headers["job-location"] == f"/jobs/{job['jobId']}"
    assert (await job_of(service, done))["status"] == "PENDING"
    (claim,) = await service.claims("thumbnail")
    (file,) = claim.files
    assert (claim.job.id, file.file.name, file.file.sha256) == (job["jobId"], "a.mp4", SHA256)


async def test_bad_input_is_refused_before_a_byte_is_sent(service: Service) -> None:
    for more, code in (
        ({"kind": "nonsense"}, "unknown-kind"),
        ({"kind": "echo"}, "invalid-input"),
        ({"kind": "thumbnail", "input": {"x": 1}}, "invalid-input"),
        ({"size": -1}, "invalid-input"),
        ({"sha256": "x"}, "invalid-input"),
        ({"colour": "red"}, "invalid-input"),
    ):
        reply = await presign(service, **more)
        assert (reply.status, reply.json()["code"]) == (422, code), more
    assert await service.store.upload_bytes() == UploadBytes(0, 0)


# --- what was not signed


async def test_another_size_type_upload_or_signature_is_refused(service: Service) -> None:
    signed, other = [(await presign(service)).json() for _ in range(2)]
    swapped = {**signed, "url": signed["url"].replace(signed["uploadId"], other["uploadId"])}
    larger = {**signed, "url": signed["url"].replace(f"size={len(CONTENT)}", "size=9999999")}
    later = {**signed, "url": signed["url"].replace("expires=", "expires=9")}
    tampered = {**signed, "url": signed["url"][:-1] + ("0" if signed["url"][-1] != "0" else "1")}
    bare = {**signed, "url": signed["url"].partition("?")[0] + "?"}
    for what, body, headers, says in (
        (signed, CONTENT + b"x", {}, "Content-Length is"),
        (signed, CONTENT[:-1], {}, "Content-Length is"),
        (signed, CONTENT, {"content_type": "text/html"}, "text/html"),
        (swapped, CONTENT, {}, "does not match this URL"),
        (larger, CONTENT, {}, "does not match this URL"),
        (later, CONTENT, {}, "does not match this URL"),
        (tampered, CONTENT, {}, "does not match this URL"),
        (bare, CONTENT, {}, "does not match this URL"),
    ):
        reply = await put(service, what, body, **headers)
        assert (reply.status, reply.json()["code"]) == (403, "bad-signature"), (what, says)
        assert says in reply.json()["detail"]
    for method in ("POST", "DELETE", "PATCH"):
        assert (await put(service, {**signed, "method": method})).status == 405
    assert (await complete(service, signed["uploadId"])).status == 409


async def test_an_expired_signature(service: Service) -> None:
    signed = (await presign(service)).json()
    service.clock.advance(3601)
    reply = await put(service, signed)
    assert (reply.status, reply.json()["code"]) == (403, "signature-expired")


async def test_a_body_that_is_not_as_long_as_it_says(service: Service) -> None:
    signed = (await presign(service)).json()
    for body in (CONTENT[:-1], CONTENT + b"x"):
        reply = await put(service, signed, body, content_length=str(len(CONTENT)))
        assert (reply.status, reply.json()["code"]) == (422, "wrong-length")
    assert (await complete(service, signed["uploadId"])).status == 409
    assert not list(service.blobs.root.rglob("*.part"))


async def test_what_was_verified_stays(service: Service) -> None:
    signed = (await presign(service)).json()
    await put(service, signed)
    await complete(service, signed["uploadId"])
    late = await put(service, signed, bytes(len(CONTENT)))
    assert (late.status, late.json()["code"]) == (409, "upload-conflict")
    assert (await service.call("GET", f"/files/{signed['uploadId']}")).body == CONTENT


async def test_replicas_that_share_the_files_share_the_secret(service: Service, tmp_path: Path) -> None:
    from bide.server.blobs.local_signing import LocalSigning

    secret = service.blobs.root / ".secret"
    await presign(service)
    assert secret.stat().st_mode & 0o777 == 0o600
    other = LocalSigning(service.blobs, service.store)
    assert other._key() == secret.read_bytes() and len(secret.read_bytes()) == 32


# --- what is not right with the bytes


async def test_another_checksum_throws_the_bytes_away_and_they_can_be_put_again(
    service: Service,
) -> None:
    signed = (await presign(service, sha256=SHA256, kind="thumbnail")).json()
    await put(service, signed, bytes(len(CONTENT)))
    wrong = await complete(service, signed["uploadId"])
    assert (wrong.status, wrong.json()["code"]) == (460, "checksum-mismatch")
    assert (await complete(service, signed["uploadId"])).status == 409
    await put(service, signed)
    assert (await job_of(service, await complete(service, signed["uploadId"])))["status"] == "PENDING"


@pytest_asyncio.fixture
async def picky(tmp_path: Path) -> AsyncIterator[Service]:
    registry = kinds()

    @registry.job()
    def film(video: Annotated[File, Accepts("video/*")]) -> None: ...

    config = Config(data=tmp_path, uploads=UploadConfig(max_size=1 << 20, quota=20_000))
    async with Service(tmp_path, registry, config).opened() as service:
        yield service


async def test_an_executable_dressed_as_a_video(picky: Service) -> None:
    content = b"\x7fELF\x02\x01\x01" + bytes(100)
    signed = (await presign(picky, kind="film", size=len(content))).json()
    await put(picky, signed, content)
    reply = await complete(picky, signed["uploadId"])
    assert (reply.status, reply.json()["code"]) == (422, "wrong-content")
    job = (await picky.call("GET", f"/jobs/{signed['job']['jobId']}")).json()
    assert (job["status"], job["error"]["code"]) == ("ERROR", "WRONG_CONTENT")
    assert (await picky.call("GET", f"/uploads/{signed['uploadId']}")).status == 410


async def test_too_large_and_no_room(picky: Service) -> None:
    large = await presign(picky, size=2 << 20)
    assert (large.status, large.json()["code"]) == (413, "payload-too-large")
    assert (await presign(picky, size=15_000)).status == 201
    full = await presign(picky, size=15_000)
    assert (full.status, full.json()["code"]) == (507, "storage-full")
    assert "quota" in full.json()["detail"]


# --- again


async def test_the_same_key_is_the_same_upload(service: Service) -> None:
    asked = {"kind": "thumbnail", "idempotencyKey": "one"}
    first, second = [(await presign(service, **asked)).json() for _ in range(2)]
    assert first["uploadId"] == second["uploadId"]
    assert first["job"]["jobId"] == second["job"]["jobId"]
    other = await presign(service, **asked, name="b.mp4")
    assert (other.status, other.json()["code"]) == (422, "idempotency-conflict")
    assert await service.store.upload_bytes() == UploadBytes(0, len(CONTENT))
    await put(service, second)
    await complete(service, first["uploadId"])
    third = (await presign(service, **asked)).json()
    assert (third["uploadId"], third["url"]) == (first["uploadId"], None)
    assert third["job"]["status"] == "PENDING"


async def test_a_key_returns_its_job_after_the_input_was_removed(service: Service) -> None:
    asked = {"kind": "thumbnail", "idempotencyKey": "one"}
    first = (await presign(service, **asked)).json()
    await put(service, first)
    await complete(service, first["uploadId"])
    await service.finish(await service.claim("thumbnail"), remove_input=True)
    service.clock.advance(100)
    await service.expiry.tick()
    assert (await service.call("GET", f"/uploads/{first['uploadId']}")).status == 410
    again = await presign(service, **asked)
    assert (again.status, again.json()["uploadId"], again.json()["url"]) == (
        201,
        first["uploadId"],
        None,
    )
    assert again.json()["job"]["jobId"] == first["job"]["jobId"]
    assert (again.json()["job"]["status"], again.json()["job"]["replayed"]) == ("DONE", True)


async def test_the_same_content_is_the_same_job(service: Service) -> None:
    places = []
    for _ in range(2):
        signed = (await presign(service, kind="thumbnail", dedupe="content")).json()
        assert signed["job"] is None
        await put(service, signed)
        places.append((await complete(service, signed["uploadId"])).headers["job-location"])
    assert places[0] == places[1]


async def test_many_who_complete_at_once_get_one_job(service: Service) -> None:
    signed = (await presign(service, kind="thumbnail", dedupe="content")).json()
    await put(service, signed)
    replies = await asyncio.gather(*(complete(service, signed["uploadId"]) for _ in range(10)))
    assert {reply.headers["job-location"] for reply in replies} == {replies[0].headers["job-location"]}
    assert len((await service.call("GET", "/jobs")).json()["jobs"]) == 1


# --- uploads without a notification


async def upload(service: Service, upload_id: str) -> Upload:
    found = await service.store.upload(upload_id)
    assert isinstance(found, Upload)
    return found


async def test_the_upkeep_finds_what_was_put(service: Service) -> None:
    empty, signed = [(await presign(service, kind="thumbnail")).json() for _ in range(2)]
    await put(service, signed)
    await service.presigned.tick()
    assert (await upload(service, signed["uploadId"])).status is UploadStatus.UPLOADING  # too soon
    service.clock.advance(31)
    await service.presigned.tick()
    assert (await upload(service, signed["uploadId"])).status is UploadStatus.DONE
    (claim,) = await service.claims("thumbnail")
    assert claim.job.id == signed["job"]["jobId"]
    # Storage is asked ever more seldom about what never comes.
    asked = 0
    head = service.presigned._storage.head

    async def counted(key: str) -> Any:
        nonlocal asked
        asked += key.endswith("incoming")
        return await head(key)

    service.presigned._storage.head = counted  # type: ignore[method-assign]
    for _ in range(200):
        service.clock.advance(10)
        await service.presigned.tick()
    assert 3 <= asked <= 12
    await put(service, empty)
    for _ in range(500):
        service.clock.advance(10)
        await service.presigned.tick()
    assert (await upload(service, empty["uploadId"])).status is UploadStatus.DONE


@pytest.mark.parametrize("envelope", ["s3", "sns", "sqs", "messages", "bridge"])
async def test_an_event_of_storage_is_a_hint(service: Service, envelope: str) -> None:
    signed = (await presign(service)).json()
    key = f"some%20prefix/uploads/{signed['uploadId']}/incoming"
    event: Any = {
        "Records": [
            {
                "eventName": "ObjectCreated:Put",
                "s3": {"bucket": {"name": "files"}, "object": {"key": key, "size": 5}},
            }
        ]
    }
    forms: dict[str, Any] = {
        "s3": event,
        "sns": {"Type": "Notification", "Message": json.dumps(event)},
        "sqs": {"Records": [{"body": json.dumps(event), "eventSource": "aws:sqs"}]},
        "messages": {"Messages": [{"Body": json.dumps({"Message": json.dumps(event)})}]},
        "bridge": {
            "detail-type": "Object Created",
            "detail": {"bucket": {"name": "files"}, "object": {"key": key}},
        },
    }
    body = forms[envelope]
    lines = {"Content-Type": "text/plain; charset=UTF-8"}
    send = json.dumps(body).encode()
    lie = await service.call("POST", "/uploads/events", body=send, headers=lines)
    assert (lie.status, lie.json()) == (202, {"uploads": 1})
    await service.presigned.tick()
    assert (await upload(service, signed["uploadId"])).status is UploadStatus.UPLOADING
    await put(service, signed)
    await service.call("POST", "/uploads/events", body=send, headers=lines)
    await service.presigned.tick()
    assert (await upload(service, signed["uploadId"])).status is UploadStatus.DONE


async def test_events_about_nothing(service: Service) -> None:
    bodies: list[Any] = [
        {"Service": "Amazon S3", "Event": "s3:TestEvent"},
        {"Type": "SubscriptionConfirmation", "SubscribeURL": "https://sns.example/confirm"},
        {"Records": [{"s3": {"bucket": {"name": "b"}, "object": {"key": "uploads/../x/content"}}}]},
        {"Records": [{"eventName": "ObjectRemoved:Delete", "s3": {"bucket": {"name": "b"}}}]},
        [],
        "text",
    ]
    for body in bodies:
        reply = await service.call("POST", "/uploads/events", json=body)
        assert (reply.status, reply.json()) == (202, {"uploads": 0}), body
    bad = await service.call("POST", "/uploads/events", body=b"{")
    assert (bad.status, bad.json()["code"]) == (400, "malformed-request")


async def test_an_unsigned_address_is_not_logged(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    body = {
        "Type": "SubscriptionConfirmation",
        "TopicArn": "arn:aws:sns:eu-central-1:123456789012:uploads",
        "Token": "0123456789abcdef" * 8,
        "SubscribeURL": "https://evil.example/confirm",
    }
    for changed in ({}, {"TopicArn": "https://evil.example/"}, {"Token": "https://evil.example/"}):
        reply = await service.call("POST", "/uploads/events", json={**body, **changed})
        assert (reply.status, reply.json()) == (202, {"uploads": 0})
    assert "evil.example" not in caplog.text
    assert (
        caplog.text.count("--topic-arn arn:aws:sns:eu-central-1:123456789012:uploads --token 0123") == 1
    )


async def test_what_was_never_put_expires_with_its_job(service: Service) -> None:
    signed = (await presign(service, kind="thumbnail", multipart=True)).json()
    service.clock.advance(86_401)
    await service.expiry.tick()
    job = (await service.call("GET", f"/jobs/{signed['job']['jobId']}")).json()
    assert (job["status"], job["error"]["code"]) == ("ERROR", "UPLOAD_ABANDONED")
    assert (await complete(service, signed["uploadId"])).status == 410
    assert not (service.blobs.root / "uploads" / signed["uploadId"]).exists()
    again = await service.call("POST", f"/jobs/{job['jobId']}/retry")
    assert (again.status, again.json()["code"], again.json()["retryable"]) == (409, "conflict", False)
    assert "submit a new job with the file" in again.json()["detail"]


async def test_a_job_that_was_cancelled_before_its_file_arrived_cannot_run(service: Service) -> None:
    signed = (await presign(service, kind="thumbnail")).json()
    job_id = signed["job"]["jobId"]
    assert (await service.call("POST", f"/jobs/{job_id}/cancel")).status == 200
    await put(service, signed)
    await complete(service, signed["uploadId"])
    assert (await service.call("POST", f"/jobs/{job_id}/retry")).status == 409


# --- in parts


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(presigned_module, "MIN_PART", 2000)
    return 2000


async def sign(service: Service, upload_id: str, *numbers: int) -> Any:
    reply = await service.call(
        "POST",
        f"/uploads/{upload_id}/parts",
        json={"numbers": list(numbers)},
        headers={"Host": "bide.example"},
    )
    assert reply.status == 200, reply.body
    return reply.json()["parts"]


async def test_parts_make_a_file_and_a_job(service: Service, small_parts: int) -> None:
    begun = (await presign(service, kind="thumbnail", multipart=True, sha256=SHA256)).json()
    upload_id = begun["uploadId"]
    assert (begun["url"], begun["partSize"], begun["parts"]) == (None, 2000, 3)
    parts = await sign(service, upload_id, 3, 1, 2)
    cut = {3: CONTENT[4000:], 1: CONTENT[:2000], 2: CONTENT[2000:4000]}
    for part in parts[:2]:
        assert part["size"] == len(cut[part["number"]])
        assert (await put(service, part, cut[part["number"]])).status == 200
    known = (await service.call("GET", f"/uploads/{upload_id}/parts")).json()
    assert [(part["number"], part["size"]) for part in known["parts"]] == [
        (1, 2000),
        (3, len(cut[3])),
    ]
    assert (known["missing"], known["missingCount"]) == ([2], 1)
    early = await complete(service, upload_id)
    assert (early.status, early.json()["code"]) == (409, "upload-conflict")
    assert "are missing or have the wrong size: 2" in early.json()["detail"]
    await put(service, parts[2], cut[2])
    done = await complete(service, upload_id)
    assert (done.json()["sha256"], (await job_of(service, done))["status"]) == (SHA256, "PENDING")
    assert (await service.call("GET", f"/files/{upload_id}")).body == CONTENT
    assert (await put(service, parts[2], cut[2])).status == 409


async def test_a_part_that_was_not_signed(service: Service, small_parts: int) -> None:
    begun, other = [(await presign(service, multipart=True)).json() for _ in range(2)]
    upload_id = begun["uploadId"]
    (part,) = await sign(service, upload_id, 1)
    number = {**part, "url": part["url"].replace("/parts/1?", "/parts/2?")}
    elsewhere = {**part, "url": part["url"].replace(upload_id, other["uploadId"])}
    for what, body in ((number, CONTENT[:2000]), (elsewhere, CONTENT[:2000]), (part, b"short")):
        reply = await put(service, what, body)
        assert (reply.status, reply.json()["code"]) == (403, "bad-signature")
    outside = await service.call("POST", f"/uploads/{upload_id}/parts", json={"numbers": [4]})
    assert (outside.status, outside.json()["code"]) == (404, "not-found")


async def test_an_aborted_one_takes_no_more_parts(service: Service, small_parts: int) -> None:
    begun = (await presign(service, kind="thumbnail", multipart=True)).json()
    upload_id = begun["uploadId"]
    first, second = await sign(service, upload_id, 1, 2)
    await put(service, first, CONTENT[:2000])
    assert (await service.call("DELETE", f"/uploads/{upload_id}")).status == 204
    assert (await put(service, second, CONTENT[2000:4000])).status == 410
    assert not (service.blobs.root / "uploads" / upload_id).exists()
    job = (await service.call("GET", f"/jobs/{begun['job']['jobId']}")).json()
    assert job["status"] == "ERROR"


async def test_ways_do_not_mix(service: Service) -> None:
    signed = (await presign(service)).json()
    direct = (await service.call("POST", "/uploads", body=b"x")).json()["uploadId"]
    for method, path in (
        ("GET", f"/uploads/{signed['uploadId']}/parts"),
        ("GET", f"/uploads/{direct}/parts"),
        ("PUT", f"/uploads/{direct}/content"),
    ):
        reply = await service.call(method, path)
        assert reply.status in (403, 409), (method, path, reply.body)


async def test_bytes_of_no_upload_are_swept(service: Service) -> None:
    signed = (await presign(service)).json()
    await put(service, signed)
    orphan = service.blobs.root / "uploads" / ("0" * 26)
    orphan.mkdir(parents=True)
    (orphan / "content").write_bytes(b"x")
    for folder in (orphan, service.blobs.root / "uploads" / signed["uploadId"]):
        os.utime(folder, (0, 0))
    await service.expiry._sweep(time.time())
    assert not orphan.exists()
    assert (await complete(service, signed["uploadId"])).status == 200


async def test_a_store_whose_clock_is_ahead_sweeps_no_young_file(service: Service) -> None:
    await service.expiry.tick()
    young = "0" * 26
    service.staging.root.mkdir(parents=True, exist_ok=True)
    service.staging.path(young).write_bytes(b"its record is not stored yet")
    service.clock.set(max(service.clock.now(), time.time()) + 7200)
    await service.expiry.tick()
    assert service.staging.path(young).exists()
    os.utime(service.staging.path(young), (0, 0))
    service.clock.advance(7200)
    await service.expiry.tick()
    assert not service.staging.path(young).exists()


async def test_an_input_whose_file_is_gone_fails_in_the_handler(service: Service) -> None:
    file = service.blobs.put("0" * 26, 1, "a.txt", b"x", "text/plain")
    await service.blobs.remove("0" * 26)
    with pytest.raises(JobError, match="FILE_GONE"):
        service.blobs.fetch(file, service.blobs.root)
