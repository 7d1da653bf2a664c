"""The HTTP interface behind a real server: large files, clients that disconnect, and bodies of unknown length."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from bide.server.config import HttpConfig
from bide.server.store import UploadBytes
from bide.service.httpd.connection import ConnectionLimits
from bide.service.httpd.server import HttpServer, bind
from tests.integration.http.service import MAX_BODY, Service


@pytest.fixture
async def client(service: Service) -> AsyncIterator[aiohttp.ClientSession]:
    listener = bind("127.0.0.1", 0)
    server = HttpServer(service.app, ConnectionLimits.of(HttpConfig(), 100))
    await server.start(listener)
    base = f"http://127.0.0.1:{listener.getsockname()[1]}"
    async with aiohttp.ClientSession(base) as session:
        yield session
    service.notify.close()
    await server.stop()
    listener.close()


async def test_a_large_file_arrives_whole(service: Service, client: aiohttp.ClientSession) -> None:
    content = os.urandom(5_000_000)
    await service.submit()
    job = await service.claim()
    file = service.blobs.put(job.id, job.fence, "clip.mp4", content, "video/mp4")
    await service.finish(job, files=(file,))
    async with client.get(f"/jobs/{job.id}/files/clip.mp4") as answer:
        assert answer.content_type == "video/mp4"
        assert hashlib.sha256(await answer.read()).hexdigest() == file.sha256
    async with client.get(
        f"/jobs/{job.id}/files/clip.mp4", headers={"Range": "bytes=4999990-"}
    ) as answer:
        assert (answer.status, await answer.read()) == (206, content[-10:])


async def test_a_poll_is_woken_by_the_end(service: Service, client: aiohttp.ClientSession) -> None:
    job_id = await service.submit()

    async def poll() -> str:
        async with client.get(f"/jobs/{job_id}", headers={"Prefer": "wait=30"}) as answer:
            status: str = (await answer.json())["status"]
            return status

    polling = asyncio.create_task(poll())
    while service.notify.waiting == 0:
        await asyncio.sleep(0.001)
    await service.finish(await service.claim())
    assert await polling == "DONE"


async def test_an_accepted_cancel_is_visible_until_the_job_runs_again(
    service: Service, client: aiohttp.ClientSession
) -> None:
    job_id = await service.submit()
    job = await service.claim()

    async def ask(method: str, path: str = "") -> tuple[str, bool, str]:
        async with client.request(method, f"/jobs/{job_id}{path}") as answer:
            document = await answer.json()
            return document["status"], document["cancelRequested"], answer.headers.get("ETag", "")

    *before, tag = await ask("GET")
    assert before == ["PROCESSING", False]
    assert await ask("POST", "/cancel") == ("PROCESSING", True, "")
    *asked, later = await ask("GET")
    assert asked == ["PROCESSING", True] and later != tag
    async with client.get("/jobs") as answer:
        assert [one["cancelRequested"] for one in (await answer.json())["jobs"]] == [True]
    await service.finish(job)
    assert (await ask("GET"))[:2] == ("CANCELLED", True)
    assert (await ask("POST", "/retry"))[:2] == ("PENDING", False)


async def test_a_private_cache_may_keep_a_status_until_the_next_poll(
    service: Service, client: aiohttp.ClientSession
) -> None:
    job_id = await service.submit()
    late = await service.submit(runAt="2999-01-01T00:00:00Z")

    async def caching(path: str, **headers: str) -> tuple[int, int | None, str]:
        async with client.get(path, headers=headers) as answer:
            assert answer.headers.getall("Vary") == ["Prefer, Authorization"]
            seconds = answer.headers.get("Retry-After")
            stored = answer.headers["Cache-Control"]
            return answer.status, None if seconds is None else int(seconds), stored

    async with client.get(f"/jobs/{job_id}") as answer:
        tag = answer.headers["ETag"]
    assert await caching(f"/jobs/{job_id}") == (200, 1, "private, max-age=1")
    assert await caching(f"/jobs/{job_id}", **{"If-None-Match": tag}) == (304, 1, "private, max-age=1")
    assert await caching(f"/jobs?id={job_id}&id={late}") == (200, 1, "private, max-age=1")
    status, seconds, stored = await caching(f"/jobs/{late}")
    assert (status, stored) == (200, "private, max-age=60") and seconds is not None and seconds > 60
    for path, headers in (
        (f"/jobs/{job_id}", {"Prefer": "wait=0"}),
        (f"/jobs/{job_id}?include=log", {}),
    ):
        assert await caching(path, **headers) == (200, 1, "no-store")
    await service.finish(await service.claim())
    assert await caching(f"/jobs/{job_id}") == (200, None, "private, max-age=60")
    assert await caching(f"/jobs/{job_id}", Prefer="wait=30") == (200, None, "no-store")
    async with client.get(f"/jobs/{'0' * len(job_id)}") as answer:
        assert (answer.status, answer.headers["Cache-Control"]) == (404, "no-store")


async def test_a_caller_who_hangs_up_is_not_waited_for(
    service: Service, client: aiohttp.ClientSession
) -> None:
    job_id = await service.submit()
    calls = [
        client.get(f"/jobs/{job_id}", headers={"Prefer": "wait=60"}),
        client.post("/jobs", json={"kind": "echo"}, headers={"Prefer": "wait=60"}),
    ]
    for call in calls:
        calling = asyncio.ensure_future(call)
        while service.notify.waiting == 0:
            await asyncio.sleep(0.001)
        calling.cancel()
        while service.notify.waiting:
            await asyncio.sleep(0.001)
    assert await service.events() == 2  # what was submitted stays


TUS = {"Tus-Resumable": "1.0.0"}
OFFSET = {"Content-Type": "application/offset+octet-stream"}


async def _begin(client: aiohttp.ClientSession, **headers: str) -> str:
    lines = {name.replace("_", "-"): value for name, value in headers.items()}
    async with client.post("/files", headers=TUS | lines) as answer:
        assert answer.status == 201, await answer.text()
        return answer.headers["Location"]


async def _patch(
    client: aiohttp.ClientSession, place: str, offset: int, data: Any
) -> tuple[int, str, str | None]:
    headers = TUS | OFFSET | {"Upload-Offset": str(offset)}
    async with client.patch(place, data=data, headers=headers) as answer:
        code = "" if answer.status == 204 else (await answer.json(content_type=None))["code"]
        return answer.status, code, answer.headers.get("Upload-Offset")


async def test_a_conflict_of_tus_names_the_offset(
    service: Service, client: aiohttp.ClientSession
) -> None:
    place = await _begin(client, Upload_Length="10")
    assert await _patch(client, place, 0, b"0123") == (204, "", "4")
    assert await _patch(client, place, 9, b"9") == (409, "wrong-offset", "4")
    async with client.get(place) as answer:
        assert (answer.status, answer.headers["Upload-Offset"]) == (409, "4")
    arrived = asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        yield b"456"
        await arrived.wait()
        yield b"7"

    older = asyncio.create_task(_patch(client, place, 4, slow()))
    while not service.lifecycle.is_held(place.rpartition("/")[2]):
        await asyncio.sleep(0.001)
    async with client.head(place, headers=TUS) as answer:
        offset = answer.headers["Upload-Offset"]
    assert await older == (409, "taken-over", offset)
    rest = b"0123456789"[int(offset) :]
    assert await _patch(client, place, int(offset), rest) == (204, "", "10")
    assert await _patch(client, place, 10, b"x") == (409, "upload-conflict", "10")


async def test_a_final_upload_of_tus_accepts_no_bytes(client: aiohttp.ClientSession) -> None:
    parts = [await _begin(client, Upload_Length="2", Upload_Concat="partial") for _ in range(2)]
    for part in parts:
        assert (await _patch(client, part, 0, b"ab"))[0] == 204
    final = await _begin(client, Upload_Concat=f"final;{' '.join(parts)}")
    for offset in (0, 4):
        assert (await _patch(client, final, offset, b"c"))[:2] == (403, "final-upload")
    async with client.get(final) as answer:
        assert await answer.read() == b"abab"


async def test_bytes_of_another_type_create_no_tus_upload(
    service: Service, client: aiohttp.ClientSession
) -> None:
    async def stream() -> AsyncIterator[bytes]:
        yield b"0123"

    for data in (b"0123", stream()):
        lines = TUS | {"Upload-Length": "10", "Content-Type": "application/octet-stream"}
        async with client.post("/files", data=data, headers=lines) as answer:
            assert (answer.status, (await answer.json(content_type=None))["code"]) == (
                415,
                "unsupported-media-type",
            )
    assert await service.store.upload_bytes() == UploadBytes(0, 0)
    # Without a body, the type does not matter.
    place = await _begin(client, Upload_Length="10", Content_Type="application/octet-stream")
    lines = TUS | OFFSET | {"Upload-Length": "4"}
    async with client.post("/files", data=stream(), headers=lines) as answer:
        assert (answer.status, answer.headers["Upload-Offset"]) == (201, "4")
    assert await _patch(client, place, 0, b"0123") == (204, "", "4")


async def test_a_chunked_body_is_limited_too(service: Service, client: aiohttp.ClientSession) -> None:
    async def chunks(count: int) -> AsyncIterator[bytes]:
        yield b'{"kind": "echo"'
        for _ in range(count):
            yield b" " * 1000
        yield b"}"

    headers = {"Content-Type": "application/json"}
    async with client.post("/jobs", data=chunks(3), headers=headers) as answer:
        assert answer.status == 202
    async with client.post("/jobs", data=chunks(MAX_BODY // 100), headers=headers) as answer:
        assert answer.status == 413


async def test_every_answer_leaves_the_connection_usable(
    service: Service, client: aiohttp.ClientSession
) -> None:
    job_id = await service.submit()
    for method, path, status in (
        ("GET", f"/jobs/{job_id}", 200),
        ("HEAD", f"/jobs/{job_id}", 200),
        ("GET", "/nothing", 404),
        ("HEAD", "/nothing", 404),
        ("DELETE", f"/jobs/{job_id}", 204),
        ("GET", f"/jobs/{job_id}", 410),
    ) * 2:
        async with client.request(method, path) as answer:
            assert answer.status in (status, 410)
            await answer.read()


async def test_a_near_path_is_suggested_over_the_socket(client: aiohttp.ClientSession) -> None:
    async with client.get("/file") as response:
        assert response.status == 404
        assert (await response.json())["detail"] == "No such path: '/file'. Did you mean /files?"
