"""Tokens of an OpenID Connect issuer: which are accepted, what their claims mean, and where the keys come from."""

from __future__ import annotations

import json
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from joserfc import jwt
from joserfc.jwk import ECKey, OKPKey, RSAKey

from bide.core.errors import SetupError
from bide.server.config import AuthConfig, Config, OidcConfig
from bide.server.identities import oidc
from bide.server.store import RecordFilter
from tests.integration.http.service import Service, kinds

ISSUER, AUDIENCE = "https://login.example.org", "bide"
RSA = RSAKey.generate_key(2048, {"kid": "rsa", "use": "sig"})
EC = ECKey.generate_key("P-256", {"kid": "ec"})
ED = OKPKey.generate_key("Ed25519", {"kid": "ed"})
KEYS: dict[str, tuple[str, Any]] = {"rsa": ("RS256", RSA), "ec": ("ES256", EC), "ed": ("EdDSA", ED)}


@pytest.fixture(autouse=True)
def no_store_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BIDE_TEST_STORE", raising=False)


def key_set(*keys: Any) -> str:
    return json.dumps({"keys": [key.as_dict(private=False) for key in keys]})


@dataclass
class Site:
    service: Service
    issuer: str = ISSUER

    def claims(self, **changes: Any) -> dict[str, Any]:
        now = self.service.clock.now()
        claims = {
            "iss": self.issuer,
            "aud": AUDIENCE,
            "sub": "ann",
            "tenant": "acme",
            "scope": "openid read bide:submit",
            "exp": int(now + 300),
            "nbf": int(now),
        }
        return {k: v for k, v in {**claims, **changes}.items() if v is not None}

    def token(self, kid: str = "rsa", header: dict[str, Any] | None = None, **changes: Any) -> str:
        algorithm, key = KEYS[kid]
        named = {"alg": algorithm, "kid": kid, **(header or {})}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # EdDSA
            return jwt.encode(named, self.claims(**changes), key, algorithms=[algorithm])

    async def status(self, token: str, method: str = "GET", path: str = "/jobs") -> int:
        return (await self.service.call(method, path, key=token)).status


def site_of(folder: Path, issuer: str = ISSUER, jwks: Path | None = None, **more: Any) -> Site:
    config = Config(auth=AuthConfig(oidc=OidcConfig(issuer, AUDIENCE, jwks, **more)))
    return Site(Service(folder, kinds(), config), issuer)


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    file = tmp_path / "keys.json"
    other = {"kty": "oct", "k": "c2VjcmV0", "kid": "shared"}
    keys = json.loads(key_set(RSA, EC, ED))["keys"]
    file.write_text(json.dumps({"keys": [other, {"kty": "new"}, "x", *keys]}))
    found = site_of(tmp_path, jwks=file)
    async with found.service.opened():
        yield found


async def test_claims_become_tenant_scopes_and_subject(site: Site) -> None:
    for kid in KEYS:
        made = await site.service.call("POST", "/jobs", json={"kind": "echo"}, key=site.token(kid))
        assert made.status == 202, kid
    token = site.token()
    job_id = made.json()["jobId"]
    assert await site.status(token, path=f"/jobs/{job_id}") == 200
    assert await site.status(token, "POST", f"/jobs/{job_id}/cancel") == 403
    assert await site.status(site.token(scope=["control"]), "POST", f"/jobs/{job_id}/cancel") == 200
    assert await site.status(site.token(tenant="globex"), path=f"/jobs/{job_id}") == 404
    assert await site.status(site.token(scope="openid profile")) == 403
    assert await site.status(site.token(scope=None)) == 403
    assert await site.status(site.token(aud=["other", AUDIENCE])) == 200
    key = await site.service.key("acme")  # API keys work, too
    assert await site.status(key, path=f"/jobs/{job_id}") == 200
    await site.service.parts.audit.write()
    (text,) = (await site.service.store.records("audit", RecordFilter())).values()
    assert '"oidc:ann","acme","submitJob"' in text and token not in text


async def test_a_token_expires(site: Site) -> None:
    token = site.token()
    assert await site.status(token) == 200
    site.service.clock.advance(300 + oidc.LEEWAY - 1)
    assert await site.status(token) == 200
    site.service.clock.advance(1)
    assert await site.status(token) == 401


async def test_one_key_needs_no_kid_and_another_claim_can_be_the_tenant(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    file.write_text(key_set(EC))
    one = site_of(tmp_path, jwks=file, tenant_claim="sub", algorithms=("ES256",))
    async with one.service.opened():
        claims = one.claims(tenant=None)
        assert await one.status(jwt.encode({"alg": "ES256"}, claims, EC)) == 200
        assert await one.status(one.token("rsa")) == 401
        made = await one.service.call("POST", "/jobs", json={"kind": "echo"}, key=one.token("ec"))
        (job,) = await one.service.store.get([made.json()["jobId"]])
        assert job.tenant == "ann"


# --- keys of an issuer


@dataclass
class Issuer:
    keys: list[Any] = field(default_factory=lambda: [RSA])
    url: str = ""
    jwks: str = ""
    requests: int = 0
    status: int = 200

    async def configuration(self, request: web.Request) -> web.Response:
        return web.json_response({"issuer": self.url, "jwks_uri": self.jwks})

    async def key_set(self, request: web.Request) -> web.Response:
        self.requests += 1
        return web.Response(status=self.status, text=key_set(*self.keys))


@asynccontextmanager
async def issuing() -> AsyncIterator[Issuer]:
    issuer = Issuer()
    app = web.Application()
    app.router.add_get("/.well-known/openid-configuration", issuer.configuration)
    app.router.add_get("/keys", issuer.key_set)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        place = web.TCPSite(runner, "127.0.0.1", 0)
        await place.start()
        issuer.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        issuer.jwks = issuer.url + "/keys"
        yield issuer
    finally:
        await runner.cleanup()


async def test_keys_of_the_issuer_rotate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with issuing() as issuer:
        site = site_of(tmp_path, issuer.url)
        async with site.service.opened():
            old = site.token("rsa")
            issuer.status = 500
            assert await site.status(old) == 503  # no keys yet
            issuer.status = 200
            monkeypatch.setattr(oidc, "RETRY_AFTER", 0.0)
            assert await site.status(old) == 200
            monkeypatch.setattr(oidc, "RETRY_AFTER", 30.0)
            # Tokens with unknown keys do not make the service send a request each.
            asked, issuer.keys = issuer.requests, [EC]
            for i in range(20):
                assert await site.status(site.token("ec", header={"kid": f"ec{i}"})) == 401
            assert issuer.requests == asked
            monkeypatch.setattr(oidc, "RETRY_AFTER", 0.0)
            assert await site.status(site.token("ec")) == 200
            assert await site.status(old) == 401  # its key was withdrawn
            issuer.status = 500
            assert await site.status(site.token("ed")) == 401
            assert await site.status(site.token("ec")) == 200  # the previous keys stay
            # A document of another issuer, or one with keys elsewhere without TLS, is not used.
            issuer.status, issuer.keys = 200, [ED]
            issuer.jwks = "http://192.0.2.1/keys"
            assert await site.status(site.token("ed")) == 401


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (OidcConfig("http://login.example.org", "bide"), "https"),
        (OidcConfig("login.example.org", "bide"), "https"),
        (OidcConfig(ISSUER, ""), "--audience"),
        (OidcConfig(ISSUER, "bide", algorithms=("HS256",)), "HS256"),
        (OidcConfig(ISSUER, "bide", algorithms=("RS256", "none")), "none"),
        (OidcConfig(ISSUER, "bide", algorithms=()), "--oidc-algorithms"),
        (OidcConfig(ISSUER, "bide", jwks=Path("/nowhere.json")), "--jwks"),
        (OidcConfig(ISSUER, "bide", jwks=Path(__file__)), "Key Set"),
    ],
)
def test_wrong_settings_are_rejected(tmp_path: Path, config: OidcConfig, message: str) -> None:
    with pytest.raises(SetupError, match=message):
        Service(tmp_path, kinds(), Config(auth=AuthConfig(oidc=config)))
