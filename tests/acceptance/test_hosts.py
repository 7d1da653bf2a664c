"""The hosts that `bide serve` answers to, over real connections."""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.servers.service import ServiceProcess

TARGET = "tests.apps.echo:app"


class Asked(ServiceProcess):
    def raw(self, method: str, path: str, *headers: tuple[str, str]) -> tuple[int, dict[str, Any]]:
        """One request with exactly these headers."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        for name, value in headers:
            connection.putheader(name, value)
        connection.endheaders()
        answer = connection.getresponse()
        body = json.loads(answer.read() or b"{}")
        connection.close()
        return answer.status, body

    def code(self, host: str, path: str = "/jobs", *more: tuple[str, str]) -> object:
        status, body = self.raw("GET", path, ("Host", host), *more)
        return body["code"] if status >= 400 else status


def serving(folder: Path, *options: str, address: str = "127.0.0.1") -> Iterator[Asked]:
    options = (*options, "--host", address)
    shown = rf"http://{re.escape(address)}:(\d+), "
    service = Asked(folder, TARGET, workers=1, options=options, shown=shown)
    service.start()
    yield service
    service.stop()


@pytest.fixture(scope="module")
def loopback(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    yield from serving(tmp_path_factory.mktemp("loopback"), "--trusted-hosts", "Jobs.Example.org,::2")


@pytest.mark.parametrize(
    "host",
    [
        *(
            "localhost",
            "LOCALHOST:1",
            "localhost.",
            "127.0.0.1",
            "127.0.0.1:8642",
            "[::1]",
            "[::1]:8642",
        ),
        *("jobs.example.org", "jobs.example.ORG:443", "[::2]"),
    ],
)
def test_loopback_and_trusted_hosts_are_answered(loopback: Asked, host: str) -> None:
    assert loopback.code(host) == 200


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "evil.example:8642", "0.0.0.0", "10.0.0.1", "[::3]", "localhost.evil.example"),
        *("sub.jobs.example.org", "a.localhost", "127.0.0.2"),
    ],
)
def test_another_host_is_refused(loopback: Asked, host: str) -> None:
    """What a page sends whose name now resolves to 127.0.0.1, whatever a proxy would have added."""
    more = [("X-Forwarded-Host", "localhost"), ("Forwarded", "host=localhost")]
    assert loopback.code(host) == loopback.code(host, "/jobs", *more) == "untrusted-host"
    for path in ("/queues", "/metrics", "/openapi.json", "/docs", "/problems", "/nothing"):
        assert loopback.code(host, path) == "untrusted-host"
    status, _ = loopback.raw(
        "POST", "/queues/default/pause", ("Host", host), ("Origin", f"http://{host}")
    )
    assert status == 400


@pytest.mark.parametrize(
    "host", ["", "a b", "localhost, localhost", "localhost/x", "evil@localhost", "::1"]
)
def test_what_is_no_host_is_refused(loopback: Asked, host: str) -> None:
    assert loopback.code(host) == "malformed-request"


def test_a_host_that_is_missing_or_there_twice_is_refused(loopback: Asked) -> None:
    twice = [("Host", "localhost"), ("Host", "localhost")]
    for headers in ([], twice, [("Host", "localhost"), ("Host", "evil.example")]):
        status, body = loopback.raw("GET", "/jobs", *headers)
        assert (status, body["code"]) == (400, "malformed-request")
        for path in ("/healthz", "/readyz"):
            assert loopback.raw("GET", path, *headers)[0] == 200


def test_an_address_in_the_request_line_counts_as_the_host(loopback: Asked) -> None:
    host = ("Host", "localhost")
    assert loopback.raw("GET", "http://localhost:1/jobs", ("Host", "evil.example"))[0] == 200
    assert loopback.raw("GET", "http://[::1]/jobs", host)[0] == 200
    for url in ("http://evil.example/jobs", "http://localhost@evil.example/jobs", "http://[::3]/jobs"):
        status, body = loopback.raw("GET", url, host)
        assert (status, body["code"]) == (400, "untrusted-host")
    assert loopback.raw("GET", "http://localhost/jobs")[0] == 400  # Host is missing all the same
    assert loopback.raw("GET", "http://localhost/jobs", host, host)[0] == 400


def test_a_page_of_the_host_in_the_request_line_is_not_the_services_own(loopback: Asked) -> None:
    page = ("Origin", "http://evil.example")
    status, body = loopback.raw(
        "POST", "http://localhost/queues/default/pause", ("Host", "evil.example"), page
    )
    assert (status, body["code"]) == (403, "cross-site")


def test_a_probe_of_another_host_is_answered(loopback: Asked) -> None:
    """Orchestrators name the address of a container."""
    for path in ("/healthz", "/readyz"):
        status, body = loopback.raw("GET", path, ("Host", "10.1.2.3:8642"))
        assert status == 200 and set(body) == {"status"}


def test_on_other_addresses_any_host_is_answered_unless_some_are_trusted(tmp_path: Path) -> None:
    for folder, more, codes in (
        ("any", [], (200, 200)),
        ("some", ["--trusted-hosts", "jobs.example.org"], (200, "untrusted-host")),
    ):
        (tmp_path / folder).mkdir()
        for service in serving(tmp_path / folder, "--insecure", *more, address="0.0.0.0"):
            assert (service.code("jobs.example.org"), service.code("localhost")) == codes
            assert service.raw("GET", "/jobs")[0] == 400
