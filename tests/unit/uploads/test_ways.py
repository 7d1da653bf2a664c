"""Which way a file goes, and what goes with it."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import pytest

from bide.client.api import AsyncClient
from bide.client.sync import Client
from bide.core.errors import ServiceError, SetupError
from tests.unit.fake_service import job, job_id, problem
from tests.unit.uploads.fake import SIZE, Bar, FakeUploads, Slept, digest, says

KINDS = {"kinds": [{"kind": "merge", "inputSchema": {"properties": {"video": {}, "sound": {}}}}]}


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
async def test_wrong_names_with_several_files_are_told_before_a_byte_is_sent(
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
        with pytest.raises(SetupError, match=r"sync\.so takes no file from this client"):
            await client.submit("lipsync", file=tmp_path / "any")


def test_the_sync_client_sends_files_too(service: FakeUploads, large: Path) -> None:
    with Client(service.url) as client, large.open("rb") as file:
        file.seek(123)  # it is sent from its beginning
        client.submit("transcode", file=file)
        assert not file.closed
    assert bytes(service.only.data) == large.read_bytes()
    assert service.only.metadata["filename"] == "film.mp4"


async def test_what_cannot_be_sent_is_told(tmp_path: Path) -> None:
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
