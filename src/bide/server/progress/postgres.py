"""A progress store in an unlogged table of the job store's database, for services without Redis.

1. It has one connection and reconnects when that breaks; a lock serialises `put` and `get`.
2. A row holds a job's newest attempt: an older attempt neither replaces it nor is found.
3. Every SWEEP seconds a `put` removes the rows that were not put again for LIFE seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import psycopg

from bide.core.jobs.record import Progress
from bide.server.progress import LIFE, AttemptKey, LiveProgress
from bide.server.store.postgres.server import PostgresServer

SWEEP = 20.0  # seconds between two removals
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Progress).decode
_PUT = b"""INSERT INTO progress (job_id, fence, number, at, progress, kept)
SELECT *, extract(epoch FROM clock_timestamp()) FROM unnest(%s::text[], %s::bigint[], %s::bigint[], %s::float8[], %s::text[])
ON CONFLICT (job_id) DO UPDATE SET fence = excluded.fence, number = excluded.number, at = excluded.at,
progress = excluded.progress, kept = excluded.kept
WHERE (progress.fence, progress.number) <= (excluded.fence, excluded.number)"""
_GET = b"SELECT job_id, fence, number, progress, at FROM progress WHERE job_id = ANY(%s)"
_SWEEP = b"DELETE FROM progress WHERE kept < extract(epoch FROM clock_timestamp()) - %s"


class PostgresProgressStore:
    """`ProgressStore` in PostgreSQL. The job store must be open, because it migrates the schema."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._connection: psycopg.AsyncConnection[tuple[Any, ...]] | None = None
        self._lock = asyncio.Lock()
        self._swept = -math.inf

    async def put(self, batch: Mapping[AttemptKey, LiveProgress]) -> None:
        rows = [
            (job_id, fence, live.number, live.at, _encode(live.progress).decode())
            for (job_id, fence), live in sorted(batch.items(), key=lambda item: item[0])
        ]
        newest = {row[0]: row for row in rows}  # the last row of a job has its highest fence
        await self._execute(_PUT, [list(column) for column in zip(*newest.values(), strict=True)])
        if time.monotonic() - self._swept > SWEEP:
            self._swept = time.monotonic()
            await self._execute(_SWEEP, [LIFE])

    async def get(self, attempts: Sequence[AttemptKey]) -> dict[AttemptKey, LiveProgress]:
        rows = await self._execute(_GET, [[job_id for job_id, _ in attempts]])
        wanted = set(attempts)
        return {
            (job_id, fence): LiveProgress(number, _decode(progress), at)
            for job_id, fence, number, progress, at in rows
            if (job_id, fence) in wanted
        }

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()
            self._connection = None

    async def _execute(self, sql: bytes, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        async with self._lock:
            try:
                if self._connection is None or self._connection.closed:
                    self._connection = await self._server.connect_async()
                done = await self._connection.execute(sql, values)
                return await done.fetchall() if done.description is not None else []
            except BaseException:  # perhaps in the middle of a response, so the connection is unusable
                with contextlib.suppress(psycopg.Error):
                    await self.close()
                raise
