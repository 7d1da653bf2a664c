"""Changes of API keys by a command that opens the store itself, with entries in the audit log."""

from __future__ import annotations

import getpass
import secrets
from typing import Any

from bide.server.identities import DEFAULT_TENANT
from bide.server.identities.audit import AuditEntry, AuditLog
from bide.server.identities.keys import OVERLAP, ApiKey, ApiKeys
from bide.server.store import RecordStore


class RecordedKeys(ApiKeys):
    """The caller writes `audit`. The subject of an entry is the user of the system: `cli:NAME`."""

    def __init__(self, store: RecordStore, audit: AuditLog) -> None:
        super().__init__(store)
        self._audit = audit

    async def create(self, **fields: Any) -> tuple[ApiKey, str]:
        key, text = await super().create(**fields)
        self._record("createKey", "POST", "/keys", 201, f"/keys/{key.id}")
        return key, text

    async def rotate(self, key_id: str, overlap: float = OVERLAP) -> tuple[ApiKey, str]:
        rotated = await super().rotate(key_id, overlap)
        self._record("rotateKey", "POST", f"/keys/{key_id}/rotate", 200)
        return rotated

    async def revoke(self, key_id: str) -> ApiKey:
        key = await super().revoke(key_id)
        self._record("revokeKey", "DELETE", f"/keys/{key_id}", 204)
        return key

    def _record(self, operation: str, method: str, path: str, status: int, made: str = "") -> None:
        at, who = round(self._store.now(), 3), f"cli:{_user()}"
        entry = AuditEntry(
            at, who, DEFAULT_TENANT, operation, method, path, made, "", status, secrets.token_hex(16)
        )
        self._audit.add(entry)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):  # a user without a name, as in a container
        return "-"
