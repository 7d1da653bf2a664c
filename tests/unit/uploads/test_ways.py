"""Which way a file goes, and what goes with it."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import pytest

from bide.client.blocking import Client
from bide.client.client import AsyncClient
from bide.core.errors import ServiceError, SetupError
from bide.core.wire.http import read_idempotency_key
from tests.unit.fake_service import job, job_id, problem
from tests.unit.uploads.fake import SIZE, Bar, FakeUploads, Slept, digest, says


def _kind(name: str, **properties: Any) -> dict[str, Any]:
    return {"kind": name, "inputSchema": {"properties": properties}}


UPLOAD = {"oneOf": [{"required": ["job", "name"]}, {"required": ["upload"]}]}
KINDS = {
    "kinds": [
        _kind("merge", video=UPLOAD, sound={"anyOf": [UPLOAD, {"type": "null"}]}, loud={}),
        _kind("read", pages={"type": "array", "items": UPLOAD}),
        _kind("look", note={"type": "string"}, source=UPLOAD),
    ]
}


async def test_a_small_file_goes_with_its_submission_in_one_request(
    service: FakeUploads, tmp_path: Path
) -> None:
    path = tmp_path / 'sm"all.txt'
    path.write_bytes(b"hello")
    async with AsyncClient(service.url) as client:
        job = await client.submit("count", {"a": 1}, file=path, priority=3)

    assert job.id == job_id(1)
    assert service.requests == [("POST", "/jobs")]
    (form,) = service.forms
    assert form["job"] == {"kind": "count", "input": {"a": 1}, "priority": 3}
    assert form["file"] == ("sm%22all.txt", "text/plain", b"hello")
    assert form["digest"] == digest(b"hello")
    assert form["key"], "so that it can be sent again"


async def test_several_small_files_go_by_the_names_of_their_parameters(
    service: FakeUploads, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_bytes(b"a")
    async with AsyncClient(service.url) as client:
        files: dict[str, Path | io.BytesIO] = {"first": tmp_path / "a.txt", "second": io.BytesIO(b"bb")}
        await client.submit("merge", files=files, idempotency_key="k")
    (form,) = service.forms
    assert form["first"] == ("a.txt", "text/plain", b"a")
    assert form["second"] == ("file", "application/octet-stream", b"bb")
    assert form["key"] == '"k"'


async def test_a_large_file_is_begun_with_the_whole_submission(
    service: FakeUploads, large: Path
) -> None:
    shown: list[int] = []
    async with AsyncClient(service.url) as client:
        job = await client.submit(
            "transcode", {"height": 480}, file=large, labels={"a": "b"}, progress=Bar(shown)
        )
    assert job.id == job_id(1)
    upload = service.only
    assert bytes(upload.data) == large.read_bytes()
    assert upload.metadata["kind"] == "transcode"
    assert upload.metadata["input"] == '{"height":480}'
    assert upload.metadata["labels"] == '{"a":"b"}'
    assert upload.metadata["filename"] == "film.mp4" and upload.metadata["filetype"] == "video/mp4"
    assert "parameter" not in upload.metadata and upload.metadata["idempotencyKey"]
    assert upload.digest == digest(large.read_bytes()), "the last piece says what the whole is"
    assert sum(shown) == SIZE
    assert service.requests[0] == ("POST", "/files") and service.received == SIZE


async def test_several_large_files_are_uploads_of_one_job(service: FakeUploads, large: Path) -> None:
    service.on("GET", "/kinds", says(KINDS))
    service.on("POST", "/jobs", problem(503, "unavailable"), says(job(1, "PENDING"), 202))
    shown: list[int] = []
    async with AsyncClient(service.url, pace=Slept().pace) as client:
        files: dict[str, Path | io.BytesIO] = {"video": large, "sound": io.BytesIO(b"la")}
        await client.submit("merge", {"loud": True}, files=files, progress=Bar(shown))
    assert service.bodies[-1] == {
        "kind": "merge",
        "input": {"loud": True, "video": {"upload": "u1"}, "sound": {"upload": "u2"}},
    }
    assert bytes(service.uploads["u2"].data) == b"la"
    assert sum(shown) == SIZE + 2
    keys = service.header("Idempotency-Key")[-2:]
    assert keys[0] == keys[1] and keys[0]


@pytest.mark.parametrize(
    ("kind", "name", "pointer"), [("mergd", "video", "/kind"), ("merge", "vidio", "/input/vidio")]
)
async def test_wrong_names_with_several_files_are_reported_before_a_byte_is_sent(
    service: FakeUploads, large: Path, kind: str, name: str, pointer: str
) -> None:
    service.on("GET", "/kinds", says(KINDS))
    async with AsyncClient(service.url) as client:
        with pytest.raises(ServiceError) as raised:
            await client.submit(kind, files={name: large, "sound": large})
    assert raised.value.status == 422
    assert [e["pointer"] for e in raised.value.problem["errors"]] == [pointer]
    assert service.requests == [("GET", "/kinds")]


async def test_another_api_takes_no_files(tmp_path: Path) -> None:
    async with AsyncClient(api="sync.so", key="k") as client:
        with pytest.raises(SetupError, match=r"sync\.so accepts no files from this client"):
            await client.submit("lipsync", file=tmp_path / "any")


def test_the_sync_client_sends_files_too(service: FakeUploads, large: Path) -> None:
    with Client(service.url) as client, large.open("rb") as file:
        file.seek(123)  # it is sent from its beginning
        client.submit("transcode", file=file)
        assert not file.closed
    assert bytes(service.only.data) == large.read_bytes()
    assert service.only.metadata["filename"] == "film.mp4"


async def test_objects_that_cannot_be_sent_are_errors(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as pipe, os.fdopen(writing, "wb"):
        wrong: list[tuple[Any, type[Exception], str]] = [
            (tmp_path / "missing", FileNotFoundError, "missing"),
            (tmp_path, ValueError, "folder"),
            (tmp_path / "pipe", ValueError, "pipe"),
            (io.StringIO("text"), TypeError, "'rb'"),
            (pipe, ValueError, "seekable"),
            (b"bytes", TypeError, "not bytes"),
        ]
        async with AsyncClient("http://127.0.0.1:1") as client:
            for given_file, error, text in wrong:
                with pytest.raises(error, match=text):
                    await client.submit("count", file=given_file)
            with pytest.raises(TypeError, match="not both"):
                await client.submit("count", file=tmp_path, files={"a": tmp_path})


async def test_dedupe_by_content_needs_no_key(service: FakeUploads, large: Path) -> None:
    async with AsyncClient(service.url) as client:
        await client.submit("transcode", file=large, dedupe="content")
    assert service.only.metadata["dedupe"] == "content"
    assert "idempotencyKey" not in service.only.metadata


async def test_a_parameter_may_take_several_files(
    service: FakeUploads, large: Path, tmp_path: Path
) -> None:
    service.on("GET", "/kinds", says(KINDS))
    service.on("POST", "/jobs", says(job(1, "PENDING"), 202))
    (tmp_path / "a").write_bytes(b"a")
    async with AsyncClient(service.url) as client:
        await client.submit("read", files={"pages": [tmp_path / "a", tmp_path / "a"]})
        await client.submit("read", files={"pages": [tmp_path / "a", large]})
    assert service.parts == ["job", "pages", "pages"]
    pages = [{"upload": "u1"}, {"upload": "u2"}]
    assert service.bodies[-1] == {"kind": "read", "input": {"pages": pages}}


async def test_a_submission_that_is_too_long_for_a_header_goes_after_its_file(
    service: FakeUploads, large: Path
) -> None:
    service.on("GET", "/kinds", says(KINDS))
    service.on("POST", "/jobs", says(job(1, "PENDING"), 202))
    note = "x" * 10_000
    async with AsyncClient(service.url) as client:
        await client.submit("look", {"note": note}, file=large)
    assert service.bodies[-1]["input"] == {"note": note, "source": {"upload": "u1"}}
    assert bytes(service.only.data) == large.read_bytes()


@pytest.mark.parametrize("kind", ["merge", "nothing"])
async def test_a_file_for_no_parameter_or_for_several_is_reported_before_a_byte_is_sent(
    service: FakeUploads, large: Path, kind: str
) -> None:
    service.on("GET", "/kinds", says({"kinds": [*KINDS["kinds"], _kind("nothing")]}))
    async with AsyncClient(service.url) as client:
        with pytest.raises(ServiceError, match="takes no such file") as raised:
            await client.submit(kind, {"note": "x" * 10_000}, file=large)
    assert [e["pointer"] for e in raised.value.problem["errors"]] == ["/input"]
    assert service.uploads == {}


@pytest.mark.parametrize("size", [10, SIZE])
async def test_the_answer_can_wait_for_the_end_of_the_job(
    service: FakeUploads, tmp_path: Path, size: int
) -> None:
    (tmp_path / "a").write_bytes(bytes(size))
    async with AsyncClient(service.url) as client:
        await client.submit("count", file=tmp_path / "a", wait=7)
    assert service.header("Prefer")[-1] == "wait=7"


async def test_a_key_with_quotes_is_the_same_key_either_way(
    service: FakeUploads, large: Path, tmp_path: Path
) -> None:
    (tmp_path / "a").write_bytes(b"a")
    async with AsyncClient(service.url) as client:
        for path in (large, tmp_path / "a"):
            await client.submit("count", file=path, idempotency_key='"a" or \\b')
    keys = (service.only.metadata["idempotencyKey"], service.forms[0]["key"])
    assert [read_idempotency_key(key) for key in keys] == ['"a" or \\b'] * 2


async def test_an_input_with_files_is_an_object(service: FakeUploads, large: Path) -> None:
    async with AsyncClient(service.url) as client:
        with pytest.raises(TypeError, match="not list"):
            await client.submit("count", [1], file=large)
