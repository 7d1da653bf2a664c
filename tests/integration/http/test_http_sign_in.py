"""Signing in to the dashboard at an OpenID Connect provider: the code flow, and what the service refuses."""

from __future__ import annotations

import base64
import json
import logging
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, OctKey

from bide.core.errors import SetupError
from bide.server.config import AuthConfig, Config, HttpConfig, OidcConfig
from bide.server.identities import sign_in
from bide.server.identities.oidc import LEEWAY, OidcCredentials, endpoint
from bide.server.identities.sessions import USER_LIFETIME
from bide.server.store import RecordFilter
from tests.integration.http.service import Service, kinds
from tests.servers.oidc_provider import CLIENT, SECRET, OidcProvider

URL = "http://127.0.0.1:8642"
CALLBACK = f"{URL}/session/oidc/callback"
TLS = ssl.create_default_context()  # not needed, but slow to make for each client
HTML = {"accept": "text/html,*/*;q=0.8"}


class Browser:
    """Keeps cookies, and follows redirects one by one."""

    def __init__(self, service: Service, url: str = URL, **headers: str) -> None:
        transport = httpx.ASGITransport(app=service.app)
        self.url = url
        self.own = httpx.AsyncClient(transport=transport, base_url=url, headers=headers)
        self.elsewhere = httpx.AsyncClient(trust_env=False, verify=TLS)

    async def begin(self, next_: str | None = None) -> str:
        """Go to the provider and click. Return the URL to which the provider sends the browser back."""
        begun = await self.own.get("/session/oidc", params={} if next_ is None else {"next": next_})
        assert begun.status_code == 303, begun.text
        back = await self.elsewhere.get(begun.headers["location"] + "&confirmed=1")
        assert back.status_code == 302, back.text
        return back.headers["location"]

    async def finish(self, url: str, **headers: str) -> httpx.Response:
        parts = urlsplit(url)
        place = f"{parts.path}?{parts.query}"
        return await self.own.get(
            self.url + place.removeprefix(urlsplit(self.url).path), headers=headers
        )

    async def sign_in(self) -> httpx.Response:
        done = await self.finish(await self.begin())
        assert done.status_code == 303, done.text
        return done

    async def jobs(self) -> int:
        return (await self.own.get("/jobs")).status_code


@dataclass
class Site:
    service: Service
    provider: OidcProvider

    async def refusal(self, back: str | None = None) -> str:
        """Sign in, and return the detail of the problem. There is no session afterwards."""
        browser = Browser(self.service)
        self.provider.requests.clear()
        done = await browser.finish(back or await browser.begin())
        assert (done.status_code, done.json()["code"]) == (400, "sign-in-failed"), done.text
        assert done.headers["cache-control"] == "no-store"
        assert "bide_session" not in browser.own.cookies
        assert await browser.jobs() == 401
        detail: str = done.json()["detail"]
        return detail


def configured(provider: OidcProvider, **more: Any) -> Config:
    issuer = OidcConfig(
        provider.issuer, "bide-api", client_id=CLIENT, client_secret=SECRET, **more.pop("oidc", {})
    )
    proxies = HttpConfig(trusted_proxies=("127.0.0.1",))
    return Config(http=proxies, auth=AuthConfig(oidc=issuer, **more))


@pytest.fixture
async def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Site]:
    monkeypatch.delenv("BIDE_TEST_STORE", raising=False)
    monkeypatch.setattr(sign_in, "METADATA_AGE", 0.0)
    monkeypatch.setattr(sign_in, "FAILURE_AGE", 0.0)
    provider = OidcProvider(redirect_uris=[CALLBACK])
    provider.start()
    service = Service(tmp_path, kinds(), configured(provider))
    provider.clock = service.clock.now
    async with service.opened():
        yield Site(service, provider)
    provider.stop()


async def test_a_user_signs_in_and_out(site: Site) -> None:
    browser = Browser(site.service)
    begun = await browser.own.get("/session/oidc?next=/%23/jobs")
    cookie = begun.headers["set-cookie"]
    assert cookie.endswith("; Path=/session/oidc; Max-Age=600; HttpOnly; SameSite=Lax")
    query = parse_qs(urlsplit(begun.headers["location"]).query)
    assert query["redirect_uri"] == [CALLBACK] and query["code_challenge_method"] == ["S256"]
    text = cookie.partition("=")[2].partition(".")[0]
    assert text not in begun.headers["location"] and SECRET not in begun.headers["location"]

    done = await browser.finish(await browser.begin("/#/jobs"))
    assert (done.status_code, done.headers["location"]) == (303, "/#/jobs")
    session, sign = sorted(done.headers.get_list("set-cookie"))
    assert sign.startswith("bide_sign_in=;") and "Max-Age=0" in sign
    assert session.endswith(f"Path=/; Max-Age={USER_LIFETIME:.0f}; HttpOnly; SameSite=Lax")
    who = (await browser.own.get("/session")).json()
    expected = {"subject": "oidc:ann", "tenant": "acme", "scopes": ["read", "submit"]}
    assert who.items() >= expected.items()

    # The session has the rights of the claims, and a change needs the CSRF token.
    made = await browser.own.post("/jobs", json={"kind": "echo"})
    assert made.status_code == 403
    csrf = {"X-CSRF-Token": who["csrf"]}
    made = await browser.own.post("/jobs", json={"kind": "echo"}, headers=csrf)
    job = made.json()["jobId"]
    key = await site.service.key("acme")
    assert (await site.service.call("GET", f"/jobs/{job}", key=key)).status == 200
    assert (await browser.own.post(f"/jobs/{job}/cancel", headers=csrf)).status_code == 403
    body = {"jobs": [job]}
    assert (await browser.own.post("/tokens", json=body, headers=csrf)).status_code == 403

    # Sign-out, here and everywhere.
    other, third = Browser(site.service), Browser(site.service)
    await other.sign_in()
    await third.sign_in()
    assert (await browser.own.delete("/session", headers=csrf)).status_code == 204
    assert [await b.jobs() for b in (browser, other, third)] == [401, 200, 200]
    csrf = {"X-CSRF-Token": (await other.own.get("/session")).json()["csrf"]}
    gone = await other.own.delete("/session?everywhere=true", headers=csrf)
    assert gone.status_code == 204
    assert [await b.jobs() for b in (other, third)] == [401, 401]

    await site.service.parts.audit.write()
    entries = "".join((await site.service.store.records("audit", RecordFilter())).values())
    assert '"oidc:ann","acme","finishSignIn"' in entries and "code" not in entries


async def test_a_session_ends_in_time_and_with_the_issuer(site: Site, tmp_path: Path) -> None:
    browser = Browser(site.service)
    await browser.sign_in()
    # The id token has expired long ago; the session has not.
    site.service.clock.advance(USER_LIFETIME - 1)
    assert await browser.jobs() == 200
    site.service.clock.advance(1)
    assert await browser.jobs() == 401
    (tmp_path / "short").mkdir()
    short = Service(tmp_path / "short", kinds(), configured(site.provider, session=60.0))
    site.provider.clock = short.clock.now
    async with short.opened():
        browser = Browser(short)
        assert "Max-Age=60;" in str((await browser.sign_in()).headers.get_list("set-cookie"))
        assert await browser.jobs() == 200
        short.clock.advance(60)
        assert await browser.jobs() == 401
    # The same store with another issuer, and with none.
    for auth in (AuthConfig("keys"), AuthConfig(oidc=OidcConfig("https://other.example", "bide-api"))):
        folder = tmp_path / auth.mode
        folder.mkdir()
        first = Service(folder, kinds(), configured(site.provider))
        site.provider.clock = first.clock.now
        async with first.opened():
            browser = Browser(first)
            await browser.sign_in()
            cookies = browser.own.cookies
        second = Service(folder, kinds(), Config(auth=auth))
        async with second.opened():
            browser = Browser(second)
            browser.own.cookies = cookies
            assert await browser.jobs() == 401


async def test_the_answer_counts_in_the_browser_that_began(site: Site) -> None:
    """Wrong state, no state, the state of another browser (login CSRF), and a page that shows nothing of the answer."""
    attacker, victim = Browser(site.service), Browser(site.service)
    stolen = await attacker.begin()
    site.provider.requests.clear()
    for cookies in (False, True):
        if cookies:
            await victim.begin()
        for url in (stolen, CALLBACK, f"{CALLBACK}?code=x&state=", f"{CALLBACK}?error=x&state=y"):
            done = await victim.finish(url)
            assert done.status_code == 400 and "in this browser" in done.json()["detail"]
    shown = await victim.finish(f"{CALLBACK}?error=a&error_description=call+us&state=y", **HTML)
    assert shown.status_code == 400 and "call" not in shown.text
    assert "bide_session" not in victim.own.cookies and "/token" not in site.provider.requests
    twice = await victim.own.get(f"{CALLBACK}?state=a&state=b")
    assert twice.status_code == 422


async def test_a_code_works_once(site: Site) -> None:
    browser = Browser(site.service)
    back = await browser.begin()
    cookie = browser.own.cookies["bide_sign_in"]
    assert (await browser.finish(back)).status_code == 303
    assert "bide_sign_in" not in browser.own.cookies
    for again in (None, cookie):  # also if the browser had kept the cookie
        other = Browser(site.service)
        if again is not None:
            other.own.cookies.set("bide_sign_in", again, domain="127.0.0.1", path="/session/oidc")
        done = await other.finish(back)
        assert done.status_code == 400 and "bide_session" not in other.own.cookies
    assert "invalid_grant" in done.json()["detail"]


async def test_a_code_of_another_sign_in_is_refused(site: Site) -> None:
    """Code injection: the provider compares the code challenge."""
    attacker, victim = Browser(site.service), Browser(site.service)
    code = parse_qs(urlsplit(await attacker.begin()).query)["code"][0]
    own = parse_qs(urlsplit(await victim.begin()).query)
    done = await victim.finish(f"{CALLBACK}?code={code}&state={own['state'][0]}")
    assert done.status_code == 400 and "invalid_grant" in done.json()["detail"]


async def test_id_tokens_for_others_are_refused(site: Site) -> None:
    provider, now = site.provider, site.service.clock.now()
    for changes, why in (
        ({"nonce": "of another sign-in"}, "nonce"),
        ({"nonce": None}, "nonce"),
        ({"iss": "https://other.example"}, "issuer"),
        ({"aud": "another"}, "audience"),
        ({"aud": "bide-api"}, "audience"),  # an access token for the service is no id token
        ({"aud": [CLIENT, "another"]}, "azp"),
        ({"aud": [CLIENT, "another"], "azp": "another"}, "azp"),
        ({"azp": "another"}, "azp"),
        ({"exp": int(now - LEEWAY - 1)}, "expired"),
        ({"exp": None}, "exp"),
        ({"iat": None}, "iat"),
        ({"iat": int(now + LEEWAY + 9)}, "iat"),
        ({"nbf": int(now + LEEWAY + 9)}, "not valid yet"),
        ({"sub": ""}, "subject"),
        ({"tenant": None}, "tenant"),
        ({"tenant": "a/b"}, "tenant"),
        ({"scope": "openid submit"}, "`read`"),
        ({"scope": {"read": True}}, "scope"),
    ):
        provider.changes = changes
        assert why in await site.refusal(), changes
    provider.changes = {"aud": [CLIENT, "another"], "azp": CLIENT}
    await Browser(site.service).sign_in()


async def test_id_tokens_with_wrong_signatures_are_refused(site: Site) -> None:
    provider = site.provider

    def unsigned(claims: dict[str, Any]) -> str:
        parts = [{"alg": "none"}, claims]
        texts = [base64.urlsafe_b64encode(json.dumps(p).encode()).rstrip(b"=").decode() for p in parts]
        return ".".join((*texts, ""))

    def hmac_with_secret(claims: dict[str, Any]) -> str:
        return jwt.encode({"alg": "HS256", "kid": "1"}, claims, OctKey.import_key(SECRET * 3))

    def with_other_key(claims: dict[str, Any]) -> str:
        return jwt.encode({"alg": "ES256", "kid": "1"}, claims, ECKey.generate_key("P-256"))

    for make, why in (
        (unsigned, "algorithm"),
        (hmac_with_secret, "algorithm"),
        (with_other_key, "BadSignature"),
        (lambda claims: "x", "header"),
        (lambda claims: {"no": "token"}, "no id token"),
    ):
        provider.make_token = make  # type: ignore[assignment]
        assert why in await site.refusal()


async def test_errors_of_the_provider_are_shown_as_a_page(site: Site) -> None:
    site.provider.answer = {
        "error": "access_denied",
        "error_description": "<script>Ann</script> may not\n use it" + "x" * 500,
    }
    browser = Browser(site.service)
    shown = await browser.finish(await browser.begin("/#/jobs?status=ERROR"), **HTML)
    assert shown.status_code == 400 and "access_denied" in shown.text
    assert "&lt;script&gt;Ann" in shown.text and "<script>" not in shown.text
    assert len(shown.text) < 5000
    assert 'href="/session/oidc?next=%2F%23%2Fjobs%3Fstatus%3DERROR">Try again' in shown.text
    assert 'href="/">Sign in with an API key' in shown.text
    assert "default-src 'none'" in shown.headers["content-security-policy"]
    assert shown.headers["referrer-policy"] == "no-referrer"
    site.provider.answer = {"iss": "https://other.example", "code": "x"}  # mix-up
    assert "another issuer" in await site.refusal()
    site.provider.answer = {"code": "x"}
    site.provider.metadata = {"authorization_response_iss_parameter_supported": True}
    assert "another issuer" in await site.refusal()
    site.provider.answer = {"iss": site.provider.issuer}
    assert "no code" in await site.refusal()


async def test_if_the_provider_is_down_keys_still_work(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    browser = Browser(site.service)
    back = await browser.begin()
    site.provider.stop()
    for reply in (
        await browser.own.get("/session/oidc", headers=HTML),
        await browser.finish(back, **HTML),
    ):
        assert reply.status_code == 503 and "does not respond" in reply.text
        assert "API key" in reply.text and int(reply.headers["retry-after"]) >= 1
    problem = (await browser.own.get("/session/oidc")).json()
    assert (problem["code"], problem["retryable"]) == ("provider-unavailable", True)
    key = await site.service.key("acme")
    assert (await browser.own.post("/session", json={"key": key})).status_code == 200
    assert await browser.jobs() == 200
    site.provider.start()
    # Documents that the service does not trust.
    for wrong in (
        {"issuer": "https://other.example"},
        {"authorization_endpoint": "http://login.example.org/authorize"},
        {"authorization_endpoint": "javascript:alert(1)"},
        {"authorization_endpoint": None},
    ):
        site.provider.metadata = wrong
        assert (await browser.own.get("/session/oidc")).status_code == 503, wrong
    site.provider.metadata = {}
    back = await browser.begin()
    site.provider.metadata = {"token_endpoint": "http://10.0.0.7/token"}
    assert (await browser.finish(back)).status_code == 503
    said = "".join(r.getMessage() for r in caplog.records if r.name.startswith("bide"))
    assert "does not respond" not in said and "Cannot connect" in said
    assert "s3cret" not in said and parse_qs(urlsplit(back).query)["code"][0] not in said


async def test_next_is_a_path_of_the_service(site: Site) -> None:
    browser = Browser(site.service)
    for place in ("/", "/#/jobs/1?a=//b", "/docs", "/a/b/?x=1", "/?q=%2F%2F"):
        done = await browser.finish(await browser.begin(place))
        assert done.headers["location"] == place
    for place in (
        *("//evil.example", "/\\evil.example", "\\\\evil.example", "https://evil.example", "evil"),
        *("/a//evil.example", "/\t/evil.example", "/\n/x", " /", "/é", "javascript:alert(1)", "/a\\b"),
        *("/" + "a" * 1000, "/#\\x", "?x"),
    ):
        refused = await browser.own.get("/session/oidc", params={"next": place})
        assert refused.status_code == 422, place
    # Another path in the cookie: a user can change it, a page cannot.
    back = await browser.begin()
    text = browser.own.cookies["bide_sign_in"].partition(".")[0]
    wrong = base64.urlsafe_b64encode(b"//evil.example").decode().rstrip("=")
    for cookie in (f"{text}.{wrong}", f"{text}.!", text):
        browser.own.cookies.clear()
        browser.own.cookies.set("bide_sign_in", cookie, domain="127.0.0.1", path="/session/oidc")
        done = await browser.finish(back)
        assert done.status_code == 400 or done.headers["location"] == "/"
        back = await browser.begin()
        text = browser.own.cookies["bide_sign_in"].partition(".")[0]


async def test_the_redirect_uri_is_the_public_one(site: Site, tmp_path: Path) -> None:
    public = "https://jobs.example.org/bide"
    site.provider.redirect_uris = [f"{public}/session/oidc/callback"]
    proxy = {
        "X-Forwarded-Proto": "https",
        "X-Forwarded-Host": "jobs.example.org",
        "X-Forwarded-Prefix": "/bide",
    }
    browser = Browser(site.service, **proxy)
    begun = await browser.own.get("/session/oidc")
    assert begun.headers["set-cookie"].endswith(
        "; Path=/bide/session/oidc; Max-Age=600; HttpOnly; SameSite=Lax; Secure"
    )
    back = (await browser.elsewhere.get(begun.headers["location"] + "&confirmed=1")).headers["location"]
    assert back.startswith(f"{public}/session/oidc/callback?")
    cookie = begun.headers["set-cookie"].partition(";")[0]
    query = urlsplit(back).query
    done = await browser.own.get(f"/session/oidc/callback?{query}", headers={"Cookie": cookie})
    assert (done.status_code, done.headers["location"]) == (303, "/bide/")
    session, _ = sorted(done.headers.get_list("set-cookie"))
    assert "; Path=/bide; " in session and session.endswith("; Secure")
    # The headers of a caller who is no trusted proxy do not count.
    transport = httpx.ASGITransport(app=site.service.app, client=("10.0.0.9", 1))
    async with httpx.AsyncClient(transport=transport, base_url=URL, headers=proxy) as direct:
        begun = await direct.get("/session/oidc")
    assert redirect_uri(begun) == CALLBACK
    # A proxy that sends no headers: --root-path.
    own = tmp_path / "root"
    own.mkdir()
    config = replace(configured(site.provider), http=HttpConfig(root_path="/bide"))
    async with Service(own, kinds(), config).opened() as service:
        begun = await Browser(service).own.get("/session/oidc")
    assert redirect_uri(begun) == f"{URL}/bide/session/oidc/callback"


def redirect_uri(begun: httpx.Response) -> str:
    return parse_qs(urlsplit(begun.headers["location"]).query)["redirect_uri"][0]


async def test_a_service_without_a_client_has_no_sign_in(tmp_path: Path) -> None:
    async with Service(tmp_path, kinds(), Config(auth=AuthConfig("keys"))).opened() as service:
        for path in ("/session/oidc", "/session/oidc/callback"):
            assert (await service.call("GET", path)).status == 404
            page = await service.call("GET", path, headers=HTML)
            assert page.status == 404 and b"API key" in page.body and b"Try again" not in page.body
        page = await service.call("GET", "/", headers=HTML)
        assert b'data-provider=""' in page.body


def test_wrong_settings_are_refused() -> None:
    def make(**more: Any) -> None:
        OidcCredentials(OidcConfig("https://login.example.org", "bide", **more), lambda: 0.0)

    with pytest.raises(SetupError, match="client-id"):
        make(client_secret="x")
    with pytest.raises(SetupError, match="openid"):
        make(client_id="x", request_scopes=("profile",))
    config = OidcConfig("https://login.example.org", "bide", client_id="x", client_secret="hidden")
    assert "hidden" not in repr(config)
    for issuer, url, allowed in (
        ("https://login.example.org", "https://login.example.org/token", True),
        ("https://login.example.org", "http://login.example.org/token", False),
        ("https://login.example.org", "http://127.0.0.1/token", False),
        ("http://localhost:1", "http://localhost:1/token", True),
        ("http://localhost:1", "http://10.0.0.1/token", False),
        ("https://login.example.org", "file:///etc/passwd", False),
        ("https://login.example.org", "https://", False),
        ("https://login.example.org", "https://[x", False),
    ):
        document = {"issuer": issuer, "token_endpoint": url}
        if allowed:
            assert endpoint(document, "token_endpoint") == url
        else:
            with pytest.raises(ValueError, match="token_endpoint"):
                endpoint(document, "token_endpoint")
