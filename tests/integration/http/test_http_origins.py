"""Requests that a browser sends for a page: which pages may change something."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bide.server.config import Config, HttpConfig
from bide.server.http.request import Message
from tests.integration.http.service import MAX_BODY, Service

HOST = "jobs.example:8642"
OWN = "http://jobs.example:8642"
FOREIGN = [
    "http://evil.example",
    "null",
    "http://jobs.example:9000",
    "https://sub.jobs.example",
    "",
    "junk",
]
CHANGES = [
    ("POST", "/jobs"),
    ("POST", "/jobs/batch"),
    ("POST", "/queues/default/pause"),
    ("POST", "/uploads"),
    ("POST", "/uploads/events"),
    ("POST", "/files"),
    ("PATCH", "/files/x"),
    ("PUT", "/uploads/x/content"),
    ("DELETE", "/jobs/x"),
    ("POST", "/nothing"),
]


def service_with(
    folder: Path, *, trusted: tuple[str, ...] = (), origins: tuple[str, ...] = ()
) -> Service:
    http = HttpConfig(max_body=MAX_BODY, trusted_hosts=trusted, origins=origins)
    return Service(folder, config=Config(data=folder, http=http))


@pytest.mark.parametrize("origin", FOREIGN)
async def test_a_page_of_another_origin_changes_nothing(service: Service, origin: str) -> None:
    """Over plain HTTP to an address other than loopback a browser sends no Sec-Fetch-Site."""
    page = {"host": HOST, "origin": origin}
    for method, path in CHANGES:
        reply = await service.call(method, path, body=b"{}", headers=page)
        assert (reply.status, reply.json()["code"]) == (403, "cross-site"), (method, path)
    assert not any(queue.paused for queue in await service.store.queues())
    assert await service.events() == 0
    assert (await service.call("GET", "/jobs", headers=page)).status == 200
    assert (await service.call("HEAD", "/jobs", headers=page)).status == 200


@pytest.mark.parametrize("site", [None, "same-origin"])
async def test_the_services_own_pages_may(service: Service, site: str | None) -> None:
    page = {"host": HOST, "origin": OWN, **({"sec-fetch-site": site} if site else {})}
    assert (await service.call("POST", "/queues/default/pause", headers=page)).status == 200
    assert (await service.call("POST", "/jobs", json={"kind": "echo"}, headers=page)).status == 202


@pytest.mark.parametrize("site", ["same-site", "cross-site"])
@pytest.mark.parametrize("origin", [None, OWN])
async def test_what_the_browser_says_of_the_page_counts_too(
    service: Service, site: str, origin: str | None
) -> None:
    """A page of http://host is another origin than https://host, and only the browser knows which it is."""
    page = {"host": HOST, "sec-fetch-site": site, **({"origin": origin} if origin else {})}
    reply = await service.call("POST", "/queues/default/pause", headers=page)
    assert (reply.status, reply.json()["code"]) == (403, "cross-site")


async def test_a_program_sends_neither(service: Service) -> None:
    assert (await service.call("POST", "/queues/default/pause", headers={"host": HOST})).status == 200
    assert (await service.call("POST", "/queues/default/resume")).status == 200


async def test_pages_of_trusted_hosts_may(tmp_path: Path) -> None:
    """The public name of a service whose proxy sends another Host."""
    async with service_with(tmp_path, trusted=("Jobs.Example.org",)).opened() as service:
        for origin, status in (
            ("https://jobs.example.org", 200),
            ("https://jobs.example.org:8443", 200),
            ("https://evil.jobs.example.org", 403),
            ("null", 403),
        ):
            page = {"host": "10.0.0.5:8642", "origin": origin}
            reply = await service.call("POST", "/queues/default/pause", headers=page)
            assert reply.status == status, origin


async def test_another_header_names_no_host(service: Service) -> None:
    page = {"host": HOST, "origin": "http://evil.example", "x-forwarded-host": "evil.example"}
    page["forwarded"] = "host=evil.example"
    assert (await service.call("POST", "/queues/default/pause", headers=page)).status == 403


async def test_pages_of_allowed_origins_may(tmp_path: Path) -> None:
    async with service_with(tmp_path, origins=("https://shop.example",)).opened() as service:
        page = {"host": HOST, "origin": "https://shop.example", "sec-fetch-site": "cross-site"}
        assert (await service.call("POST", "/queues/default/pause", headers=page)).status == 200
        other = {**page, "origin": "http://shop.example"}
        assert (await service.call("POST", "/queues/default/pause", headers=other)).status == 403


async def test_a_method_in_a_header_is_no_way_around(service: Service) -> None:
    page = {"host": HOST, "origin": "null", "x-http-method-override": "GET"}
    assert (await service.call("POST", "/jobs", headers=page)).status == 403


async def test_a_handshake_of_another_origin_is_refused(service: Service) -> None:
    """A browser sends it without asking first, and lets the page read what comes back."""
    offer = {
        "host": HOST,
        "connection": "Upgrade",
        "upgrade": "WebSocket",
        "sec-websocket-version": "13",
    }
    for origin, status in (("http://evil.example", 403), ("null", 403), (OWN, 200)):
        reply = await service.call("GET", "/jobs", headers={**offer, "origin": origin})
        assert reply.status == status
    assert (await service.call("GET", "/jobs", headers=offer)).status == 200


async def handshake(service: Service, path: str, headers: dict[str, str], **more: Any) -> list[Message]:
    """Returns what the application answers to the handshake of a WebSocket."""
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "websocket.connect"}

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {
        "type": "websocket",
        "path": path,
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "extensions": {"websocket.http.response": {}},
        **more,
    }
    await service.app(scope, receive, send)
    return sent


@pytest.mark.parametrize("origin", FOREIGN)
async def test_a_websocket_of_another_origin_is_refused(service: Service, origin: str) -> None:
    start, body = await handshake(service, "/nothing", {"host": HOST, "origin": origin})
    assert (start["type"], start["status"]) == ("websocket.http.response.start", 403)
    assert json.loads(body["body"])["code"] == "cross-site"
    (close,) = await handshake(service, "/nothing", {"host": HOST, "origin": origin}, extensions=None)
    assert close["type"] == "websocket.close"  # a server without the extension answers 403


async def test_websockets_of_allowed_pages_and_programs(tmp_path: Path) -> None:
    """They get as far as the path."""
    allowed, trusted = ("https://shop.example",), ("jobs.example.org",)
    async with service_with(tmp_path, trusted=trusted, origins=allowed).opened() as service:
        for origin in (OWN, "https://shop.example", "https://jobs.example.org:8443", None):
            page = {"host": HOST, **({"origin": origin} if origin else {})}
            start, body = await handshake(service, "/nothing", page)
            assert (start["status"], json.loads(body["body"])["code"]) == (404, "not-found"), origin
        page = {"host": HOST, "sec-fetch-site": "cross-site"}
        assert (await handshake(service, "/nothing", page))[0]["status"] == 403


async def test_a_websocket_of_an_untrusted_host_is_refused(service: Service) -> None:
    service.app.check_hosts("127.0.0.1")
    evil = {"host": "evil.example", "origin": "http://evil.example"}
    start, body = await handshake(service, "/nothing", evil)
    assert (start["status"], json.loads(body["body"])["code"]) == (400, "untrusted-host")
    assert (await handshake(service, "/nothing", {}))[0]["status"] == 400


async def test_headers_for_an_origin_do_not_stay(tmp_path: Path) -> None:
    """Streams share their list of headers, and browsers reject a repeated Access-Control-Allow-Origin."""
    origin = "https://shop.example"
    async with service_with(tmp_path, origins=(origin,)).opened() as service:
        for _ in range(2):
            reply = await service.call(
                "HEAD",
                "/events",
                headers={"Origin": origin, "Accept": "text/event-stream", "Host": HOST},
            )
            assert reply.status == 200
            assert reply.headers["access-control-allow-origin"] == origin
        other = await service.call(
            "HEAD", "/events", headers={"Accept": "text/event-stream", "Host": HOST}
        )
        assert "access-control-allow-origin" not in other.headers
