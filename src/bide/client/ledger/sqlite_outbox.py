"""The outbox in the ledger's file."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from bide.client.ledger import bare
from bide.client.ledger.outbox import Item, Parcel

Do = Callable[[Callable[[sqlite3.Connection], Any]], Awaitable[Any]]
_items = msgspec.json.Decoder(dict[str, Item]).decode


class SqliteOutbox:
    def __init__(self, do: Do) -> None:
        self._do = do

    async def get(self, base: str, what: str) -> Parcel | None:
        row = await self._do(
            lambda c: c.execute(
                "SELECT key, since, items, job_id FROM parcels WHERE base = ? AND what = ?",
                (bare(base), what),
            ).fetchone()
        )
        if row is None:
            return None
        key, since, items, job_id = row
        return Parcel(base=base, what=what, key=key, since=since, items=_items(items), job_id=job_id)

    async def put(self, parcel: Parcel) -> None:
        items = msgspec.json.encode(parcel.items)
        row = (parcel.base, parcel.what, parcel.key, parcel.since, items, parcel.job_id)
        await self._do(
            lambda c: c.execute("REPLACE INTO parcels VALUES (?, ?, ?, ?, ?, ?)", row) and None
        )

    async def drop(self, parcel: Parcel) -> None:
        this = parcel.base, parcel.what
        await self._do(
            lambda c: c.execute("DELETE FROM parcels WHERE base = ? AND what = ?", this) and None
        )

    async def forget(self, base: str, job_id: str) -> None:
        this = bare(base), job_id
        await self._do(
            lambda c: c.execute("DELETE FROM parcels WHERE base = ? AND job_id = ?", this) and None
        )
