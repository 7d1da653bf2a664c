"""Signing in at an OpenID Connect issuer: the authorization code flow with PKCE, state and nonce.

1. State, nonce and code verifier are made from one random text, which only the browser has, in a cookie. So an answer of the
   issuer counts in the browser that began the sign-in, on every replica, and the service stores nothing.
2. The service accepts the issuer's answer only together with this text, shows nothing of it before that, and sends the code
   to no other server than the token endpoint of the configured issuer.
3. The discovery document is read again after METADATA_AGE seconds, so that a user gets a page of the service, and not an
   error of the browser, if the issuer does not respond.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import logging
import math
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote_plus, urlencode

from bide.core.errors import ProviderUnavailable, SignInFailed, Unavailable
from bide.server.config import OidcConfig
from bide.server.identities import Principal
from bide.server.identities.oidc import OidcCredentials, Rejected, discover, endpoint, request

log = logging.getLogger("bide.identities")
METADATA_AGE = 10.0  # seconds
FAILURE_AGE = 2.0  # seconds for which the service does not ask an issuer again that did not respond
MAX_CALLS = 32  # to the token endpoint at a time
MAX_CODE = 4096  # characters
MAX_SHOWN = 300  # characters of the issuer's error


class OidcSignIn:
    """The sign-in of users at one issuer."""

    def __init__(self, config: OidcConfig, tokens: OidcCredentials) -> None:
        assert config.client_id is not None
        self._config = config
        self._client_id = config.client_id
        self._tokens = tokens
        self._calls = asyncio.Semaphore(MAX_CALLS)
        self._reading: asyncio.Task[None] | None = None
        self._document: dict[str, Any] = {}
        self._failure = ""
        self._read_at = -math.inf  # monotonic

    async def begin(self, text: str, redirect_uri: str) -> str:
        """Return the URL of the issuer to which the browser goes. `text` is random. Raises ProviderUnavailable."""
        where = await self._endpoint("authorization_endpoint")
        challenge = hashlib.sha256(_derive(text, "verifier").encode()).digest()
        query = {
            "response_type": "code",
            "client_id": self._client_id,
            "redirect_uri": redirect_uri,
            "scope": " ".join(self._config.request_scopes),
            "state": _derive(text, "state"),
            "nonce": _derive(text, "nonce"),
            "code_challenge": _encode(challenge),
            "code_challenge_method": "S256",
        }
        return f"{where}{'&' if '?' in where else '?'}{urlencode(query)}"

    async def finish(
        self, text: str | None, redirect_uri: str, answer: Mapping[str, str | None]
    ) -> Principal:
        """Return the user that the issuer has signed in. `text` is that of `begin`; None: the browser has none. `answer` is
        what the issuer has sent through the browser. Raises SignInFailed or ProviderUnavailable.
        """
        state = answer.get("state") or ""
        if text is None or not hmac.compare_digest(_derive(text, "state").encode(), state.encode()):
            raise SignInFailed(
                "This answer belongs to no sign-in that began in this browser within the last ten minutes."
            )
        sender = answer.get("iss")
        if sender != self._config.issuer and (
            sender is not None or await self._metadata("authorization_response_iss_parameter_supported")
        ):
            raise SignInFailed("The answer is from another issuer than that of this service.")
        if (error := answer.get("error")) is not None:
            raise SignInFailed(_describe("The issuer refused the sign-in", error, answer))
        code = answer.get("code")
        if not code or len(code) > MAX_CODE:
            raise SignInFailed("The answer of the issuer has no code.")
        token = await self._exchange(code, _derive(text, "verifier"), redirect_uri)
        try:
            user = await self._tokens.verify_id_token(token, _derive(text, "nonce"))
        except Rejected as error:
            log.warning("an id token of %s was rejected: %s", self._config.issuer, error)
            raise SignInFailed(f"The id token of the issuer is not valid: {error}.") from None
        except Unavailable as error:
            raise ProviderUnavailable(error.detail) from None
        if not user.allows("read"):
            raise SignInFailed(
                f"{user.subject} may not use this service: the claim {self._config.scope_claim!r} of the issuer does not "
                "contain `read`."
            )
        return user

    async def _exchange(self, code: str, verifier: str, redirect_uri: str) -> str:
        """Return the id token for a code."""
        where = await self._endpoint("token_endpoint")
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "code_verifier": verifier,
        }
        headers = {"Accept": "application/json"}
        methods = await self._metadata("token_endpoint_auth_methods_supported")
        secret = self._config.client_secret
        if secret is None:
            form["client_id"] = self._client_id
        elif isinstance(methods, list) and "client_secret_basic" not in methods:
            form |= {"client_id": self._client_id, "client_secret": secret}
        else:
            pair = f"{quote_plus(self._client_id)}:{quote_plus(secret)}".encode()
            headers["Authorization"] = f"Basic {base64.b64encode(pair).decode()}"
        try:
            async with self._calls:
                status, body = await request(where, form, headers)
        except (OSError, ValueError) as error:
            raise self._unavailable(error) from None
        if status >= 500:
            raise self._unavailable(f"{where} returned {status}")
        try:
            found = json.loads(body)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise SignInFailed(f"The token endpoint of the issuer returned {status}, without JSON.")
        if status != 200:
            why = found.get("error") or "no reason"
            raise SignInFailed(_describe(f"The issuer rejected the code ({status})", why, found))
        token = found.get("id_token")
        if not isinstance(token, str):
            raise SignInFailed("The issuer sent no id token.")
        return token

    # --- the discovery document

    async def _endpoint(self, name: str) -> str:
        await self._metadata(name)
        try:
            return endpoint(self._document, name)
        except ValueError as error:
            raise self._unavailable(error) from None

    async def _metadata(self, name: str) -> Any:
        age = FAILURE_AGE if self._failure else METADATA_AGE
        if time.monotonic() - self._read_at > age:
            if self._reading is None:
                self._reading = asyncio.ensure_future(self._read())
            await asyncio.shield(self._reading)
        if self._failure:
            raise self._unavailable()
        return self._document.get(name)

    async def _read(self) -> None:
        try:
            self._document = await discover(self._config.issuer)
            self._failure = ""
        except (OSError, ValueError) as error:
            self._failure = str(error) or type(error).__name__
            log.warning("users cannot sign in at %s: %s", self._config.issuer, self._failure)
        finally:
            self._read_at = time.monotonic()
            self._reading = None

    def _unavailable(self, error: object = None) -> ProviderUnavailable:
        if error is not None:
            log.warning("a sign-in at %s failed: %s", self._config.issuer, error)
        return ProviderUnavailable(f"The issuer {self._config.issuer} does not respond as it should.")


def _derive(text: str, purpose: str) -> str:
    """A value of one sign-in. None of them tells the text or another one."""
    return _encode(hmac.new(text.encode(), purpose.encode(), hashlib.sha256).digest())


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _describe(what: str, error: object, answer: Mapping[str, Any]) -> str:
    """An error of the issuer (RFC 6749, 4.1.2.1 and 5.2), as text."""
    more = answer.get("error_description")
    text = f"{what}: {error}" + (f", {more}" if isinstance(more, str) else "")
    shown = "".join(c if c.isprintable() else " " for c in text[:MAX_SHOWN])
    return shown if shown.endswith(".") else f"{shown}."
