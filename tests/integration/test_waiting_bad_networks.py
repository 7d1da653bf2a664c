"""Waiting over a bad network: no name, no answer, far too much of it, a proxy, a certificate of one's own, Ctrl-C."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import os
import shutil
import signal
import socket
import sqlite3
import ssl
import subprocess
import sys
import threading
import zlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from bide.client.client import AsyncClient
from bide.client.timing import Timing
from bide.client.uploads.upload_session import Pace
from bide.core.errors import ServiceUnreachable, UnusableService, WaitTimeout
from tests.integration.third_party import (
    KEY,
    SPEED,
    ThirdParty,
    done,
    film,
    going_on,
    ids,
    page,
    sync_so,
    tells,
)
from tests.unit import fake_service as fake
from tests.unit.fake_service import job_id
from tests.waiting import until

HASTE = Pace(base=0.005, cap=0.3)


@pytest.fixture
def server(caplog: pytest.LogCaptureFixture) -> Iterator[ThirdParty]:
    caplog.set_level(logging.INFO)
    with ThirdParty() as running:
        yield running
    assert KEY not in caplog.text


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


# --- no answer


@pytest.fixture
def lookups(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names that were looked up; the first four in vain."""
    asked: list[str] = []
    real = socket.getaddrinfo

    def look_up(host: Any, *rest: Any, **more: Any) -> Any:
        if not str(host).endswith(".example"):
            return real(host, *rest, **more)
        asked.append(host)
        if len(asked) <= 4:
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return real("127.0.0.1", *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    return asked


@pytest.mark.parametrize("what", ["a third party's", "one of a service", "many of a service"])
async def test_a_name_that_cannot_be_found_is_looked_up_again_later(
    what: str, server: ThirdParty, lookups: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    await _goes_on(what, server, server.url.replace("127.0.0.1", "jobs.example"))
    assert len(lookups) == 5
    assert caplog.text.count("no answer from http://jobs.example") == 1  # said once, not once a poll
    assert caplog.text.count("answers come again") <= 1


@pytest.mark.parametrize("what", ["a third party's", "one of a service", "many of a service"])
async def test_a_refused_connection_is_tried_again_later(what: str) -> None:
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))  # bound and not listening: refused
    server = ThirdParty(sock)
    with contextlib.ExitStack() as stack:
        timer = threading.Timer(0.3, stack.enter_context, (server,))
        timer.start()
        port = sock.getsockname()[1]
        tried = await _goes_on(what, server, f"http://127.0.0.1:{port}")
        timer.join()
    assert 3 <= tried <= 30


async def _goes_on(what: str, server: ThirdParty, url: str) -> int:
    """Waits there until the end; how many requests that took."""
    server.generation(1, done())
    server.script(1, tells(fake.job(1, result=7)))
    server.on("GET", "/jobs", page())
    api = "sync.so" if "third" in what else None
    async with AsyncClient(url, KEY, api=api, timing=Timing(SPEED), pace=HASTE) as client:
        if api is not None:
            assert await client.job("gen-1").result(timeout=20) == film()
        elif "many" in what:
            await client.wait_all([client.job(id) for id in ids(100)], timeout=20)
        else:
            assert await client.job(job_id(1)).result(timeout=20) == 7
        return client.requests


async def test_a_name_that_is_never_found_does_not_spin(caplog: pytest.LogCaptureFixture) -> None:
    url = "http://jobs.invalid"
    async with AsyncClient(url, KEY, api="sync.so", timing=Timing(SPEED)) as client:
        with pytest.raises(WaitTimeout):
            await client.wait_all([client.job(f"gen-{n}") for n in range(100)], timeout=0.6)
        assert 1 <= client.requests <= 25
        with pytest.raises(ServiceUnreachable, match=r"no answer from http://jobs\.invalid"):
            await client.submit("lipsync", {})


# --- far too much of an answer

BLOCK = b"\0" * 65536


def floods(sent: list[int], length: bool) -> fake.Reply:
    """A gigabyte; `sent` gets how much of it went out."""

    async def reply(request: web.Request) -> web.StreamResponse:
        headers = {"Content-Length": str(1 << 30)} if length else {}
        response = web.StreamResponse(headers={"Content-Type": "application/json", **headers})
        await response.prepare(request)
        sent.append(0)
        with contextlib.suppress(ConnectionError):
            while sent[-1] < 1 << 30 and request.transport is not None:
                await response.write(BLOCK)
                sent[-1] += len(BLOCK)
        return response

    return reply


def bomb(coding: str) -> fake.Reply:
    """A gigabyte of nothing in a megabyte."""
    deflate = zlib.compressobj(9, wbits=31 if coding == "gzip" else 15)
    start = deflate.compress(b"[") + deflate.flush(zlib.Z_FULL_FLUSH)
    mebibyte = deflate.compress(b" " * (1 << 20)) + deflate.flush(zlib.Z_FULL_FLUSH)

    async def reply(request: web.Request) -> web.StreamResponse:
        body = start + mebibyte * 1024
        headers = {"Content-Encoding": coding, "Content-Type": "application/json"}
        return web.Response(body=body, headers=headers)

    return reply


MEASURED = """
import asyncio, resource, sys
from bide.client.client import AsyncClient
from bide.client.timing import Timing
from bide.client.uploads.upload_session import Pace

async def main():
    url, api, *jobs = sys.argv[1:]
    client = AsyncClient(url, "k", api=api or None, timing=Timing(100.0), pace=Pace(base=0.005))
    async with client:
        await client._transport.exchange("GET", url + "/small", {})
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for job in jobs:
            await client.job(job).result(timeout=30)
        print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)

asyncio.run(main())
"""


def run_measured(url: str, api: str, *jobs: str) -> int:
    """Mebibytes that the waits took at their height."""
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, url, api, *jobs],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.parametrize("api", ["sync.so", ""])
def test_a_gigabyte_takes_little_memory_and_is_not_read_to_its_end(api: str, server: ThirdParty) -> None:
    told: list[int] = []
    untold: list[int] = []
    bad = [floods(told, True), floods(untold, False), bomb("gzip"), bomb("deflate")]
    jobs = [f"gen-{n}" if api else job_id(n) for n in range(len(bad))]
    for number, reply in enumerate(bad):
        server.generation(number, reply, done(number))
        server.script(number, reply, tells(fake.job(number, result=number)))
    assert run_measured(server.url, api, *jobs) < 100
    assert told and told[0] < 16 << 20  # what its head says is enough; the rest was in buffers
    assert untold and untold[0] < 40 << 20


# --- proxies and certificates


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Of its own, for api.invalid and this machine: the certificate and its key."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("needs openssl")
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    names = "subjectAltName=DNS:api.invalid,DNS:localhost,IP:127.0.0.1"
    command = [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
    command += ["-nodes", "-days", "2", "-subj", "/CN=api.invalid", "-addext", names]
    subprocess.run([*command, "-keyout", key, "-out", cert], check=True, capture_output=True)
    return cert, key


@pytest.fixture
def secure(certificate: tuple[Path, Path]) -> Iterator[ThirdParty]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    with ThirdParty(context=context) as running:
        yield running


@pytest.mark.parametrize("api", ["sync.so", None])
async def test_a_certificate_of_ones_own_is_taken_from_ssl_cert_file(
    api: str | None,
    secure: ThirdParty,
    certificate: tuple[Path, Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    secure.generation(1, done())
    secure.script(1, tells(fake.job(1, result=film())))

    async def wait(timeout: float) -> Any:
        timing = Timing(SPEED)
        async with AsyncClient(secure.url, KEY, api=api, timing=timing, pace=HASTE) as client:
            return await client.job("gen-1" if api else job_id(1)).result(timeout=timeout)

    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    with pytest.raises(UnusableService, match="self-signed certificate"):
        await wait(20)
    assert secure.asked == []
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    assert await wait(20) == film()


class Proxy:
    """Opens tunnels, wherever they are to lead, to one address."""

    def __init__(self, port: int) -> None:
        self.heads: list[str] = []
        self._port = port

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            self.heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
            other, beyond = await asyncio.open_connection("127.0.0.1", self._port)
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            await asyncio.gather(_pipe(reader, beyond), _pipe(other, writer))


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


@pytest.fixture
async def proxy(secure: ThirdParty) -> AsyncIterator[tuple[Proxy, str]]:
    running = Proxy(int(secure.url.rpartition(":")[2]))
    listening = await asyncio.start_server(running.serve, "127.0.0.1", 0)
    host, port = listening.sockets[0].getsockname()
    async with listening:
        yield running, f"{host}:{port}"


@pytest.mark.parametrize("api", ["sync.so", None])
async def test_https_goes_through_a_tunnel_of_the_proxy_which_never_sees_the_key(
    api: str | None,
    secure: ThirdParty,
    certificate: tuple[Path, Path],
    proxy: tuple[Proxy, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    between, address = proxy
    monkeypatch.setenv("HTTPS_PROXY", f"http://me:pw@{address}")
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    secure.generation(1, going_on(), done())
    secure.script(1, tells(fake.job(1, result=film())))
    async with AsyncClient("https://api.invalid", KEY, api=api, timing=Timing(SPEED)) as client:
        assert await client.job("gen-1" if api else job_id(1)).result(timeout=20) == film()
    (head,) = set(between.heads)
    assert head.startswith("CONNECT api.invalid:443 ")
    assert base64.b64encode(b"me:pw").decode() in head
    assert KEY not in head
    assert "pw" not in str([dict(request.headers) for request in secure.asked])


async def test_http_goes_through_the_proxy_and_what_is_excluded_does_not(
    server: ThirdParty, monkeypatch: pytest.MonkeyPatch, lookups: list[str]
) -> None:
    server.generation(1, done())
    monkeypatch.setenv("HTTP_PROXY", server.url)
    monkeypatch.setenv("http_proxy", server.url)
    async with AsyncClient("http://api.invalid", KEY, api="sync.so") as client:
        assert await client.job("gen-1").result(timeout=20) == film()
    assert server.asked[0].headers["Host"] == "api.invalid"
    monkeypatch.setenv("NO_PROXY", "jobs.example")
    lookups.extend([""] * 4)  # found at once
    url = server.url.replace("127.0.0.1", "jobs.example")
    async with AsyncClient(url, KEY, api="sync.so") as client:
        assert await client.job("gen-1").result(timeout=20) == film()
    assert lookups[-1] == "jobs.example"


# --- Ctrl-C

INTERRUPTED = """
import sys
from bide import Client

url, api, ledger, *jobs = sys.argv[1:]
with Client(url, "k", api=api or None, ledger=ledger or None) as client:
    for job in client.as_completed([client.job(id) for id in jobs]):
        print(job.id, flush=True)
"""


@pytest.mark.parametrize("what", ["a third party's", "few of a service", "many of a service"])
def test_ctrl_c_leaves_the_ledger_whole(what: str, server: ThirdParty, tmp_path: Path) -> None:
    api = "sync.so" if "third" in what else ""
    ledger = "" if "few" in what else str(tmp_path / "ledger")
    count = 100 if "many" in what else 5
    jobs = [f"gen-{n}" if api else job_id(n) for n in range(count)]
    for number in range(count):
        server.generation(number, going_on(number) if number else done(0))
        server.script(number, fake.held(fake.job(number), threading.Event()))
    server.script(0, tells(fake.job(0, result=0)))
    server.on("GET", "/jobs", page(lambda id: "DONE" if id == job_id(0) else "PROCESSING"))
    env = {**os.environ, "PYTHONPATH": "src"}
    command = [sys.executable, "-c", INTERRUPTED, server.url, api, ledger, *jobs]
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline().decode().strip() == jobs[0]
    asked = len(server.asked)
    until(lambda: len(server.asked) > asked or "few" in what)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    text = errors.decode()
    assert text.strip().endswith("KeyboardInterrupt")
    assert "Error" not in text and "never" not in text and "pending" not in text
    if ledger:
        _check_ledger(Path(ledger), count)


def _check_ledger(path: Path, count: int) -> None:
    with contextlib.closing(sqlite3.connect(path)) as book:
        assert book.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert book.execute("SELECT count(*), sum(ended) FROM jobs").fetchone() == (count, 1)


async def test_after_ctrl_c_another_process_goes_on_where_the_first_was(
    server: ThirdParty, tmp_path: Path
) -> None:
    for number in range(40):
        server.generation(number, done(number) if number < 10 else going_on(number))
    seen: set[str] = set()
    async with sync_so(server, ledger=tmp_path / "ledger") as client:
        async for job in client.as_completed(map(client.job, _names(40)), timeout=20):
            seen.add(job.id)
            if len(seen) == 10:  # all that have ended
                break
    asked = len(server.asked)
    for number in range(10, 40):
        server.generation(number, done(number))
    async with sync_so(server, ledger=tmp_path / "ledger") as client:
        jobs = await client.wait_all(map(client.job, _names(40)), timeout=20)
        assert [await job.result() for job in jobs] == [film(number) for number in range(40)]
    assert seen == set(_names(10))
    again = {request.path.rpartition("/")[2] for request in server.asked[asked:]}
    assert again == set(_names(40)) - seen


def _names(count: int) -> list[str]:
    return [f"gen-{number}" for number in range(count)]
