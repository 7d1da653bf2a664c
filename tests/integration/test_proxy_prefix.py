"""The service behind an nginx that removes a prefix from the path: links are those that callers see."""

from __future__ import annotations

import base64
import json
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from email.message import Message
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import pytest
from tusclient.client import TusClient

from bide import Client
from tests.conftest import started
from tests.servers.nginx import PASSWORD, USER, Nginx
from tests.servers.ports import free_port
from tests.servers.service import ServiceProcess

PREFIX = "/team/bide"
PUBLIC = {
    "X-Forwarded-Prefix": PREFIX,
    "X-Forwarded-Proto": "https",
    "X-Forwarded-Host": "jobs.example.org",
}
LOGIN = {"Authorization": "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()}
OPTIONS = {
    "root-path": ["--root-path", PREFIX + "/"],
    "forwarded": ["--trusted-proxies", "127.0.0.0/8", "--trusted-hosts", "jobs.example.org"],
}
LARGE = 20_000_000  # bytes: sent as a resumable upload


@pytest.fixture(scope="module", params=list(OPTIONS))
def service(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServiceProcess]:
    folder = tmp_path_factory.mktemp("service")
    process = ServiceProcess(folder, "tests.apps.files:app", workers=1, options=OPTIONS[request.param])
    process.start()
    yield process
    process.stop()


@pytest.fixture(scope="module")
def nginx(service: ServiceProcess) -> Iterator[Nginx]:
    yield from started(lambda: Nginx((service.port, free_port()), prefix=PREFIX))


def lower(headers: Message) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def ask(url: str, body: Any = None, **headers: str) -> tuple[int, dict[str, str], bytes]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json", **headers})
    try:
        with urllib.request.urlopen(request, timeout=90) as answer:
            return answer.status, lower(answer.headers), answer.read()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, lower(refused.headers), refused.read()


def test_every_link_can_be_followed(nginx: Nginx) -> None:
    job = {"kind": "plain", "input": {"number": 7}}
    status, headers, body = ask(nginx.url + "/jobs", job, Prefer="wait=30", **LOGIN)
    assert status == 200
    assert headers["location"].startswith(f"{PREFIX}/jobs/")
    links = {**json.loads(body)["links"], "location": headers["location"]}
    for name in ("self", "result", "location"):
        assert ask(urljoin(nginx.url, links[name]), **LOGIN)[0] == 200, name
    for link in json.loads(ask(nginx.url + "/", **LOGIN)[2])["links"].values():
        assert ask(urljoin(nginx.url, link), **LOGIN)[0] == 200, link
    status, _, body = ask(nginx.url + "/jobs/nothing", **LOGIN)
    problem = json.loads(body)
    assert (status, problem["instance"]) == (404, f"{PREFIX}/jobs/nothing")
    assert ask(urljoin(nginx.url, problem["type"]), **LOGIN)[0] == 200
    document = json.loads(ask(nginx.url + "/openapi.json", **LOGIN)[2])
    assert document["servers"] == [{"url": PREFIX}]
    assert f"curl {nginx.url}/openapi.json" in ask(nginx.url + "/docs", **LOGIN)[2].decode()


def test_bides_client_sends_files_and_fetches_results(nginx: Nginx, tmp_path: Path) -> None:
    small, large = tmp_path / "small", tmp_path / "large"
    small.write_bytes(b"0123456789")
    large.write_bytes(bytes(LARGE))
    with Client(nginx.url_with_password) as client:
        for path in (small, large):
            job = client.submit("look", {"note": "x" * 100_000}, file=path)
            assert job.result(timeout=60)["size"] == path.stat().st_size
        waiting = client.submit("plain", {"number": 1}, run_at="2999-01-01T00:00:00Z")
        assert waiting.cancel().status == "CANCELLED"


def test_a_tus_client_follows_the_location(nginx: Nginx, tmp_path: Path) -> None:
    path = tmp_path / "film.bin"
    path.write_bytes(bytes(range(256)) * 1000)
    client: Any = TusClient(nginx.url + "/files/", headers=LOGIN)
    with path.open("rb") as file:
        uploader = client.uploader(file_stream=file, chunk_size=100_000)
        uploader.upload()
    assert uploader.url.startswith(f"{nginx.url}/files/")
    assert ask(uploader.url, **LOGIN)[2] == path.read_bytes()


@pytest.mark.parametrize("service", ["forwarded"], indirect=True)
def test_absolute_urls_have_the_public_address(service: ServiceProcess) -> None:
    _, _, body = ask(service.url + "/uploads/presign", {"size": 10}, **PUBLIC)
    assert json.loads(body)["url"].startswith(f"https://jobs.example.org{PREFIX}/uploads/")
    # The proxy appends its value to the one that a caller sent.
    sent = {name: f"evil.example, {value}" for name, value in PUBLIC.items()}
    _, _, body = ask(service.url + "/uploads/presign", {"size": 10}, **sent)
    assert json.loads(body)["url"].startswith(f"https://jobs.example.org{PREFIX}/uploads/")
    # A page of the public host is a page of the service itself.
    page = {"Origin": "https://jobs.example.org"}
    assert ask(service.url + "/uploads/presign", {"size": 10}, **PUBLIC, **page)[0] == 201


@pytest.mark.parametrize("service", ["forwarded"], indirect=True)
@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("Prefix", "//evil.example", "malformed-request"),
        ("Prefix", "https://evil.example", "malformed-request"),
        ("Proto", "javascript", "malformed-request"),
        ("Host", "evil.example/path", "malformed-request"),
        ("Host", "evil.example", "untrusted-host"),
    ],
)
def test_a_header_that_is_no_address_is_rejected(
    service: ServiceProcess, name: str, value: str, code: str
) -> None:
    status, _, body = ask(service.url + "/jobs", **{f"X-Forwarded-{name}": value})
    assert (status, json.loads(body)["code"]) == (400, code)
    # Nor does a trusted X-Forwarded-Host make an untrusted Host acceptable.
    rebound = {"Host": "evil.example", "X-Forwarded-Host": "jobs.example.org"}
    assert json.loads(ask(service.url + "/jobs", **rebound)[2])["code"] == "untrusted-host"


@pytest.mark.parametrize("service", ["root-path"], indirect=True)
def test_only_trusted_proxies_are_believed(service: ServiceProcess) -> None:
    sent = {**PUBLIC, "X-Forwarded-Prefix": "/evil"}
    _, headers, body = ask(service.url + "/uploads/presign", {"size": 10}, **sent)
    assert json.loads(body)["url"].startswith(f"{service.url}{PREFIX}/uploads/")
    assert headers["location"].startswith(f"{PREFIX}/uploads/")


@pytest.mark.parametrize("service", ["root-path"], indirect=True)
def test_a_request_that_cannot_be_parsed_gets_the_same_links(service: ServiceProcess) -> None:
    with socket.create_connection(("127.0.0.1", service.port), 30) as caller:
        caller.sendall(b"GET /jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: many\r\n\r\n")
        problem = json.loads(caller.makefile("rb").read().partition(b"\r\n\r\n")[2])
    assert problem["type"] == f"{PREFIX}/problems/malformed-request"


@pytest.mark.soak
@pytest.mark.timeout(180)
@pytest.mark.parametrize("service", ["root-path"], indirect=True)
def test_a_wait_of_a_minute_is_answered_before_a_proxy_gives_up(service: ServiceProcess) -> None:
    """nginx waits 60 s for an answer by default."""
    job = {"kind": "plain", "input": {"number": 7}, "runAt": "2999-01-01T00:00:00Z"}
    began = time.monotonic()
    for nginx in started(
        lambda: Nginx((service.port, free_port()), prefix=PREFIX, without="proxy_read_timeout")
    ):
        status, headers, _ = ask(nginx.url + "/jobs", job, Prefer="wait=60", **LOGIN)
    assert (status, headers["preference-applied"]) == (202, "wait=60")
    assert time.monotonic() - began >= 54
