"""The HTTP interface behind a real server: large files, clients that disconnect, and bodies of unknown length."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator

import aiohttp
import pytest

from bide.server.config import HttpConfig
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
    async with client.get(f"/jobs/{job_id[:-1]}Z") as answer:
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
