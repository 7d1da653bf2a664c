"""Uploads in one request: raw, as a form, and straight into a job."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest

from bide.core.jobs.record import FileInfo, Job
from bide.server.config import Config, HttpConfig, UploadConfig
from bide.server.intake import Submission
from bide.server.registry import Accepts, File, Registry
from bide.server.store import ClaimRequest, StoreUnavailable, UploadBytes
from tests.integration.http.service import MAX_BODY, Reply, Service, scope

CONTENT = os.urandom(100_000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()
BOUNDARY = "----bide"


def form(*parts: tuple[str, str | None, bytes]) -> bytes:
    lines = []
    for name, filename, data in parts:
        file = "" if filename is None else f'; filename="{filename}"\r\nContent-Type: video/mp4'
        lines.append(
            f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"{file}\r\n\r\n'.encode()
            + data
            + b"\r\n"
        )
    return b"".join(lines) + f"--{BOUNDARY}--\r\n".encode()


async def post_form(
    service: Service, target: str, *parts: tuple[str, str | None, bytes], **headers: str
) -> Reply:
    body = form(*parts)
    lines = {"content-type": f"multipart/form-data; boundary={BOUNDARY}", **headers}
    pieces = [body[i : i + 1000] for i in range(0, len(body), 1000)]
    return await service.send(scope("POST", target, lines), pieces)


def left_over(service: Service) -> list[Path]:
    folders = (service.staging.root, service.blobs.root)
    found = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    return [path for path in found if path.name != ".store"]


async def test_a_raw_body_becomes_an_upload(service: Service) -> None:
    reply = await service.call(
        "POST", "/uploads?name=a.mp4", body=CONTENT, headers={"content-type": "video/mp4"}
    )
    assert reply.status == 201
    told = reply.json()
    assert reply.headers["location"] == f"/uploads/{told['uploadId']}"
    expected = {"name": "a.mp4", "contentType": "video/mp4", "size": 100_000, "sha256": SHA256}
    assert {name: told[name] for name in expected} == expected
    assert told["expiresAt"] is not None
    again = await service.call("GET", reply.headers["location"])
    assert again.json() == told
    (path,) = left_over(service)
    assert path.read_bytes() == CONTENT


async def test_uploads_are_listed_newest_first_in_pages(service: Service) -> None:
    ids: list[str] = []
    for number in range(5):
        service.clock.advance(1)
        reply = await service.call("POST", f"/uploads?name={number}", body=CONTENT)
        ids.insert(0, reply.json()["uploadId"])
    service.clock.advance(1)
    begun = await service.call(
        "POST", "/files", headers={"tus-resumable": "1.0.0", "upload-length": "9"}
    )
    ids.insert(0, begun.headers["location"].rpartition("/")[2])
    seen: list[str] = []
    cursor = ""
    while True:
        page = (await service.call("GET", f"/uploads?limit=4{cursor}")).json()
        seen += [upload["uploadId"] for upload in page["uploads"]]
        if page["next"] is None:
            break
        cursor = f"&cursor={page['next']}"
    assert seen == ids
    (under_way,) = (await service.call("GET", "/uploads?status=UPLOADING")).json()["uploads"]
    assert (under_way["uploadId"], under_way["size"], under_way["received"]) == (ids[0], 9, 0)
    assert len((await service.call("GET", "/uploads?status=DONE")).json()["uploads"]) == 5
    for wrong in ("status=LOST", "limit=0", "limit=101", "cursor=x"):
        assert (await service.call("GET", f"/uploads?{wrong}")).status in (400, 422), wrong


async def test_a_form_becomes_an_upload(service: Service) -> None:
    reply = await post_form(service, "/uploads", ("note", None, b"x"), ("file", "a.mp4", CONTENT))
    assert reply.status == 201
    assert (reply.json()["name"], reply.json()["sha256"]) == ("a.mp4", SHA256)
    (path,) = left_over(service)
    assert path.read_bytes() == CONTENT


async def test_an_empty_file_is_a_file(service: Service) -> None:
    reply = await service.call("POST", "/uploads", body=b"")
    assert (reply.status, reply.json()["size"]) == (201, 0)
    assert reply.json()["sha256"] == hashlib.sha256().hexdigest()


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("../../etc/passwd", "passwd"),
        ("C:\\evil\\a.exe", "a.exe"),
        ("a\0b.mp4", "ab.mp4"),
        ("x" * 4096 + ".mp4", "x" * 196 + ".mp4"),
        ("gpj.\u202eexe", "gpj.exe"),
        ("..", "file"),
        ("", "file"),
        ("line\r\nbreak", "linebreak"),
    ],
)
async def test_a_name_is_made_harmless(service: Service, given: str, kept: str) -> None:
    from urllib.parse import quote

    reply = await service.call("POST", f"/uploads?name={quote(given)}", body=b"x")
    assert (reply.status, reply.json()["name"]) == (201, kept)
    reply = await post_form(service, "/uploads", ("file", given.replace("\r\n", "%0D%0A"), b"x"))
    if "\\" not in given:
        assert reply.json()["name"] == kept


@pytest.mark.parametrize(
    "given", ["../../etc/passwd", "a\0/passwd", "\u202epasswd", "x/" * 2048 + "passwd"]
)
async def test_a_name_is_made_harmless_by_every_way(service: Service, given: str) -> None:
    metadata = "filename " + base64.b64encode(given.encode()).decode()
    told = {"tus-resumable": "1.0.0", "upload-length": "5", "upload-metadata": metadata}
    place = (await service.call("POST", "/files", headers=told)).headers["location"]
    begun = [place.rpartition("/")[2]]
    for where in ("/uploads/chunked", "/uploads/presign"):
        body = {"name": given, "size": 5, "contentType": "text/plain"}
        reply = await service.call("POST", where, json=body)
        assert reply.status == 201, reply.body
        begun.append(reply.json()["uploadId"])
    for upload_id in begun:
        assert (await service.call("GET", f"/uploads/{upload_id}")).json()["name"] == "passwd"


async def test_a_file_goes_straight_into_a_job(service: Service) -> None:
    job = b'{"kind": "thumbnail", "labels": {"of": "ann"}}'
    reply = await post_form(service, "/jobs", ("job", None, job), ("video", "a.mp4", CONTENT))
    assert reply.status == 202, reply.body
    assert reply.json()["labels"] == {"of": "ann"}
    (claim,) = await service.store.claim("w", [ClaimRequest("default", ("thumbnail",), 1)], 1, 30.0)
    assert claim.job.id == reply.json()["jobId"]
    (file,) = claim.files
    assert (file.file.name, file.file.content_type) == ("a.mp4", "video/mp4")
    assert (file.file.size, file.file.sha256) == (100_000, SHA256)
    assert service.blobs.path(file.file.blob).read_bytes() == CONTENT
    upload = (await service.call("GET", f"/uploads/{file.upload}")).json()
    assert upload["jobId"] == claim.job.id


async def test_who_is_cut_off_while_a_job_is_stored_leaves_it_whole(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    store: Any = service.store
    real, storing, go = store.finish, asyncio.Event(), asyncio.Event()

    async def late(what: Any) -> Any:
        storing.set()
        await go.wait()
        return await real(what)

    monkeypatch.setattr(store, "finish", late)
    job = b'{"kind": "thumbnail"}'
    posting = asyncio.create_task(
        post_form(service, "/jobs", ("job", None, job), ("video", "a.mp4", CONTENT))
    )
    await storing.wait()
    posting.cancel()
    await asyncio.sleep(0)
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await posting
    (claim,) = await service.store.claim("w", [ClaimRequest("default", ("thumbnail",), 1)], 1, 30.0)
    (file,) = claim.files
    assert service.blobs.path(file.file.blob).read_bytes() == CONTENT


async def test_a_job_of_which_it_is_not_known_whether_it_was_stored_has_its_bytes(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    store: Any = service.store
    real = store.finish

    async def broken_off(what: Any) -> Any:
        await real(what)
        raise StoreUnavailable("whether this was stored is not known")

    monkeypatch.setattr(store, "finish", broken_off)
    reply = await post_form(
        service, "/jobs", ("job", None, b'{"kind": "thumbnail"}'), ("video", "a.mp4", CONTENT)
    )
    assert reply.status == 503
    (claim,) = await service.store.claim("w", [ClaimRequest("default", ("thumbnail",), 1)], 1, 30.0)
    (file,) = claim.files
    assert service.blobs.path(file.file.blob).read_bytes() == CONTENT


async def test_an_upload_is_named_in_the_input(service: Service) -> None:
    upload = (await service.call("POST", "/uploads?name=a.mp4", body=CONTENT)).json()["uploadId"]
    body = {"kind": "thumbnail", "input": {"video": {"upload": upload}}}
    reply = await service.call("POST", "/jobs", json=body)
    assert reply.status == 202, reply.body
    refused = await service.call("DELETE", f"/uploads/{upload}")
    assert (refused.status, refused.json()["code"]) == (409, "upload-conflict")
    service.clock.advance(10 * 86400)
    await service.expiry.tick()
    assert (await service.call("GET", f"/uploads/{upload}")).status == 200
    await service.call("POST", f"/jobs/{reply.json()['jobId']}/cancel")
    await service.call("DELETE", f"/jobs/{reply.json()['jobId']}")
    assert (await service.call("DELETE", f"/uploads/{upload}")).status == 204
    assert left_over(service) == []
    assert (await service.call("GET", f"/uploads/{upload}")).status == 410


async def test_an_unused_upload_expires(service: Service) -> None:
    upload = (await service.call("POST", "/uploads", body=CONTENT)).json()["uploadId"]
    await service.expiry.tick()
    assert len(left_over(service)) == 1
    service.clock.advance(86401)
    await service.expiry.tick()
    assert left_over(service) == []
    assert (await service.call("GET", f"/uploads/{upload}")).status == 410


@pytest.mark.parametrize(
    ("parts", "status", "place"),
    [
        ([("video", "a", b"x")], 422, "/job"),
        ([("job", None, b"{"), ("video", "a", b"x")], 400, None),
        ([("job", None, b'{"kind": "nothing"}'), ("video", "a", b"x")], 422, "/kind"),
        ([("job", None, b'{"kind": "thumbnail"}')], 422, "/input/video"),
        ([("job", None, b'{"kind": "thumbnail"}'), ("film", "a", b"x")], 422, "/input/film"),
        ([("job", None, b'{"kind": "echo"}'), ("value", "a", b"x")], 422, "/input/value"),
        (
            [("job", None, b'{"kind": "thumbnail"}'), ("video", "a", b"x"), ("video", "b", b"x")],
            422,
            "/input/video",
        ),
        (
            [("job", None, b'{"kind": "thumbnail", "input": {"video": 1}}'), ("video", "a", b"x")],
            422,
            "/input/video",
        ),
        ([("job", None, b" " * (MAX_BODY + 1))], 413, None),
    ],
)
async def test_a_form_that_is_no_job_leaves_nothing_behind(
    service: Service, parts: list[Any], status: int, place: str | None
) -> None:
    reply = await post_form(service, "/jobs", *parts)
    assert reply.status == status, reply.body
    if place is not None:
        assert reply.json()["errors"][0]["pointer"] == place
    assert left_over(service) == []
    assert await service.store.upload_bytes() == UploadBytes(0, 0)


@pytest.mark.parametrize(
    ("name", "content", "detail"),
    [
        ("grades.csv", b"BMI,age\n21,40\n", None),
        ("grades.csv", b"", None),
        ("grades.txt", b"BMI,age\n21,40\n", "show text/plain; accepted is text/csv"),
        ("grades", b"", "show that it is empty; accepted is text/csv"),
        ("grades.csv", b"BM\x36\x10\x0e\x00\x00\x00", "show image/bmp; accepted is text/csv"),
    ],
)
async def test_which_files_are_csv_files(
    tmp_path: Path, name: str, content: bytes, detail: str | None
) -> None:
    registry = Registry()

    @registry.job()
    def rows(table: Annotated[File, Accepts("text/csv")]) -> None: ...

    async with Service(tmp_path, registry).opened() as service:
        reply = await post_form(
            service, "/jobs", ("job", None, b'{"kind": "rows"}'), ("table", name, content)
        )
    assert reply.status == (202 if detail is None else 422), reply.body
    if detail is not None:
        hint = (
            ". The extension of the name or the declared type says which kind of text it is; the declared type is "
            "video/mp4"
        )
        said = f"{name}: its first bytes {detail}{'' if 'bmp' in detail else hint}"
        assert reply.json()["detail"] == said


async def test_a_form_that_breaks_off_leaves_nothing_behind(service: Service) -> None:
    body = form(("job", None, b'{"kind": "thumbnail"}'), ("video", "a.mp4", CONTENT))[:-50]
    lines = {"content-type": f"multipart/form-data; boundary={BOUNDARY}"}
    reply = await service.send(scope("POST", "/jobs", lines), [body[:50_000], body[50_000:]])
    assert (reply.status, reply.json()["code"]) == (400, "malformed-request")
    assert left_over(service) == []


async def test_a_promised_checksum_must_hold(service: Service) -> None:
    good = await service.call("POST", f"/uploads?sha256={SHA256}", body=CONTENT)
    assert good.status == 201
    bad = await service.call("POST", f"/uploads?sha256={SHA256}", body=CONTENT + b"x")
    assert (bad.status, bad.json()["code"]) == (460, "checksum-mismatch")
    assert len(left_over(service)) == 1
    wrong = await service.call("POST", "/uploads?sha256=abc", body=b"x")
    assert wrong.status == 422


async def test_the_same_file_is_the_same_job(service: Service) -> None:
    job = b'{"kind": "thumbnail", "dedupe": "content"}'
    first = await post_form(service, "/jobs", ("job", None, job), ("video", "a.mp4", CONTENT))
    again = await post_form(service, "/jobs", ("job", None, job), ("video", "b.mp4", CONTENT))
    assert first.json()["jobId"] == again.json()["jobId"]
    assert len(left_over(service)) == 1, "the second file is not kept"
    plain = b'{"kind": "thumbnail", "priority": 3}'
    by_query = await post_form(
        service, "/jobs?dedupe=content", ("job", None, plain), ("video", "c.mp4", CONTENT)
    )
    assert by_query.json()["jobId"] == first.json()["jobId"]
    other = await post_form(service, "/jobs", ("job", None, job), ("video", "a.mp4", CONTENT[1:]))
    assert other.json()["jobId"] != first.json()["jobId"]
    upload = (await service.call("POST", "/uploads", body=CONTENT)).json()["uploadId"]
    named = {"kind": "thumbnail", "input": {"video": {"upload": upload}}, "dedupe": "content"}
    assert (await service.call("POST", "/jobs", json=named)).json()["jobId"] == first.json()["jobId"]


def register_once(service: Service) -> None:
    @service.registry.job(dedupe="content", require_key=True)
    def once(video: File) -> None: ...


async def test_a_kind_demands_one_job_per_content(service: Service) -> None:
    register_once(service)
    upload = (await service.call("POST", "/uploads?name=a", body=CONTENT)).json()["uploadId"]
    maker = await service.done(files=(FileInfo("out", "video/mp4", len(CONTENT), SHA256, "blob"),))
    refs = [{"upload": upload}, {"job": maker.id, "name": "out"}]
    replies = [
        await service.call("POST", "/jobs", json={"kind": "once", "input": {"video": ref}}, headers=key)
        for n, ref in enumerate(refs)
        for key in ({}, {"idempotency-key": "a"}, {"idempotency-key": f"b{n}"})
    ]
    assert {reply.status for reply in replies} == {202, 422}
    jobs = {reply.json()["jobId"] for reply in replies if reply.status == 202}
    assert len(jobs) == 1
    (conflict,) = [reply for reply in replies if reply.status == 422]
    assert conflict.json()["code"] == "idempotency-conflict"  # key `a` with another body
    (job,) = await service.store.get(list(jobs))
    assert isinstance(job, Job)
    spawned = await service.intake.prepare(
        Submission("once", msgspec.Raw(json.dumps({"video": refs[0]}).encode())), parent=job
    )
    assert spawned.keys == [], "a child belongs to its parent"


async def test_a_second_copy_is_kept_for_an_hour(service: Service) -> None:
    register_once(service)
    told = {"tus-resumable": "1.0.0", "content-type": "application/offset+octet-stream"}
    told |= {"upload-length": str(len(CONTENT)), "upload-metadata": "kind b25jZQ=="}  # once
    first, second = [await service.call("POST", "/files", body=CONTENT, headers=told) for _ in range(2)]
    assert first.headers["job-location"] == second.headers["job-location"]
    service.clock.advance(3599)
    await service.expiry.tick()
    assert len(left_over(service)) == 2
    service.clock.advance(10)
    await service.expiry.tick()
    (path,) = left_over(service)
    assert first.headers["location"].rpartition("/")[2] in str(path)


async def test_a_key_and_the_same_bytes_are_the_same_submission(service: Service) -> None:
    job = b'{"kind": "thumbnail"}'
    first, again, other = [
        await post_form(
            service, "/jobs", ("job", None, job), ("video", "a", data), **{"idempotency-key": "k"}
        )
        for data in (CONTENT, CONTENT, b"other")
    ]
    assert first.json()["jobId"] == again.json()["jobId"]
    assert (other.status, other.json()["code"]) == (422, "idempotency-conflict")
    assert len(left_over(service)) == 1
    assert await service.store.upload_bytes() == UploadBytes(len(CONTENT), 0), (
        "nor is there a record of the others"
    )


async def test_there_is_a_limit_and_a_quota(tmp_path: Path) -> None:
    uploads = UploadConfig(max_size=1000, quota=1500)
    config = Config(data=tmp_path, http=HttpConfig(max_body=MAX_BODY), uploads=uploads)
    async with Service(tmp_path, config=config).opened() as service:
        big = await service.call("POST", "/uploads", body=b"x" * 1001)
        assert (big.status, big.json()["code"]) == (413, "payload-too-large")
        told = {"content-length": "5000"}
        assert (await service.call("POST", "/uploads", body=b"x", headers=told)).status == 413
        first = await service.call("POST", "/uploads", body=b"x" * 1000)
        assert first.status == 201
        full = await service.call("POST", "/uploads", body=b"x" * 600)
        assert (full.status, full.json()["code"]) == (507, "storage-full")
        await service.call("DELETE", first.headers["location"])
        assert (await service.call("POST", "/uploads", body=b"x" * 600)).status == 201


async def test_what_is_encoded_is_refused(service: Service) -> None:
    reply = await service.call("POST", "/uploads", body=b"x", headers={"content-encoding": "gzip"})
    assert reply.status == 415


async def test_a_job_with_an_upload_that_there_is_not_is_refused(service: Service) -> None:
    body = {"kind": "thumbnail", "input": {"video": {"upload": "0" * 26}}}
    reply = await service.call("POST", "/jobs", json=body)
    assert (reply.status, reply.json()["errors"][0]["pointer"]) == (422, "/input")


async def test_a_page_of_another_port_sends_no_form(service: Service) -> None:
    """Which a browser would let it send without asking first."""
    page = {"sec-fetch-site": "same-site", "origin": "http://127.0.0.1:9000"}
    parts: list[tuple[str, str | None, bytes]] = [
        ("job", None, b'{"kind": "thumbnail"}'),
        ("video", "a", b"x"),
    ]
    refused = await post_form(service, "/jobs", *parts, **page)
    assert (refused.status, refused.json()["code"]) == (403, "cross-site")
    assert (await service.call("POST", "/uploads", body=b"x", headers=page)).status == 403
    own = {"sec-fetch-site": "same-origin"}
    assert (await post_form(service, "/jobs", *parts, **own)).status == 202
    assert left_over(service) != []
