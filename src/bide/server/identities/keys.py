"""API keys: `bide_{id}_{secret}`, with a tenant, scopes and an expiry.

1. Only the SHA-256 of a secret is stored. The secret has 256 random bits, so a plain hash is enough.
2. A rotation adds a secret. The previous one stays valid for a time that the caller chooses.
3. Keys belong to the service, not to a tenant: an admin manages those of all tenants.
4. Each change also changes the record that replicas watch (`authenticator`), in the same transaction.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import math
import re
import secrets
import string
from collections.abc import Awaitable, Callable, Collection
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from bide.core.errors import Conflict, NotFound, Unauthenticated
from bide.server.identities import Principal, Scope
from bide.server.identities.authenticator import mark_changed
from bide.server.store import RecordAccess, RecordFilter, RecordStore, StoreUnavailable

T = TypeVar("T")
OVERLAP = 86400.0  # seconds for which the previous secret stays valid, by default
MAX_OVERLAP = 90 * 86400.0
MAX_SECRETS = 5  # that are valid at the same time
MAX_KEYS = 100_000
USE_INTERVAL = 60.0  # seconds between two writes of when keys were used
_LETTERS = string.digits + string.ascii_letters
_SECRET_LENGTH = 43  # 62 ** 43 > 2 ** 256
_ID_LETTERS = string.digits + string.ascii_lowercase
_ID_LENGTH = 12
ID_PATTERN = f"[0-9a-z]{{{_ID_LENGTH}}}"
_ID = re.compile(ID_PATTERN)
_SECRET = re.compile(f"[0-9A-Za-z]{{{_SECRET_LENGTH}}}")
_KEY = re.compile(f"bide_({ID_PATTERN})_({_SECRET.pattern})")
_NO_HASH = hashlib.sha256(b"").hexdigest()


class SecretHash(msgspec.Struct, frozen=True, omit_defaults=True):
    sha256: str
    until: float | None = None  # None: it is the current one


class ApiKey(msgspec.Struct, frozen=True, omit_defaults=True):
    """A key as it is stored."""

    id: str
    tenant: str
    scopes: tuple[Scope, ...]
    name: str
    created_at: float
    hashes: tuple[SecretHash, ...]  # the newest first
    expires_at: float | None = None
    rotated_at: float | None = None


_read_key = msgspec.json.Decoder(ApiKey).decode


def new_secret() -> str:
    number, letters = secrets.randbits(256), []
    for _ in range(_SECRET_LENGTH):
        number, digit = divmod(number, len(_LETTERS))
        letters.append(_LETTERS[digit])
    return "".join(letters)


def is_secret(text: str) -> bool:
    """Whether the text has the form of a secret."""
    return _SECRET.fullmatch(text) is not None


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _written(key: ApiKey, secret: str) -> str:
    return f"bide_{key.id}_{secret}"


def _valid(hashes: tuple[SecretHash, ...], now: float) -> tuple[SecretHash, ...]:
    return tuple(known for known in hashes if known.until is None or known.until > now)


class ApiKeys:
    """The keys in a store. `on_change` is called after each change."""

    def __init__(
        self, store: RecordStore, on_change: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        self._store = store
        self._on_change = on_change

    async def create(
        self,
        *,
        tenant: str,
        scopes: Collection[Scope],
        name: str = "",
        expires_at: float | None = None,
    ) -> tuple[ApiKey, str]:
        """Store a new key. Return it, and the text that the caller sends, which is not stored."""
        if len(await self._texts()) >= MAX_KEYS:
            raise Conflict(f"there are {MAX_KEYS} keys, which is the limit; revoke one first")
        secret = new_secret()
        key = ApiKey(
            id="".join(secrets.choice(_ID_LETTERS) for _ in range(_ID_LENGTH)),
            tenant=tenant,
            scopes=tuple(sorted(set(scopes))),
            name=name,
            created_at=self._store.now(),
            hashes=(SecretHash(_hash(secret)),),
            expires_at=expires_at,
        )
        await self._change(lambda tx: _put(tx, key))
        return key, _written(key, secret)

    async def find_all(self) -> list[tuple[ApiKey, float | None]]:
        """All keys, the oldest first, and when each was last used."""
        uses = await self._store.records("api_key_uses", RecordFilter(tenant="-"))
        keys = sorted(map(_read_key, (await self._texts()).values()), key=lambda key: key.created_at)
        return [(key, float(uses[key.id]) if key.id in uses else None) for key in keys]

    async def rotate(self, key_id: str, overlap: float = OVERLAP) -> tuple[ApiKey, str]:
        """Add a secret. The previous ones stay valid for `overlap` seconds, and no longer than before."""
        _check_id(key_id)
        secret = new_secret()

        def change(tx: RecordAccess) -> ApiKey | None:
            stored = tx.text("api_keys", key_id)
            if stored is None:
                return None
            key = _read_key(stored)
            until = tx.now + overlap
            previous = [
                SecretHash(known.sha256, until if known.until is None else min(until, known.until))
                for known in key.hashes
            ]
            hashes = (SecretHash(_hash(secret)), *_valid(tuple(previous), tx.now))[:MAX_SECRETS]
            after = replace(key, hashes=hashes, rotated_at=tx.now)
            _put(tx, after)
            return after

        after = await self._change(change)
        if after is None:
            raise _unknown(key_id)
        return after, _written(after, secret)

    async def revoke(self, key_id: str) -> ApiKey:
        _check_id(key_id)

        def change(tx: RecordAccess) -> ApiKey | None:
            stored = tx.text("api_keys", key_id)
            if stored is None:
                return None
            tx.put_text("api_keys", key_id, None)
            tx.put_text("api_key_uses", key_id, None)
            mark_changed(tx)
            return _read_key(stored)

        revoked = await self._change(change)
        if revoked is None:
            raise _unknown(key_id)
        return revoked

    async def _texts(self) -> dict[str, str]:
        return await self._store.records("api_keys", RecordFilter(tenant="-"))

    async def _change(self, change: Callable[[RecordAccess], T]) -> T:
        done = await self._store.change_records(change)
        if self._on_change is not None:
            with contextlib.suppress(StoreUnavailable):  # the change is stored, and will be read later
                await self._on_change()
        return done


def _put(tx: RecordAccess, key: ApiKey) -> None:
    tx.put_text("api_keys", key.id, msgspec.json.encode(key).decode())
    mark_changed(tx)


def _check_id(key_id: str) -> None:
    if not _ID.fullmatch(key_id):
        raise _unknown(key_id)


def _unknown(key_id: str) -> NotFound:
    return NotFound(f"there is no key {key_id[:100]!r}")


class KeyCredentials:
    """API keys as a credential of requests (`CredentialType`). All keys are in memory."""

    def __init__(self, store: RecordStore) -> None:
        self._store = store
        self._keys: dict[str, ApiKey] = {}
        self._used: set[str] = set()
        self._written_at = -math.inf

    async def load(self) -> None:
        texts = await self._store.records("api_keys", RecordFilter(tenant="-"))
        self._keys = {name: _read_key(text) for name, text in texts.items()}

    async def verify(self, token: str) -> Principal | None:
        if not token.startswith("bide_"):
            return None
        match = _KEY.fullmatch(token)
        return self.find(*(("", _NO_HASH) if match is None else (match[1], _hash(match[2]))))

    def find(self, key_id: str, sha256: str) -> Principal:
        """The principal of a key, by the hash of one of its secrets. Raises Unauthenticated."""
        key = self._keys.get(key_id)
        now = self._store.now()
        # An unknown id takes as long as a wrong secret.
        hashes = (SecretHash(_NO_HASH),) if key is None else _valid(key.hashes, now)
        found = [known for known in hashes if hmac.compare_digest(known.sha256, sha256)]
        if key is None or not found:
            raise Unauthenticated("the API key is unknown, or it was revoked or replaced")
        if key.expires_at is not None and key.expires_at <= now:
            raise Unauthenticated(f"API key {key.id} has expired")
        ends = [end for end in (key.expires_at, found[0].until) if end is not None]
        return Principal(
            key.tenant,
            frozenset(key.scopes),
            f"key:{key.id}",
            min(ends, default=math.inf),
            self,
            proof=sha256,
        )

    def is_valid(self, principal: Principal) -> bool:
        return self.knows(principal.subject.removeprefix("key:"), principal.proof)

    def proofs(self, key_id: str) -> list[str]:
        """The hashes of the secrets of a key; of none if there is no such key."""
        key = self._keys.get(key_id)
        return [] if key is None else [known.sha256 for known in key.hashes]

    def knows(self, key_id: str, sha256: str) -> bool:
        """Whether a key exists and has the secret with this hash, which a rotation may have replaced."""
        key = self._keys.get(key_id)
        return key is not None and any(
            known.sha256 == sha256 for known in _valid(key.hashes, self._store.now())
        )

    def use(self, principal: Principal) -> None:
        self._used.add(principal.subject)

    async def save(self) -> None:
        """Store when keys were used, at most once per USE_INTERVAL."""
        now = self._store.now()
        if not self._used or now - self._written_at < USE_INTERVAL:
            return
        used, self._used, self._written_at = self._used, set(), now
        ids = [subject.removeprefix("key:") for subject in sorted(used)]

        def change(tx: RecordAccess) -> None:
            for key_id in ids:
                if tx.text("api_keys", key_id) is not None:
                    tx.put_text("api_key_uses", key_id, f"{now:.3f}")

        await self._store.change_records(change)
