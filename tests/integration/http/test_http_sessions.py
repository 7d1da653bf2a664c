"""Signing in to the dashboard with an API key: the session, its cookie, and its CSRF token."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import websockets.asyncio.client
from websockets.exceptions import ConnectionClosed, InvalidStatus

from bide.server.config import AuthConfig, Config, HttpConfig
from bide.server.identities import SCOPES, sessions
from bide.server.identities.sessions import LIFETIME, MAX_SESSIONS
from bide.server.store import RecordFilter
from tests.integration.http.service import Reply, Service, kinds, scope
from tests.integration.http.test_http_events import SSE, listen, listening
from tests.integration.http.test_http_identities import protected
from tests.servers.postgres import Postgres


class Browser:
    """Keeps the cookie of a service, as a browser does."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.cookie = ""
        self.csrf = ""

    async def sign_in(self, key: str) -> Reply:
        reply = await self.service.call("POST", "/session", json={"key": key})
        if reply.status == 200:
            self.cookie = reply.headers["set-cookie"].partition(";")[0]
            self.csrf = reply.json()["csrf"]
        return reply

    async def call(self, method: str, target: str, csrf: str | None = None, **more: Any) -> Reply:
        headers = {"Cookie": f"theme=dark; {self.cookie}", **more.pop("headers", {})}
        if method not in ("GET", "HEAD"):
            headers["X-CSRF-Token"] = self.csrf if csrf is None else csrf
        return await self.service.call(method, target, headers=headers, **more)


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    async with protected(tmp_path).opened() as service:
        yield service


async def test_a_session_has_the_rights_of_its_key(service: Service) -> None:
    assert (await service.call("GET", "/session")).status == 401
    key = await service.key("a", "read", "submit")
    browser = Browser(service)
    signed = await browser.sign_in(key)
    assert signed.headers["cache-control"] == "no-store"
    name, *attributes = signed.headers["set-cookie"].split("; ")
    assert attributes == ["Path=/", f"Max-Age={LIFETIME:.0f}", "HttpOnly", "SameSite=Lax"]
    caller = {"subject": f"key:{key.split('_')[1]}", "tenant": "a", "scopes": ["read", "submit"]}
    assert signed.json().items() >= caller.items()
    assert (await browser.call("GET", "/session")).json() == signed.json()
    by_key = (await service.call("GET", "/session", key=key)).json()
    assert by_key.items() >= {**caller, "csrf": None, "expiresAt": None}.items()
    job = (await browser.call("POST", "/jobs", json={"kind": "echo"})).json()["jobId"]
    assert (await service.call("GET", f"/jobs/{job}", key=key)).status == 200
    assert (await browser.call("GET", f"/jobs/{job}")).status == 200
    assert (await browser.call("POST", f"/jobs/{job}/cancel")).status == 403
    assert (await browser.call("GET", "/queues")).status == 403
    # The cookie's text is no bearer token, and only its hash is stored.
    text = name.partition("=")[2]
    for header in (f"Bearer {text}", f"session {text}", text):
        reply = await service.call("GET", "/jobs", headers={"authorization": header})
        assert reply.status == 401
    stored = await service.store.records("sessions", RecordFilter(tenant="-"))
    assert len(stored) == 1 and text not in str(stored)


async def test_a_change_by_a_session_needs_its_csrf_token(service: Service) -> None:
    """Every operation that could change something, and none that reads."""
    browser, other = Browser(service), Browser(service)
    key = await service.key("a")
    await browser.sign_in(key)
    await other.sign_in(key)
    assert browser.csrf != other.csrf
    tried = 0
    for operation in service.app.operations:
        path = operation.path
        for name in ("jobId", "uploadId", "webhookId"):
            path = path.replace(f"{{{name}}}", "0" * 26)
        path = path.replace("{keyId}", "0" * 12).replace("{number}", "1").replace("{name}", "x")
        if operation.method in ("GET", "HEAD", "OPTIONS") or operation.scope is None:
            continue
        tried += 1
        for csrf in ("", "x", other.csrf, "é"):
            reply = await browser.call(operation.method, path, csrf)
            assert (reply.status, reply.json()["code"]) == (403, "forbidden"), operation.name
            assert "X-CSRF-Token" in reply.json()["detail"]
    assert tried > 20
    assert (await browser.call("DELETE", "/session", "")).status == 403
    assert (await browser.call("DELETE", "/session", other.csrf)).status == 403
    assert (await browser.call("GET", "/jobs")).status == 200
    # With an Authorization header, the cookie does not count.
    assert (await browser.call("POST", "/jobs", "", json={"kind": "echo"}, key=key)).status == 202
    assert (await browser.call("GET", "/jobs", key="wrong")).status == 401


async def test_the_cookie_counts_for_pages_of_the_service_only(tmp_path: Path) -> None:
    config = Config(
        http=HttpConfig(origins=("*",), trusted_hosts=("jobs.example",)), auth=AuthConfig("keys")
    )
    async with Service(tmp_path, kinds(), config).opened() as service:
        browser = Browser(service)
        await browser.sign_in(await service.key("a"))

        async def status(origin: str, host: str = "10.0.0.7:8642") -> int:
            lines = {"origin": origin, "host": host}
            return (await browser.call("GET", "/jobs", headers=lines)).status

        assert await status("http://10.0.0.7:8642") == 200
        assert await status("https://jobs.example") == 200  # a proxy has changed the host
        for origin in ("http://10.0.0.7:3000", "https://page.example", "null"):
            assert await status(origin) == 401


async def test_the_cookie_is_for_the_path_and_scheme_of_the_service(tmp_path: Path) -> None:
    config = Config(http=HttpConfig(trusted_proxies=("10.0.0.7",)), auth=AuthConfig("keys"))
    async with Service(tmp_path, kinds(), config).opened() as service:
        body = json.dumps({"key": await service.key("a")}).encode()

        async def cookie(client: str, scheme: str = "http", mount: str = "", **headers: str) -> str:
            lines = {name.replace("_", "-"): value for name, value in headers.items()}
            asked = scope("POST", "/session", {"content-type": "application/json", **lines}, mount)
            asked.update(client=(client, 1), scheme=scheme)
            return (await service.send(asked, [body])).headers["set-cookie"]

        proxied = {"x_forwarded_proto": "https", "x_forwarded_prefix": "/bide"}
        told = await cookie("10.0.0.7", **proxied)
        assert "; Path=/bide;" in told and told.endswith("; Secure")
        told = await cookie("10.0.0.8", **proxied)  # nobody trusts it
        assert "; Path=/;" in told and "Secure" not in told
        told = await cookie("10.0.0.8", "https", "/api")
        assert "; Path=/api;" in told and told.endswith("; Secure")


async def test_wrong_keys_do_not_sign_in(service: Service) -> None:
    browser = Browser(service)
    await browser.sign_in(await service.key("a"))
    session = browser.cookie.partition("=")[2]
    for key in ("x", "bide_x", "bide_4t9hq2m0xk1c_" + "x" * 43, session, f"session\n{session}"):
        reply = await browser.sign_in(key)
        assert reply.status == 401 and "set-cookie" not in reply.headers
    for body in ({}, {"key": ""}, {"key": "x" * 1001}, {"key": "x", "other": 1}):
        assert (await service.call("POST", "/session", json=body)).status == 422
    for cookie in ("bide_session=", "bide_session=x", "bide_session", "bide_session=\xff", "other=x"):
        reply = await service.call("GET", "/jobs", headers={"cookie": cookie})
        assert reply.status == 401
    # A page that is open to all ignores it.
    assert (await service.call("GET", "/healthz", headers={"cookie": "bide_session=x"})).status == 200


async def test_signing_out_ends_one_session_or_all_of_the_key(service: Service) -> None:
    key = await service.key("a")
    here, there, foreign = Browser(service), Browser(service), Browser(service)
    await here.sign_in(key)
    await there.sign_in(key)
    await foreign.sign_in(await service.key("a"))

    async def signed_in() -> list[bool]:
        replies = [await browser.call("GET", "/session") for browser in (here, there, foreign)]
        return [reply.status == 200 for reply in replies]

    assert (await here.call("DELETE", "/session?everywhere=2")).status == 422
    assert await signed_in() == [True, True, True]
    out = await here.call("DELETE", "/session")
    assert out.status == 204 and "Max-Age=0" in out.headers["set-cookie"]
    assert await signed_in() == [False, True, True]
    await here.sign_in(key)
    assert (await here.call("DELETE", "/session?everywhere=true")).status == 204
    assert await signed_in() == [False, False, True]
    await here.sign_in(key)
    assert (await service.call("DELETE", "/session", key=key)).status == 204  # a key has no session
    assert await signed_in() == [True, False, True]
    assert (await service.call("DELETE", "/session?everywhere=true", key=key)).status == 204
    assert await signed_in() == [False, False, True]
    assert (await service.call("GET", "/jobs", key=key)).status == 200


async def test_a_session_ends_with_its_key(service: Service) -> None:
    keys = service.parts.keys
    _, text = await keys.create(tenant="a", scopes=SCOPES, expires_at=service.store.now() + 60)
    browser = Browser(service)
    signed = await browser.sign_in(text)
    assert "Max-Age=60;" in signed.headers["set-cookie"] and signed.json()["expiresAt"]
    service.clock.advance(61)
    assert (await browser.call("GET", "/jobs")).status == 401
    rotated, text = await keys.create(tenant="a", scopes=SCOPES)
    await browser.sign_in(text)
    await keys.rotate(rotated.id, 10)
    assert (await browser.call("GET", "/jobs")).status == 200
    service.clock.advance(11)  # the secret with which it was opened is no longer valid
    assert (await browser.call("GET", "/jobs")).status == 401
    revoked, text = await keys.create(tenant="a", scopes=SCOPES)
    await browser.sign_in(text)
    await keys.revoke(revoked.id)
    assert (await browser.call("GET", "/jobs")).status == 401
    await browser.sign_in(await service.key("a"))
    service.clock.advance(LIFETIME)
    assert (await browser.call("GET", "/jobs")).status == 401


async def test_old_sessions_are_removed(service: Service) -> None:
    key = await service.key("a")
    first, last = Browser(service), Browser(service)
    await first.sign_in(key)
    for _ in range(MAX_SESSIONS):
        service.clock.advance(1)
        await last.sign_in(key)
    assert (await first.call("GET", "/session")).status == 401
    assert (await last.call("GET", "/session")).status == 200
    service.clock.advance(LIFETIME)
    await first.sign_in(key)
    assert len(await service.store.records("sessions", RecordFilter(tenant="-"))) == 1


async def test_streams_and_websockets_accept_the_cookie_and_end_with_it(service: Service) -> None:
    browser = Browser(service)
    await browser.sign_in(await service.key("a"))
    lines = {"Cookie": browser.cookie}
    async with listening(service) as client:
        stream = listen(await client.get("/events", headers={**SSE, **lines}))
        assert (await anext(stream)).event == "snapshot"
        origin = str(client._base_url).rstrip("/")
        url = f"{origin.replace('http', 'ws')}/ws"
        connect = websockets.asyncio.client.connect
        with pytest.raises(InvalidStatus) as refused:
            await connect(url, proxy=None, additional_headers=lines, origin=f"{origin}1")  # type: ignore[arg-type]
        assert refused.value.response.status_code == 403
        async with connect(url, proxy=None, additional_headers=lines, origin=origin) as socket:  # type: ignore[arg-type]
            await socket.send(json.dumps({"subscribe": {"filter": {"type": ["status"]}}}))
            assert json.loads(await asyncio.wait_for(socket.recv(), 20))["type"] == "snapshot"
            assert (await browser.call("DELETE", "/session")).status == 204
            assert [heard async for heard in stream] == []
            with pytest.raises(ConnectionClosed) as closed:
                await asyncio.wait_for(socket.recv(), 20)
            assert closed.value.rcvd is not None and closed.value.rcvd.code == 1008


async def test_a_session_works_on_all_replicas(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, postgres: Postgres
) -> None:
    monkeypatch.setenv("BIDE_TEST_STORE", postgres.url)
    async with protected(tmp_path).opened() as one, protected(tmp_path).opened() as two:
        key = await one.key("a")
        assert two.parts.authenticator is not None
        await two.parts.authenticator.refresh()
        browser = Browser(one)
        await browser.sign_in(key)
        browser.service = two
        assert (await browser.call("GET", "/session")).status == 200
        assert (await browser.call("DELETE", "/session?everywhere=true")).status == 204
        browser.service = one
        assert one.parts.authenticator is not None
        await one.parts.authenticator.refresh()
        assert (await browser.call("GET", "/session")).status == 401


async def test_without_authentication_nobody_signs_in(tmp_path: Path) -> None:
    async with Service(tmp_path, kinds()).opened() as service:
        reply = await service.call("GET", "/session")
        assert reply.json() == {
            "subject": "-",
            "tenant": "-",
            "scopes": sorted(SCOPES),
            "csrf": None,
            "expiresAt": None,
        }
        assert (await service.call("POST", "/session", json={"key": "x"})).status == 409
        assert (await service.call("DELETE", "/session")).status == 204
        assert (await service.call("DELETE", "/session?everywhere=true")).status == 204


async def test_guessed_cookies_read_the_store_one_at_a_time(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A text of another form is not looked up at all."""
    reading, most, reads = 0, 0, 0
    read = service.store.records

    async def counted(table: Any, filter: Any) -> dict[str, str]:
        nonlocal reading, most, reads
        reading, reads = reading + 1, reads + 1
        most = max(most, reading)
        await asyncio.sleep(0.01)
        reading -= 1
        found: dict[str, str] = await read(table, filter)
        return found

    monkeypatch.setattr(service.store, "records", counted)
    monkeypatch.setattr(sessions, "MAX_LOOKUPS", 5)

    async def ask(text: str) -> int:
        reply = await service.call("GET", "/jobs", headers={"cookie": f"bide_session={text}"})
        return reply.status

    assert {await ask(text) for text in ("x", "x" * 42, "x" * 44, "-" * 43, "x" * 5000)} == {401}
    assert reads == 0
    statuses = await asyncio.gather(*(ask(f"{number:043d}") for number in range(20)))
    assert (statuses.count(401), statuses.count(503)) == (5, 15)
    assert (most, reads) == (1, 5)
