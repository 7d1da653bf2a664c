"""The uploads of the SQLite store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from bide.server.store import (
    CompletedUploads,
    Missing,
    StoredUploads,
    UploadBytes,
    UploadInUse,
    UploadUpdate,
    upload_operations,
    upload_rows,
)
from bide.server.store.sqlite.transaction import UPLOAD, SqliteCache, SqliteTransaction
from bide.server.upload_record import Upload

T = TypeVar("T")
_EXPIRED = (
    f"SELECT {upload_rows.READ} FROM uploads WHERE expires_at <= ? AND NOT EXISTS "
    "(SELECT 1 FROM upload_uses u LEFT JOIN jobs j ON j.id = u.job_id WHERE u.upload_id = uploads.id "
    "AND (? IS NULL OR j.finished_at IS NULL OR j.finished_at > ?)) LIMIT ?"
)


class SqliteUploads:
    """The part of the store that implements `UploadRecords`."""

    _read: Callable[..., Any]
    _write: Callable[..., asyncio.Future[Any]]
    _missing: Callable[[str], Missing]
    _cache: SqliteCache

    def add_upload(self, upload: Upload) -> Awaitable[Upload]:
        return self._write(lambda tx: upload_operations.add(tx, upload))

    def receive(self, received: UploadUpdate) -> Awaitable[Upload | Missing]:
        return self._write(lambda tx: upload_operations.receive(tx, received))

    def finish(self, finished: CompletedUploads) -> Awaitable[StoredUploads | Missing]:
        return self._write(lambda tx: upload_operations.finish(tx, finished))

    def remove_upload(self, upload_id: str) -> Awaitable[Upload | UploadInUse | Missing]:
        return self._write(lambda tx: upload_operations.remove(tx, upload_id))

    def expire_uploads(
        self, limit: int = 500, inputs: float | None = None
    ) -> Awaitable[tuple[list[Upload], bool]]:
        def operation(tx: SqliteTransaction) -> tuple[list[Upload], bool]:
            return upload_operations.expire(
                tx, lambda *values: tx.execute(_EXPIRED, values), limit, inputs
            )

        return self._write(operation)

    async def upload(self, upload_id: str) -> Upload | Missing:
        known = self._cache.uploads.get(upload_id)
        if known is not None:
            return known
        row = self._read(UPLOAD, (upload_id,)).fetchone()
        return self._missing(upload_id) if row is None else upload_rows.upload_of(row)

    async def unfinished(self, replica: str, before: float, limit: int = 500) -> list[Upload]:
        rows = self._read(
            f"SELECT {upload_rows.READ} FROM uploads WHERE status = 'UPLOADING' AND replica = ? "
            "AND updated_at <= ? ORDER BY updated_at LIMIT ?",
            (replica, before, limit),
        )
        return [upload_rows.upload_of(row) for row in rows]

    async def upload_bytes(self) -> UploadBytes:
        return UploadBytes(*self._read(upload_rows.SUMS).fetchone())

    async def known_uploads(self, ids: Sequence[str]) -> set[str]:
        sql = "SELECT 1 FROM uploads WHERE id = ?"
        return {upload_id for upload_id in ids if self._read(sql, (upload_id,)).fetchone()}
