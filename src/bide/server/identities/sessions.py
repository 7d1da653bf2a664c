"""Sessions: a browser in which a user has signed in, with an API key or at an OpenID Connect issuer, sends a cookie.

1. The text of a session has 256 random bits. Only its SHA-256 is stored, as the name of a record.
2. The session of a key has its tenant and scopes. It ends with the key, and with the secret that it was opened with.
3. The session of a user of an issuer has the tenant and the scopes of the id token. It ends with another issuer.
4. A page of another site can make a browser send the cookie, but cannot read the CSRF token, which is made from the text.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace

import msgspec

from bide.core.errors import Forbidden, Unauthenticated, Unavailable
from bide.server.identities import Principal
from bide.server.identities.authenticator import mark_changed
from bide.server.identities.keys import KeyCredentials, is_secret, new_secret
from bide.server.store import RecordAccess, RecordFilter, RecordStore, StoreUnavailable

LIFETIME = 7 * 86400.0  # seconds, with a key
# With an issuer: the service does not notice that the issuer has locked a user, or changed the claims.
USER_LIFETIME = 12 * 3600.0
MAX_SESSIONS = 100  # per key or user; a new one ends the oldest
MAX_LOOKUPS = 100  # requests that wait for the store because of an unknown cookie
# A header cannot contain a line break, so no Authorization header has the token of a session.
_PREFIX = "session\n"
USER = "oidc:"  # the begin of the subject of a user; the id of a key has no colon


class Session(msgspec.Struct, frozen=True, omit_defaults=True):
    """A session as it is stored."""

    key_id: str  # of the API key; `oidc:SUB` of a user of an issuer
    proof: str  # the SHA-256 of the key's secret; the issuer of the user
    created_at: float
    expires_at: float
    # Of a user.
    tenant: str = ""
    scopes: tuple[str, ...] = ()

    @property
    def is_of_user(self) -> bool:
        return self.key_id.startswith(USER)


_read_session = msgspec.json.Decoder(Session).decode


def session_token(text: str) -> str:
    """The token for `Authenticator.verify`."""
    return _PREFIX + text


def csrf_token(text: str) -> str:
    return hmac.new(text.encode(), b"csrf", hashlib.sha256).hexdigest()


class SessionCredentials:
    """The sessions in a store, as a credential of requests (`CredentialType`). `on_change` is called when some end.
    `lifetime`: seconds; None: the defaults. `issuer`: whose users may have sessions.
    """

    def __init__(
        self,
        store: RecordStore,
        keys: KeyCredentials,
        lifetime: float | None = None,
        issuer: str | None = None,
    ) -> None:
        self._store = store
        self._keys = keys
        self._lifetime = lifetime
        self._issuer = issuer
        self._sessions: dict[str, Session] = {}  # by the hashes of their texts
        self._loads = 0
        self._lookups = asyncio.Lock()
        self._waiting = 0
        self.on_change: Callable[[], Awaitable[None]] | None = None

    # --- signing in and out

    async def open(self, key: str) -> tuple[str, Principal]:
        """Begin a session of an API key. Return its text, which is not stored. Raises Unauthenticated."""
        owner = await self._keys.verify(key)
        if owner is None:
            raise Unauthenticated("this is no API key: keys begin with `bide_`")
        now = self._store.now()
        end = min(now + (self._lifetime or LIFETIME), owner.expires_at)
        return await self._begin(Session(_key_id(owner), owner.proof, now, end))

    async def open_for(self, user: Principal) -> tuple[str, Principal]:
        """Begin a session of a user whom the issuer has signed in. Return its text, which is not stored."""
        assert self._issuer is not None and user.subject.startswith(USER)
        now = self._store.now()
        end = now + (self._lifetime or USER_LIFETIME)
        scopes = tuple(sorted(user.scopes))
        return await self._begin(Session(user.subject, self._issuer, now, end, user.tenant, scopes))

    async def _begin(self, session: Session) -> tuple[str, Principal]:
        text, now = new_secret(), self._store.now()
        digest = _hash(text)
        ended = [name for name, other in self._sessions.items() if other.expires_at <= now]
        ended += self._of(session.key_id)[: -MAX_SESSIONS + 1]

        def change(tx: RecordAccess) -> None:
            for name in ended:
                tx.put_text("sessions", name, None)
            tx.put_text("sessions", digest, msgspec.json.encode(session).decode())
            if ended:
                mark_changed(tx)

        await self._store.change_records(change)
        self._sessions[digest] = session
        if ended:
            await self._refresh()
        return text, self._principal(digest, session)

    async def close(self, principal: Principal, *, everywhere: bool = False) -> None:
        """End the session of this principal, if it is one; or all sessions of its key or user."""
        ended = [principal.proof] if principal.credential is self else []
        if everywhere:
            await self.load()  # sessions that other replicas have begun
            ended = self._of(_key_id(principal))

        def change(tx: RecordAccess) -> None:
            for name in ended:
                tx.put_text("sessions", name, None)
            mark_changed(tx)

        if ended:
            await self._store.change_records(change)
            await self._refresh()

    def _of(self, key_id: str) -> list[str]:
        """The sessions of a key or user, the oldest first."""
        found = [name for name, session in self._sessions.items() if session.key_id == key_id]
        return sorted(found, key=lambda name: self._sessions[name].created_at)

    async def _refresh(self) -> None:
        if self.on_change is not None:
            with contextlib.suppress(StoreUnavailable):  # the change is stored, and will be read later
                await self.on_change()

    # --- requests

    async def load(self) -> None:
        self._loads += 1
        self._sessions = await self._read()

    async def _read(self, names: Iterable[str] = ()) -> dict[str, Session]:
        filter = RecordFilter(tenant="-", names=tuple(names))
        texts = await self._store.records("sessions", filter)
        return {name: _read_session(text) for name, text in texts.items()}

    async def verify(self, token: str) -> Principal | None:
        if not token.startswith(_PREFIX):
            return None
        text = token.removeprefix(_PREFIX)
        if not is_secret(text):
            raise _ended()
        digest = _hash(text)
        session = self._sessions.get(digest)
        while session is None:  # another replica may have begun it
            loads = self._loads
            found = await self._look_up(digest)
            if loads == self._loads:  # otherwise it may have ended meanwhile
                session = self._sessions[digest] = found
        return self._principal(digest, session)

    async def _look_up(self, digest: str) -> Session:
        """Read a session from the store. Guessed cookies come here, so it reads one at a time, and few wait for it."""
        if self._waiting >= MAX_LOOKUPS:
            raise Unavailable("too many requests have an unknown session; try again")
        self._waiting += 1
        try:
            async with self._lookups:
                found = (await self._read([digest])).get(digest)
        finally:
            self._waiting -= 1
        if found is None:
            raise _ended()
        return found

    def _principal(self, digest: str, session: Session) -> Principal:
        if session.expires_at <= self._store.now():
            raise _ended()
        if session.is_of_user:
            if session.proof != self._issuer:
                raise _ended()
            scopes = frozenset(session.scopes)
            return Principal(
                session.tenant, scopes, session.key_id, session.expires_at, self, proof=digest
            )
        owner = self._keys.find(session.key_id, session.proof)
        end = min(owner.expires_at, session.expires_at)
        return replace(owner, expires_at=end, credential=self, proof=digest)

    def owner(self, principal: Principal) -> Principal:
        """The principal of the key with which a session was opened. Raises Unauthenticated, or Forbidden without a key."""
        session = self._sessions.get(principal.proof)
        if session is None:
            raise _ended()
        if session.is_of_user:
            raise Forbidden("a session of a user has no API key, which browser tokens need")
        return self._keys.find(session.key_id, session.proof)

    def is_valid(self, principal: Principal) -> bool:
        session = self._sessions.get(principal.proof)
        if session is not None and session.is_of_user:
            return session.proof == self._issuer
        return session is not None and self._keys.knows(session.key_id, session.proof)

    def use(self, principal: Principal) -> None:
        if not principal.subject.startswith(USER):
            self._keys.use(principal)

    async def save(self) -> None: ...


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _key_id(principal: Principal) -> str:
    return principal.subject.removeprefix("key:")


def _ended() -> Unauthenticated:
    return Unauthenticated("the session has ended: sign in again")
