"""JSON Web Tokens of an OpenID Connect issuer: as a credential of requests (`CredentialType`), and as the id token with
which a user signs in (`sign_in`).

1. The configuration fixes issuer, audience and algorithms. A token chooses only among the keys of the issuer.
2. The keys come from a file or from the issuer. They are read again every REFRESH_EVERY seconds, and when a token names an
   unknown key, but not within RETRY_AFTER seconds. If that fails, the previous ones stay valid.
3. Each invalid token gets the same response. The log says why, at the level DEBUG.
"""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
import logging
import math
import time
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from bide.core.errors import SetupError, Unauthenticated, Unavailable
from bide.server.config import OidcConfig, is_loopback
from bide.server.identities import SCOPES, TENANT, Principal

if TYPE_CHECKING:
    from joserfc.jwk import ECKey, OKPKey, RSAKey

    Key = ECKey | OKPKey | RSAKey

log = logging.getLogger("bide.identities")
# Signatures with a key pair only. With HS256 or `none`, the public key or no key at all would make a valid token.
ALGORITHMS = frozenset(
    ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519")
)
KEY_TYPES = ("RSA", "EC", "OKP")
MAX_TOKEN = 8192  # characters
MAX_KID = 200
MAX_SUBJECT = 255
MAX_DOCUMENT = 1024 * 1024  # bytes
LEEWAY = 30.0  # seconds by which clocks may differ
REFRESH_EVERY = 3600.0  # seconds
RETRY_AFTER = 30.0
FETCH_TIMEOUT = 10.0
PREFIX = "bide:"


class _Header(msgspec.Struct):
    alg: str
    kid: str | None = None
    crit: msgspec.Raw | None = None


class _Claims(msgspec.Struct):
    iss: str
    sub: str
    exp: float
    aud: str | list[str]
    nbf: float = 0.0
    # Of id tokens.
    iat: float | None = None
    azp: str | None = None
    nonce: str | None = None


class Rejected(Exception):
    """Why a token is invalid."""


def _invalid() -> Unauthenticated:
    return Unauthenticated(
        "the token is not valid: its signature, issuer, audience, time or claims are wrong"
    )


class OidcCredentials:
    """`now` is the clock of the store. `on_change` is called after the issuer's keys have changed."""

    def __init__(self, config: OidcConfig, now: Callable[[], float]) -> None:
        _check(config)
        self._config = config
        self._now = now
        self.on_change: Callable[[], None] = lambda: None
        self._keys: dict[str, Key] = {}  # by kid
        self._proofs: frozenset[str] = frozenset()  # the thumbprints of the keys
        self._tried_at = self._read_at = -math.inf  # monotonic
        self._refreshing = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        if config.jwks is not None:
            try:
                self._set(config.jwks.read_bytes())
            except (OSError, ValueError) as error:
                raise SetupError(f"--jwks {config.jwks}: {error}") from None

    # --- CredentialType

    async def load(self) -> None:
        """The store has none of these identities."""

    async def verify(self, token: str) -> Principal | None:
        if token.count(".") != 2:
            return None
        try:
            key, payload = await self._open(token)
            claims = self._check(payload, self._config.audience)
            return self._principal(key, claims, payload)
        except Rejected as error:
            log.debug("a token was rejected: %s", error)
            raise _invalid() from None

    async def verify_id_token(self, token: str, nonce: str) -> Principal:
        """Return the user that an id token names, whom the issuer has signed in for this service. Raises Rejected, or
        Unavailable if the keys of the issuer cannot be read.
        """
        key, payload = await self._open(token)
        client = self._config.client_id
        assert client is not None
        claims = self._check(payload, client)
        if not isinstance(claims.aud, str) and len(claims.aud) > 1 and claims.azp is None:
            raise Rejected("it has several audiences and no `azp`")
        if claims.azp is not None and claims.azp != client:
            raise Rejected("its `azp` is another client")
        if claims.iat is None or claims.iat > self._now() + LEEWAY:
            raise Rejected("its `iat` is missing or in the future")
        if claims.nonce is None or not hmac.compare_digest(claims.nonce.encode(), nonce.encode()):
            raise Rejected("its `nonce` belongs to another sign-in")
        return self._principal(key, claims, payload)

    def is_valid(self, principal: Principal) -> bool:
        return principal.proof in self._proofs

    def use(self, principal: Principal) -> None:
        pass

    async def save(self) -> None:
        """Read the keys if it is time to, in a task, because the caller has other work each second."""
        if self._task is None or self._task.done():
            now = time.monotonic()
            if now - self._read_at > REFRESH_EVERY and now - self._tried_at > RETRY_AFTER:
                self._task = asyncio.get_running_loop().create_task(self._refresh(RETRY_AFTER))

    # --- claims

    async def _open(self, token: str) -> tuple[Key, dict[str, Any]]:
        """The key and the claims of a token with a valid signature."""
        header = _header(token, self._config.algorithms)
        key = self._find(header.kid)
        if key is None:
            await self._refresh(RETRY_AFTER)
            if not self._keys:
                raise Unavailable(f"the keys of the issuer {self._config.issuer} cannot be read")
            key = self._find(header.kid)
            if key is None:
                raise Rejected("its key is unknown")
        return key, _read(token, key, header.alg)

    def _check(self, payload: dict[str, Any], audience: str) -> _Claims:
        config, now = self._config, self._now()
        try:
            claims = msgspec.convert(payload, _Claims)
        except msgspec.ValidationError as error:
            raise Rejected(str(error)) from None
        if claims.iss != config.issuer:
            raise Rejected(f"its issuer is {claims.iss[:200]!r}")
        if audience not in ([claims.aud] if isinstance(claims.aud, str) else claims.aud):
            raise Rejected("its audience is another")
        if not now < claims.exp + LEEWAY:
            raise Rejected("it has expired")
        if not claims.nbf <= now + LEEWAY:
            raise Rejected("it is not valid yet")
        if not 0 < len(claims.sub) <= MAX_SUBJECT or not claims.sub.isprintable():
            raise Rejected("its subject is no printable text of up to 255 characters")
        return claims

    def _principal(self, key: Key, claims: _Claims, payload: dict[str, Any]) -> Principal:
        config = self._config
        tenant = payload.get(config.tenant_claim)
        if not isinstance(tenant, str) or not TENANT.fullmatch(tenant):
            raise Rejected(f"its claim {config.tenant_claim!r} is no name of a tenant")
        named = payload.get(config.scope_claim, "")
        if isinstance(named, str):
            named = named.split()
        if not isinstance(named, list) or not all(isinstance(name, str) for name in named):
            raise Rejected(f"its claim {config.scope_claim!r} is neither a text nor a list of texts")
        scopes = {name.removeprefix(PREFIX) for name in named}
        return Principal(
            tenant,
            frozenset(scopes.intersection(SCOPES)),
            f"oidc:{claims.sub}",
            claims.exp + LEEWAY,
            self,
            proof=key.thumbprint(),
        )

    # --- keys

    def _find(self, kid: str | None) -> Key | None:
        if kid is None:  # allowed if there is no choice
            return next(iter(self._keys.values())) if len(self._keys) == 1 else None
        return self._keys.get(kid)

    async def _refresh(self, pause: float) -> None:
        """Read the keys, unless that was tried less than `pause` seconds ago."""
        async with self._refreshing:
            if time.monotonic() - self._tried_at < pause:
                return
            self._tried_at = time.monotonic()
            try:
                if self._config.jwks is not None:
                    document = await asyncio.to_thread(self._config.jwks.read_bytes)
                else:
                    document = await fetch_keys(self._config.issuer)
                self._set(document)
            except Exception as error:
                source = self._config.jwks or self._config.issuer
                log.warning(
                    "the keys of %s were not read, so the previous ones are used: %s", source, error
                )

    def _set(self, document: bytes) -> None:
        """Raises ValueError."""
        keys = _read_keys(document)
        proofs = frozenset(key.thumbprint() for key in keys.values())
        changed = proofs != self._proofs
        self._keys, self._proofs, self._read_at = keys, proofs, time.monotonic()
        if changed:
            self.on_change()


def _check(config: OidcConfig) -> None:
    try:
        import joserfc  # noqa: F401
    except ModuleNotFoundError:
        raise SetupError.not_installed("joserfc is not installed", "oidc") from None
    if not config.audience:
        raise SetupError("--oidc needs --audience: the name of this service in the tokens of the issuer")
    if not _is_secure(config.issuer):
        raise SetupError(f"--oidc {config.issuer!r} is no https:// URL; http:// is for loopback only")
    if config.client_secret is not None and not config.client_id:
        raise SetupError("the client secret of --oidc needs --oidc-client-id")
    if "openid" not in config.request_scopes:
        raise SetupError("--oidc-scopes needs `openid`, without which the issuer sends no id token")
    wrong = sorted(set(config.algorithms) - ALGORITHMS)
    if wrong or not config.algorithms:
        raise SetupError(
            f"--oidc-algorithms: {', '.join(wrong) or 'none'} is not accepted; use {', '.join(sorted(ALGORITHMS))}"
        )


def _is_secure(url: str) -> bool:
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError:
        return False
    return bool(host) and (
        parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host or ""))
    )


def _header(token: str, algorithms: tuple[str, ...]) -> _Header:
    """The header of a token, before its signature is verified."""
    if len(token) > MAX_TOKEN:
        raise Rejected("it is too long")
    try:
        first = token.partition(".")[0]
        padded = first + "=" * (-len(first) % 4)
        header = msgspec.json.decode(base64.urlsafe_b64decode(padded), type=_Header)
    except (ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise Rejected(f"its header is invalid: {error}") from None
    if header.alg not in algorithms:
        raise Rejected(f"its algorithm is {header.alg[:50]!r}")
    if header.crit is not None:
        raise Rejected("its header has `crit`")
    if header.kid is not None and len(header.kid) > MAX_KID:
        raise Rejected("its kid is too long")
    return header


def _read(token: str, key: Key, algorithm: str) -> dict[str, Any]:
    """The claims of a token with a valid signature."""
    from joserfc import jwt
    from joserfc.errors import JoseError

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # EdDSA has a newer name, and issuers still use the old one
            return jwt.decode(token, key, algorithms=[algorithm]).claims
    except (JoseError, ValueError, TypeError, RecursionError) as error:
        raise Rejected(f"{type(error).__name__}: {error}") from None


def _read_keys(document: bytes) -> dict[str, Key]:
    """The public keys of a JSON Web Key Set, by `kid`. Keys of other types are left out. Raises ValueError."""
    from joserfc.errors import JoseError
    from joserfc.jwk import import_key

    try:
        listed = json.loads(document)["keys"]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise ValueError("this is no JSON Web Key Set") from None
    keys: dict[str, Key] = {}
    for entry in listed if isinstance(listed, list) else ():
        if not isinstance(entry, dict) or entry.get("kty") not in KEY_TYPES:
            continue
        if entry.get("use", "sig") != "sig":
            continue
        try:
            key: Any = import_key(entry)
            key.ensure_kid()
        except (JoseError, ValueError, TypeError) as error:
            log.warning("a key of the key set is left out: %s", error)
            continue
        keys[str(key.kid)] = key
    if not keys:
        raise ValueError("the key set has no RSA, EC or OKP key for signatures")
    return keys


async def fetch_keys(issuer: str) -> bytes:
    """The key set that the discovery document of the issuer names."""
    return await _get(endpoint(await discover(issuer), "jwks_uri"))


async def discover(issuer: str) -> dict[str, Any]:
    """The discovery document of the issuer. Raises ValueError, or an OSError if the issuer does not respond."""
    where = issuer.rstrip("/") + "/.well-known/openid-configuration"
    found = json.loads(await _get(where))
    if not isinstance(found, dict) or found.get("issuer") != issuer:
        named = found.get("issuer") if isinstance(found, dict) else found
        raise ValueError(f"{where} is of the issuer {str(named)[:200]!r}")
    return found


def endpoint(document: Mapping[str, Any], name: str) -> str:
    """A URL of a discovery document. Raises ValueError if it is missing, or could send secrets without TLS: http is for
    loopback only, and for an issuer that is itself on loopback.
    """
    url = document.get(name)
    if not isinstance(url, str) or not _is_secure(url):
        raise ValueError(f"the discovery document has no {name} with https")
    if url.startswith("http:") and not str(document["issuer"]).startswith("http:"):
        raise ValueError(f"the {name} of the discovery document is a loopback address")
    return url


async def _get(url: str) -> bytes:
    status, body = await request(url)
    if status != 200:
        raise ValueError(f"{url} returned {status}")
    return body


async def request(
    url: str, form: Mapping[str, str] | None = None, headers: Mapping[str, str] | None = None
) -> tuple[int, bytes]:
    """Send a GET, or a POST with a form, to the issuer. Return the status and the body. Follows no redirect. Raises OSError
    if there is no response, and ValueError if the body is too large.
    """
    # In a task: aiohttp needs one for its timeout, and bide's server runs most requests without one.
    return await asyncio.get_running_loop().create_task(_send(url, form, headers))


async def _send(
    url: str, form: Mapping[str, str] | None, headers: Mapping[str, str] | None
) -> tuple[int, bytes]:
    import aiohttp

    timeout = aiohttp.ClientTimeout(total=FETCH_TIMEOUT)
    method = "GET" if form is None else "POST"
    chunks, size = [], 0
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.request(method, url, data=form, headers=headers, allow_redirects=False) as response,
        ):
            async for chunk in response.content.iter_any():
                chunks.append(chunk)
                size += len(chunk)
                if size > MAX_DOCUMENT:
                    raise ValueError(f"{url} returned more than {MAX_DOCUMENT} bytes")
            return response.status, b"".join(chunks)
    except aiohttp.ClientError as error:
        raise ConnectionError(f"{url}: {error or type(error).__name__}") from None
    except TimeoutError:
        raise TimeoutError(f"{url} did not respond within {FETCH_TIMEOUT:g} s") from None
