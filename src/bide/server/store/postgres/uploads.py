"""The upload records of the PostgreSQL store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

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
from bide.server.store.postgres.reads import NUL, ReadPool
from bide.server.store.postgres.transaction import PostgresTransaction
from bide.server.upload_record import Upload

_UNUSED = (
    "NOT EXISTS (SELECT 1 FROM upload_uses u LEFT JOIN jobs j ON j.id = u.job_id WHERE u.upload_id = uploads.id "
    "AND (%s::float8 IS NULL OR j.finished_at IS NULL OR j.finished_at > %s))"
)
_LOCK_EXPIRED = (
    f"SELECT id FROM uploads WHERE expires_at <= %s AND {_UNUSED} ORDER BY id LIMIT %s "
    "FOR NO KEY UPDATE SKIP LOCKED"
)
_EXPIRED = f"SELECT {upload_rows.READ} FROM uploads WHERE id = ANY(%s) AND {_UNUSED} ORDER BY id"


def _expired(
    tx: PostgresTransaction, now: float, ended: float | None, again: float | None, limit: int
) -> Sequence[tuple[Any, ...]]:
    """Lock expired uploads, and check again that no job uses them. Another process may have stored such a job between the
    start of the first statement and the lock; none can after the lock.
    """
    locked = [upload_id for (upload_id,) in tx.execute(_LOCK_EXPIRED, (now, ended, again, limit))]
    return tx.execute(_EXPIRED, (locked, ended, again)).fetchall() if locked else []


class PostgresUploads:
    """The part of the store that implements `UploadRecords`."""

    _reads: ReadPool
    _write: Callable[..., asyncio.Future[Any]]

    def add_upload(self, upload: Upload) -> Awaitable[Upload]:
        return self._write(lambda tx: upload_operations.add(tx, upload))

    def receive(self, received: UploadUpdate) -> Awaitable[Upload | Missing]:
        return self._write(lambda tx: upload_operations.receive(tx, received))

    def finish(self, finished: CompletedUploads) -> Awaitable[StoredUploads | Missing]:
        new = finished.new
        keys = [] if new is None or new.key is None else [(new.job.tenant, new.job.kind, new.key)]
        jobs = [u.job_id for u in finished.uploads if u.job_id is not None and finished.files]
        return self._write(lambda tx: upload_operations.finish(tx, finished), jobs=jobs, keys=keys)

    def remove_upload(self, upload_id: str) -> Awaitable[Upload | UploadInUse | Missing]:
        return self._write(lambda tx: upload_operations.remove(tx, upload_id))

    def expire_uploads(
        self, limit: int = 500, inputs: float | None = None
    ) -> Awaitable[tuple[list[Upload], bool]]:
        def operation(tx: PostgresTransaction) -> tuple[list[Upload], bool]:
            return upload_operations.expire(tx, partial(_expired, tx), limit, inputs)

        return self._write(operation)

    async def upload(self, upload_id: str) -> Upload | Missing:
        if NUL in upload_id:
            return Missing()
        rows = await self._reads.rows(
            f"SELECT {upload_rows.READ} FROM uploads WHERE id = %s", (upload_id,)
        )
        if rows:
            return upload_rows.upload_of(rows[0])
        gone = await self._reads.rows("SELECT 1 FROM tombstones WHERE id = %s", (upload_id,))
        return Missing(gone=bool(gone))

    async def unfinished(self, replica: str, before: float, limit: int = 500) -> list[Upload]:
        rows = await self._reads.list_rows(
            f"SELECT {upload_rows.READ} FROM uploads WHERE status = 'UPLOADING' AND replica = %s "
            "AND updated_at <= %s ORDER BY updated_at LIMIT %s",
            (replica, before, limit),
        )
        return [upload_rows.upload_of(row) for row in rows]

    async def upload_bytes(self) -> UploadBytes:
        (sums,) = await self._reads.list_rows(upload_rows.SUMS)
        return UploadBytes(*map(int, sums))

    async def known_uploads(self, ids: Sequence[str]) -> set[str]:
        rows = await self._reads.list_rows("SELECT id FROM uploads WHERE id = ANY(%s)", (list(ids),))
        return {upload_id for (upload_id,) in rows}
