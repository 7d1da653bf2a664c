"""Browser tokens: `bidet_{claims}.{signature}`, for some jobs and some minutes. A backend makes them for its pages.

1. A token is signed and not stored. The key of the signature is a secret of the service, which is a record, together with
   the hash of the API key's secret. So a token ends with the API key, and with its secret.
2. A token has a part of the scopes of its key, never `admin`, and is restricted to jobs: by their ids, or by labels.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Collection, Mapping
from dataclasses import replace

import msgspec

from bide.core.errors import Forbidden, Unauthenticated
from bide.server.identities import Principal, Scope
from bide.server.identities.authenticator import mark_changed
from bide.server.identities.keys import KeyCredentials, new_secret
from bide.server.identities.sessions import SessionCredentials
from bide.server.store import RecordAccess, RecordFilter, RecordStore

PREFIX = "bidet_"
MAX_TTL = 3600.0  # seconds
MAX_LENGTH = 8192  # characters
_SECRET = "token_secret"  # the name of a record


class TokenClaims(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    key: str
    scopes: tuple[Scope, ...]
    end: float
    jobs: tuple[str, ...] | None = None
    labels: dict[str, str] | None = None


_read_claims = msgspec.json.Decoder(TokenClaims).decode


def cached_text(token: str) -> str:
    """The text for `Authenticator.known`. No header has a line break, so a look-up by the header alone, which does not check
    the restriction to jobs, never finds the token.
    """
    return f"token\n{token}"


class TokenCredentials:
    """Browser tokens as a credential of requests (`CredentialType`)."""

    def __init__(self, store: RecordStore, keys: KeyCredentials, sessions: SessionCredentials) -> None:
        self._store = store
        self._keys = keys
        self._sessions = sessions
        self._secret: str | None = None

    async def create(
        self,
        caller: Principal,
        *,
        scopes: Collection[Scope],
        ttl: float,
        jobs: Collection[str] | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> tuple[str, float]:
        """Return a token and when it expires. Raises Forbidden."""
        owner = self._owner(caller)
        if missing := set(scopes) - (owner.scopes - {"admin"}):
            raise Forbidden(f"the key cannot give the scope {', '.join(sorted(missing))} to a token")
        secret = self._secret or await self._create_secret()
        end = min(self._store.now() + ttl, caller.expires_at)
        claims = TokenClaims(
            owner.subject.removeprefix("key:"),
            tuple(sorted(set(scopes))),
            end,
            None if jobs is None else tuple(jobs),
            None if labels is None else dict(labels),
        )
        body = urlsafe_b64encode(msgspec.json.encode(claims)).rstrip(b"=").decode()
        return f"{PREFIX}{body}.{_sign(secret, owner.proof, body)}", end

    def _owner(self, caller: Principal) -> Principal:
        """The principal of the API key, whose hash is its proof."""
        if caller.credential is self._keys:
            return caller
        if caller.credential is self._sessions:
            return self._sessions.owner(caller)
        raise Forbidden("only an API key, or a session that was opened with one, makes tokens")

    async def _create_secret(self) -> str:
        """The secret of all replicas; the first one that needs it creates it."""
        new = new_secret()

        def change(tx: RecordAccess) -> str:
            known = tx.text("identities", _SECRET)
            if known is None:
                tx.put_text("identities", _SECRET, new)
                mark_changed(tx)
            return known or new

        self._secret = await self._store.change_records(change)
        return self._secret

    async def load(self) -> None:
        found = await self._store.records("identities", RecordFilter(tenant="-", names=(_SECRET,)))
        self._secret = found.get(_SECRET)

    async def verify(self, token: str) -> Principal | None:
        if not token.startswith(PREFIX):
            return None
        body, _, signature = token.removeprefix(PREFIX).partition(".")
        if len(token) > MAX_LENGTH or not token.isascii():
            raise _invalid()
        if self._secret is None:
            await self.load()  # another replica may have just created it
        try:
            claims = _read_claims(urlsafe_b64decode(body + "=" * (-len(body) % 4)))
        except (ValueError, msgspec.MsgspecError):
            raise _invalid() from None
        for proof in self._keys.proofs(claims.key):
            if self._secret and hmac.compare_digest(_sign(self._secret, proof, body), signature):
                break
        else:
            raise _invalid()
        if claims.end <= self._store.now():
            raise Unauthenticated("the token has expired")
        owner = self._keys.find(claims.key, proof)
        return replace(
            owner,
            scopes=owner.scopes & set(claims.scopes),
            expires_at=min(owner.expires_at, claims.end),
            credential=self,
            jobs=None if claims.jobs is None else frozenset(claims.jobs),
            labels=None if claims.labels is None else frozenset(claims.labels.items()),
        )

    def is_valid(self, principal: Principal) -> bool:
        return self._keys.is_valid(principal)

    def use(self, principal: Principal) -> None:
        self._keys.use(principal)

    async def save(self) -> None: ...


def _sign(secret: str, proof: str, body: str) -> str:
    digest = hmac.new(f"{secret} {proof}".encode(), body.encode(), hashlib.sha256).digest()
    return urlsafe_b64encode(digest).rstrip(b"=").decode()


def _invalid() -> Unauthenticated:
    return Unauthenticated("the token is invalid, or its key was revoked or replaced")
