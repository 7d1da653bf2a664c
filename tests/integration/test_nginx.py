"""The service behind the nginx of deploy/nginx.conf, and what a proxy that rejects large bodies does to callers."""

from __future__ import annotations

import os
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest

from bide import AsyncClient, Client
from bide.client.apis import Answer
from bide.core.errors import ServiceError
from tests.conftest import started
from tests.node import run_node
from tests.servers.nginx import PASSWORD, USER, Nginx
from tests.servers.ports import free_port
from tests.servers.service import ServiceProcess
from tests.servers.warm import warm

SMALL, LARGE = 3_000_000, 20_000_000  # bytes: sent as a form, and as a resumable upload


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    process = ServiceProcess(tmp_path_factory.mktemp("service"), "tests.apps.files:app", workers=1)
    process.start()
    yield process
    process.stop()


@pytest.fixture(scope="module")
def nginx(service: ServiceProcess) -> Iterator[Nginx]:
    """The first replica is down."""
    yield from started(lambda: Nginx((free_port(), service.port)))


@pytest.fixture(scope="module")
def strict(service: ServiceProcess) -> Iterator[Nginx]:
    """With the limit of nginx itself: 1 MB."""
    yield from started(lambda: Nginx((service.port, free_port()), without="client_max_body_size"))


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_files_pass_through(nginx: Nginx, tmp_path: Path, size: int) -> None:
    path = tmp_path / "film.bin"
    path.write_bytes(bytes(size))
    with Client(nginx.url_with_password) as client:
        job = client.submit("look", {"note": "by way of nginx"}, file=path)
        assert job.result(timeout=60)["size"] == size


def test_a_long_poll_is_held_and_the_location_can_be_followed(nginx: Nginx) -> None:
    with Client(nginx.url_with_password) as client:
        job = client.submit("plain", {"number": 7}, wait=30)
        assert job.latest is not None and job.latest.result == 7
        later = client.submit("plain", {"number": 8}, run_at="2999-01-01T00:00:00Z", wait=2)
        began = time.monotonic()
        with pytest.raises(TimeoutError):
            later.result(timeout=3)
        assert time.monotonic() - began >= 3
        assert client.job(later.id).cancel().status == "CANCELLED"


def test_events_reach_javascript_as_they_happen(nginx: Nginx) -> None:
    """nginx buffers responses by default. The job is cancelled only when its snapshot has arrived."""
    script = """
    const client = new Client(base);
    const job = await client.submit("plain", { number: 9 }, { runAt: "2999-01-01T00:00:00Z" });
    const seen = [];
    for await (const { type, job: facts } of job.events()) {
      seen.push([type, facts?.status ?? null]);
      if (type === "snapshot") await job.cancel();
    }
    say([seen, client.url.includes("@")]);
    """
    assert run_node(script, nginx.url_with_password) == [
        [[["snapshot", None], ["status", "CANCELLED"]], False]
    ]


async def test_a_websocket_passes_through(nginx: Nginx) -> None:
    """With the password of the caller, and with the host that the caller used in Origin."""
    origin = {"Origin": nginx.url}
    password = {"Authorization": aiohttp.encode_basic_auth(USER, PASSWORD)}
    async with (
        AsyncClient(nginx.url_with_password) as client,
        aiohttp.ClientSession(nginx.url, headers=password) as session,
    ):
        async with session.ws_connect("/ws", protocols=["bide.v1"], headers=origin) as connection:
            assert connection.protocol == "bide.v1"
            job = await client.submit("plain", {"number": 7})
            await connection.send_json({"subscribe": {"jobs": [job.id]}})
            heard = [await connection.receive_json(timeout=30)]
            while heard[-1]["type"] != "end":
                heard.append(await connection.receive_json(timeout=30))
            assert heard[0]["type"] == "snapshot"
            assert any((m.get("job") or {}).get("status") == "DONE" for m in heard)
            await connection.send_str("garbage")
            assert (await connection.receive(timeout=30)).data == 1007
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await session.ws_connect("/ws", headers={"Origin": "http://evil.example"})
        assert refused.value.status == 403


def test_callers_need_the_password_and_probes_do_not(nginx: Nginx) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"{nginx.url}/jobs", timeout=10)
    assert refused.value.code == 401
    refused.value.close()
    with urllib.request.urlopen(f"{nginx.url}/healthz", timeout=10) as answer:
        assert answer.status == 200


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_the_client_explains_a_413_of_a_proxy(strict: Nginx, tmp_path: Path, size: int) -> None:
    path = tmp_path / "film.bin"
    path.write_bytes(bytes(size))
    with Client(strict.url_with_password) as client, pytest.raises(ServiceError) as refused:
        client.submit("look", file=path)
    assert refused.value.status == 413
    text = str(refused.value)
    assert text.startswith("413 http-413: nginx/")
    assert "client_max_body_size" in text


def test_the_command_line_explains_a_413_of_a_proxy(strict: Nginx, tmp_path: Path) -> None:
    path = tmp_path / "film.bin"
    path.write_bytes(bytes(SMALL))
    done = subprocess.run(
        [warm().program, "submit", "look", "--file", str(path)],
        env={**os.environ, "BIDE_URL": strict.url_with_password},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1
    assert "413" in done.stderr and "client_max_body_size" in done.stderr
    assert "sesame" not in done.stderr


def test_a_413_of_the_service_itself_keeps_its_own_explanation() -> None:
    body = b'{"code": "payload-too-large", "detail": "the body has more than 1048576 bytes"}'
    refused = Answer(413, {"Content-Type": "application/problem+json"}, body).problem()
    assert str(refused) == "413 payload-too-large: the body has more than 1048576 bytes"
