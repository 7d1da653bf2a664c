"""`app.asgi()` in real servers: alone, and mounted in another application."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from bide import AsyncClient
from tests.servers.ports import free_port
from tests.servers.service import importing

TASKS = """
from bide import App, Context, File
app = App()

@app.job()
def copy(ctx: Context, source: File) -> int:
    ctx.output("copy.bin", source.path)
    return source.path.stat().st_size

@app.job()
def add(a: int, b: int = 0) -> int:
    return a + b
"""
SITE = """
import os
from starlette.applications import Starlette
from starlette.routing import Mount
from tasks import app
alone = app.asgi(data=os.environ["DATA"])
mounted = Starlette(routes=[Mount("/work", app=alone)], lifespan=alone.lifespan)
"""
COMMANDS = {
    "uvicorn": ["uvicorn", "--port", "PORT"],
    "hypercorn": ["hypercorn", "--bind", "127.0.0.1:PORT"],
    "granian": ["granian", "--interface", "asgi", "--port", "PORT"],
}


@dataclass
class Site:
    url: str
    process: subprocess.Popen[bytes]
    log: Path

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)


@pytest.fixture(params=[(s, a) for s in COMMANDS for a in ("alone", "mounted")], ids="-".join)
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    server, name = request.param
    (tmp_path / "tasks.py").write_text(TASKS)
    (tmp_path / "site_.py").write_text(SITE)
    port = free_port()
    command = [part.replace("PORT", str(port)) for part in COMMANDS[server]]
    log = tmp_path / "server.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", *command, f"site_:{name}"],
            stdout=out,
            stderr=out,
            env={**os.environ, **importing(tmp_path), "DATA": str(tmp_path / "data")},
            start_new_session=True,
        )
    site = Site(f"http://127.0.0.1:{port}" + ("/work" if name == "mounted" else ""), process, log)
    try:
        asyncio.run(listening(site))
        yield site
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


async def listening(site: Site) -> None:
    end = time.monotonic() + 60
    async with aiohttp.ClientSession() as session:
        while True:
            try:
                async with session.get(f"{site.url}/readyz") as answer:
                    assert answer.status == 200, await answer.text()
                    return
            except aiohttp.ClientConnectionError:
                assert site.process.poll() is None and time.monotonic() < end, site.log.read_text()
                await asyncio.sleep(0.05)


def test_jobs_uploads_downloads_and_a_stop(site: Site) -> None:
    asyncio.run(use(site))
    site.stop()
    assert "Traceback" not in site.log.read_text()


async def use(site: Site) -> None:
    base = site.url.removeprefix("http://").partition("/")[2]
    prefix = f"/{base}" if base else ""
    content = os.urandom(3_000_000)
    async with AsyncClient(site.url) as client:
        assert await (await client.submit("add", {"a": 1, "b": 2})).result(timeout=30) == 3
    async with aiohttp.ClientSession() as session:
        added = await ask(session, "POST", f"{site.url}/jobs", json={"kind": "add", "input": {"a": 5}})
        assert added["links"]["self"] == f"{prefix}/jobs/{added['jobId']}"
        held = await ask(
            session, "GET", f"{site.url}/jobs/{added['jobId']}", headers={"Prefer": "wait=30"}
        )
        assert (held["status"], held["result"]) == ("DONE", 5)
        upload = await ask(session, "POST", f"{site.url}/uploads", data=parts(content))
        assert upload["size"] == len(content)
        body = {"kind": "copy", "input": {"source": {"upload": upload["uploadId"]}}}
        job = await ask(session, "POST", f"{site.url}/jobs", json=body, headers={"Prefer": "wait=30"})
        assert (job["status"], job["result"]) == ("DONE", len(content))
        file = f"{site.url}/jobs/{job['jobId']}/files/copy.bin"
        async with session.get(file) as answer:
            assert hashlib.sha256(await answer.read()).digest() == hashlib.sha256(content).digest()
        async with session.get(file, headers={"Range": "bytes=10-19"}) as answer:
            assert (answer.status, await answer.read()) == (206, content[10:20])
        async with session.head(f"{site.url}/jobs/{job['jobId']}") as answer:
            assert (answer.status, await answer.read()) == (200, b"")
        async with session.get(f"{site.url}/nothing") as answer:
            assert (answer.status, answer.content_type) == (404, "application/problem+json")
            assert (await answer.json(content_type=None))["instance"] == f"{prefix}/nothing"
        await follow(session, site)
        assert await handshake(session, f"{site.url}/nothing") in (404, 403)  # 403: without a body
        assert await handshake(session, f"{site.url}/ws", Origin="http://evil.example") == 403


async def parts(content: bytes) -> Any:
    for i in range(0, len(content), 100_000):
        yield content[i : i + 100_000]


async def ask(session: aiohttp.ClientSession, method: str, url: str, **more: Any) -> dict[str, Any]:
    async with session.request(method, url, **more) as answer:
        assert answer.status < 300, await answer.text()
        found: dict[str, Any] = await answer.json()
        return found


async def follow(session: aiohttp.ClientSession, site: Site) -> None:
    """The events of a job over a WebSocket, which then stays open until the server stops."""
    job = await ask(session, "POST", f"{site.url}/jobs", json={"kind": "add", "input": {"a": 1}})
    socket = await session.ws_connect(f"{site.url}/ws", protocols=["bide.v1"])
    await socket.send_json({"subscribe": {"jobs": [job["jobId"]]}})
    heard = [await socket.receive_json(timeout=30)]
    while heard[-1]["type"] != "end":
        heard.append(await socket.receive_json(timeout=30))
    assert heard[0]["type"] == "snapshot" and "DONE" in str(heard)
    await socket.send_json({"subscribe": {"filter": {}}})
    assert (await socket.receive_json(timeout=30))["type"] == "snapshot"
    other = await session.ws_connect(f"{site.url}/ws")
    await other.send_str("garbage")
    assert (await other.receive(timeout=30)).data == 1007
    other = await session.ws_connect(f"{site.url}/ws")
    await other.send_json({"subscribe": {"filter": {"type": "é" * 200}}})  # the reason is shortened
    assert (await other.receive(timeout=30)).data == 1007


async def handshake(session: aiohttp.ClientSession, url: str, **headers: str) -> int:
    """The status of the response to the handshake of a WebSocket."""
    try:
        async with session.ws_connect(url, headers=headers):
            return 101
    except aiohttp.WSServerHandshakeError as error:
        return error.status
