"""Uploads over failing connections, to a failing service, and of files that change meanwhile."""

from __future__ import annotations

import io
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from bide.client.client import AsyncClient
from bide.client.http import sender
from bide.client.uploads import upload_session
from bide.client.uploads.source import Source
from bide.core.errors import ServiceError, ServiceUnreachable, UploadFailed
from tests.unit.fake_service import job, job_id, problem, reset
from tests.unit.uploads.fake import SIZE, Bar, FakeUploads, Slept, digest, says


@pytest.mark.parametrize("cuts", [[1], [99_999, 5, 60_000], [3_000] * 40])
async def test_a_cut_upload_goes_on_where_the_service_is(
    service: FakeUploads, large: Path, cuts: list[int]
) -> None:
    slept = Slept()
    service.cuts = list(cuts)
    async with AsyncClient(service.url, pace=slept.pace) as client:
        await client.submit("transcode", file=large)
    assert bytes(service.only.data) == large.read_bytes()
    assert service.only.digest == digest(large.read_bytes())
    assert service.received == SIZE, "no byte that had arrived was sent again"
    assert len(slept.pauses) == len(cuts)
    assert max(slept.pauses) <= 0.5, "each cut that got ahead is the first one"


async def test_errors_are_retried_after_the_retry_after(service: FakeUploads, large: Path) -> None:
    slept = Slept()
    service.before("POST", "/files", problem(503, "unavailable", "", **{"Retry-After": "7"}), reset)
    service.before("PATCH", "/files", problem(500, "internal"), reset)
    service.before("HEAD", "/files", problem(502, "http-502"))
    service.before("GET", "/jobs", reset)
    async with AsyncClient(service.url, pace=slept.pace) as client:
        await client.submit("transcode", file=large)
    assert 7.0 <= slept.pauses[0] <= 7.7
    assert len(slept.pauses) == 6
    assert bytes(service.only.data) == large.read_bytes()


async def test_a_direct_one_that_is_cut_off_is_sent_again_with_the_same_key(
    service: FakeUploads, tmp_path: Path
) -> None:
    (tmp_path / "a").write_bytes(b"x" * 1000)
    service.before("POST", "/jobs", reset, problem(500, "internal"))
    slept = Slept()
    async with AsyncClient(service.url, pace=slept.pace) as client:
        await client.submit("count", file=tmp_path / "a")
    keys = service.header("Idempotency-Key")
    assert len(keys) == 3 and len(set(keys)) == 1 and keys[0]


@pytest.mark.parametrize("size", [10, SIZE])
async def test_an_unreachable_service_is_reported_at_once(tmp_path: Path, size: int) -> None:
    with FakeUploads() as gone:
        url = gone.url
    (tmp_path / "a").write_bytes(bytes(size))
    slept = Slept()
    async with AsyncClient(url, pace=slept.pace) as client:
        with pytest.raises(ServiceUnreachable, match="is `bide serve` running there"):
            await client.submit("count", file=tmp_path / "a")
    assert slept.pauses == []


async def test_what_does_not_get_ahead_is_given_up(service: FakeUploads, large: Path) -> None:
    slept = Slept()
    service.before("PATCH", "/files", *[reset] * 1000)
    async with AsyncClient(service.url, pace=slept.pace) as client:
        with pytest.raises(UploadFailed, match=r"film\.mp4 made no progress for 1. minutes") as raised:
            await client.submit("transcode", file=large)
    assert raised.value.resumable
    assert slept.at < 2 * upload_session.GIVE_UP
    assert len(slept.pauses) < 200


@pytest.mark.parametrize(
    ("status", "code"), [(413, "payload-too-large"), (422, "unknown-kind"), (507, "storage-full")]
)
async def test_a_refusal_is_reported_before_a_byte_is_sent(
    service: FakeUploads, large: Path, status: int, code: str
) -> None:
    service.before("POST", "/files", problem(status, code))
    async with AsyncClient(service.url) as client:
        with pytest.raises(ServiceError) as raised:
            await client.submit("transcode", file=large)
    assert raised.value.code == code
    assert service.requests == [("POST", "/files")]


async def test_an_upload_that_the_service_has_forgotten_begins_anew(
    service: FakeUploads, large: Path
) -> None:
    service.cuts = [10_000]
    service.before("HEAD", "/files/u1", problem(410, "gone"))
    async with AsyncClient(service.url, pace=Slept().pace) as client:
        await client.submit("transcode", file=large)
    assert bytes(service.uploads["u2"].data) == large.read_bytes()
    assert service.uploads["u1"].metadata == service.uploads["u2"].metadata, "the same key, too"


async def test_a_file_that_changes_while_it_is_sent_makes_no_job(
    service: FakeUploads, large: Path
) -> None:
    class Meddler(Bar):
        def update(self, more: int) -> None:
            super().update(more)
            if sum(self.shown) == 40_960:
                with large.open("r+b") as file:
                    file.write(b"changed")
                os.utime(large, (1, 1))

    async with AsyncClient(service.url) as client:
        with pytest.raises(
            UploadFailed, match=r"film\.mp4 changed during the upload: its modification time changed"
        ):
            await client.submit("transcode", file=large, progress=Meddler([]))
    assert service.requests[-1] == ("DELETE", "/files/u1"), "what was sent of it is of no use"
    assert service.uploads == {}


@pytest.mark.parametrize("size", [SIZE, 1000])
async def test_a_file_that_gets_shorter_says_by_how_much(
    service: FakeUploads, tmp_path: Path, size: int
) -> None:
    shrinking = io.BytesIO(bytes(size))
    source = Source(shrinking)
    shrinking.truncate(7)
    with pytest.raises(UploadFailed, match=f"it had {size} bytes and ends after 7"):
        source.block(0)


async def test_a_connection_that_takes_no_byte_is_left(
    large: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender, "STALL", 0.2)

    class Endless:
        size = 2**30

        async def chunks(self) -> AsyncIterator[bytes]:
            while True:
                yield bytes(2**20)

    deaf = socket.create_server(("127.0.0.1", 0))  # accepted by the kernel, and never read
    with deaf:
        async with AsyncClient(f"http://127.0.0.1:{deaf.getsockname()[1]}") as client:
            with pytest.raises(ServiceUnreachable, match="it took too long"):
                await client._service.send_content("PATCH", "/files/u1", Endless(), {})


async def test_a_form_that_is_sent_elsewhere_is_sent_there_whole(
    service: FakeUploads, tmp_path: Path
) -> None:
    async def elsewhere(request: web.Request) -> web.StreamResponse:
        return web.Response(status=308, headers={"Location": "/jobs"})

    service.on("POST", "/gate/jobs", elsewhere)
    (tmp_path / "a").write_bytes(b"x" * 20_000)
    async with AsyncClient(f"{service.url}/gate", key="sesame") as client:
        await client.submit("count", file=tmp_path / "a")
    assert service.forms[0]["file"][2] == b"x" * 20_000


async def test_what_arrived_as_another_file_makes_no_job(service: FakeUploads, large: Path) -> None:
    service.lies = "0" * 64
    service.on("POST", f"/jobs/{job_id(1)}/cancel", says(job(1, "PENDING")))
    async with AsyncClient(service.url) as client:
        with pytest.raises(UploadFailed, match=r"film\.mp4: checksum mismatch: .* the service has 000"):
            await client.submit("transcode", file=large)
    assert ("POST", f"/jobs/{job_id(1)}/cancel") in service.requests


@pytest.mark.parametrize("offset", ["", "many", "-1", "1e3", str(SIZE + 1)])
async def test_nonsense_about_where_an_upload_is_does_no_harm(
    service: FakeUploads, large: Path, offset: str
) -> None:
    async def nonsense(request: web.Request) -> web.StreamResponse:
        return web.Response(headers={"Upload-Offset": offset})

    slept = Slept()
    service.cuts = [10_000]
    service.before("HEAD", "/files", nonsense)
    async with AsyncClient(service.url, pace=slept.pace) as client:
        if offset.isdigit():
            with pytest.raises(UploadFailed, match="belongs to another file"):
                await client.submit("transcode", file=large)
        else:
            await client.submit("transcode", file=large)
            assert bytes(service.only.data) == large.read_bytes()
