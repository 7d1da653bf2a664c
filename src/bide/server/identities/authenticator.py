"""Finds the principal of a bearer token, and ends the open streams of principals that are no longer valid.

1. A header that was verified before costs one look-up in a dict. Those that fail are not cached.
2. Each replica reads a record of the store (`mark_changed`) every REFRESH seconds, and reads the identities again when it
   differs. So a revoked credential works nowhere after about REFRESH seconds, and its open streams end.
3. If the store cannot be read for STALE seconds, the service does not know what was revoked, and answers 503.
"""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from bide.core.errors import Unauthenticated, Unavailable
from bide.server.identities import CredentialType, Principal
from bide.server.store import RecordAccess, RecordFilter, RecordStore, StoreUnavailable

log = logging.getLogger("bide.identities")
REFRESH = 1.0  # seconds
STALE = 4.0  # seconds
MAX_KNOWN = 10_000  # verified tokens
# Characters of a text beside its token. A caller could fill the memory with one token and many spaces.
MAX_PREFIX = len("Bearer ")
_VERSION = "version"  # the name of the record that changes with every change of identities


def mark_changed(tx: RecordAccess) -> None:
    """Make all replicas read the identities again. Call it in the transaction that changes them."""
    tx.put_text("identities", _VERSION, secrets.token_hex(8))


class Authenticator:
    """The identities of one service. The first type that recognises a token decides about it."""

    def __init__(self, store: RecordStore, types: Sequence[CredentialType]) -> None:
        self._store = store
        self._types = types
        self._version: str | None = None
        # By what a request contains, such as its Authorization header: a secret, so nothing may print it.
        self._known: dict[str, Principal] = {}
        self._watched: dict[Principal, set[Callable[[], object]]] = {}  # what ends the open streams
        self._read_at = -math.inf  # monotonic
        self._stale = True  # until `refresh` has succeeded
        self._refreshing = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self.refresh()
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    # --- requests

    def known(self, text: str) -> Principal | None:
        """The principal that `verify` has found for this text; None if it must be verified."""
        principal = self._known.get(text)
        if principal is None or self._stale:
            return None
        if self._has_expired(principal):
            del self._known[text]
            return None
        if principal.credential is not None:
            principal.credential.use(principal)
        return principal

    async def verify(self, token: str, text: str | None = None) -> Principal:
        """Return the principal of a token, and keep it for `known(text)`; None: for the token itself. A text that is much
        longer than the token is not kept. Raises Unauthenticated, or Unavailable while the identities cannot be read.
        """
        if self._stale:
            raise Unavailable("the store cannot be read, so the service cannot check credentials")
        for of in self._types:
            principal = await of.verify(token)
            if principal is not None:
                break
        else:
            raise Unauthenticated("the bearer token is of no type that this service accepts")
        if not of.is_valid(principal):  # revoked while it was verified
            raise Unauthenticated("the credential was revoked")
        if text is None or len(text) <= len(token) + MAX_PREFIX:
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            self._known[token if text is None else text] = principal
        of.use(principal)
        return principal

    def is_valid(self, principal: Principal) -> bool:
        credential = principal.credential
        return credential is None or (
            not self._has_expired(principal) and credential.is_valid(principal)
        )

    def _has_expired(self, principal: Principal) -> bool:
        return principal.expires_at != math.inf and principal.expires_at <= self._store.now()

    def forget(self) -> None:
        """Verify each credential again, because some may no longer be valid."""
        self._known.clear()

    # --- open streams

    @contextmanager
    def watching(self, principal: Principal, end: Callable[[], object]) -> Iterator[None]:
        """Call `end` when the principal is no longer valid. It may be called more than once."""
        if principal.credential is None:
            yield
            return
        ends = self._watched.setdefault(principal, set())
        ends.add(end)
        try:
            yield
        finally:
            ends.discard(end)
            if not ends:
                self._watched.pop(principal, None)

    # --- changes

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(REFRESH)
            try:
                await self.refresh()
                for of in self._types:
                    await of.save()
            except Exception as error:
                if not isinstance(error, StoreUnavailable):
                    log.exception("the identities were not read; the service tries again")
                if not self._stale and time.monotonic() - self._read_at > STALE:
                    self._stale = True
                    log.error("requests get 503, because credentials cannot be checked: %s", error)

    async def refresh(self) -> None:
        """Read the identities if they have changed, and end the streams of those that are no longer valid."""
        async with self._refreshing:
            begin = time.monotonic()
            filter = RecordFilter(tenant="-", prefix=_VERSION, limit=1)
            version = (await self._store.records("identities", filter)).get(_VERSION, "")
            if version != self._version:
                for of in self._types:
                    await of.load()
                self._version = version
                self._known.clear()
            self._read_at, self._stale = begin, False
        for principal, ends in list(self._watched.items()):
            if not self.is_valid(principal):
                for end in list(ends):
                    end()
