"""Removes files whose job or upload no longer exists, for example after a crash between a file and its record.

1. Only the store that the files belong to removes them. The first store writes its id next to the files; a database that
   uses the same folder or bucket by mistake removes nothing and logs an error.
2. An orphan is quarantined first: it is marked, and removed if it is still an orphan at the end of the quarantine. If a
   record names the file again, because a backup was restored, the mark is removed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from bide.core.wire.http import is_job_id
from bide.server.blobs import Blobs

log = logging.getLogger("bide.upkeep")
LOG_INTERVAL = 3600.0
CONCURRENCY = 16
Known = Callable[[Sequence[str]], Awaitable[set[str]]]


class Orphans:
    """The orphans of one service. `store_id` returns the id of its store."""

    def __init__(self, blobs: Blobs, store_id: Callable[[], Awaitable[str]], quarantine: float) -> None:
        """`quarantine`: seconds between the mark and the removal."""
        self._blobs = blobs
        self._store_id = store_id
        self.quarantine = quarantine
        self._next_log: float | None = None

    async def may_remove(self, now: float) -> bool:
        """Return whether the files belong to this store or to none yet. Log an error if they belong to another store.

        This writes nothing.
        """
        return self._is_own(await self._blobs.store_id(), await self._store_id(), now)

    def _is_own(self, found: str | None, own: str, now: float) -> bool:
        wrong = foreign(self._blobs, found, own)
        if wrong is not None and (self._next_log is None or now >= self._next_log):
            self._next_log = now + LOG_INTERVAL
            log.error("cannot remove orphaned files: %s", wrong)
        return wrong is None

    async def sweep(self, space: str, prefix: str, known: Known, now: float, age: float) -> None:
        """Remove or mark the orphans in `space` that have not changed for `age` seconds. `prefix` precedes their names."""
        own = await self._store_id()
        if not self._is_own(await self._blobs.claim(own), own, now):
            return
        found = [name for name in await self._blobs.owners(space, now - age) if is_job_id(name)]
        orphans = set(found) - await known(found)
        marked = await self._blobs.quarantined(space)
        expired = {name for name in orphans if marked.get(name, now) <= now - self.quarantine}
        if expired:  # before the marks are written, because the disk may be full
            log.info("removing the files of %d jobs or uploads that no longer exist", len(expired))
        await self._each(self._blobs.remove, prefix, expired)
        await self._each(self._blobs.release, prefix, expired | marked.keys() - orphans)
        new = orphans - expired - marked.keys()
        if new:
            log.warning(
                "quarantined the files of %d jobs or uploads that do not exist; removing them after %g days",
                len(new),
                self.quarantine / 86400,
            )
        await self._each(self._blobs.quarantine, prefix, new)

    async def _each(self, do: Callable[[str], Awaitable[None]], prefix: str, names: set[str]) -> None:
        ordered = sorted(names)
        for i in range(0, len(ordered), CONCURRENCY):
            await asyncio.gather(*(do(prefix + name) for name in ordered[i : i + CONCURRENCY]))


def foreign(blobs: Blobs, owner: str | None, own: str) -> str | None:
    """Return an explanation with a remedy if the files belong to another store, else None."""
    if owner is None or owner == own:
        return None
    return (
        f"the files at {blobs.shown} belong to store {owner[:40]}, but this is store {own}. If another database uses the "
        "same location, give each one its own folder, bucket or prefix with --blobs. If this database has replaced the "
        "other one, delete `.store` there, and the next sweep claims the files"
    )
