"""Removes files whose job or upload is not in the store: what a crash between a file and its record has left.

1. Only the store that the files belong to removes any. Its id is written beside them by the store that came first; a
   database that shares the folder or the bucket by mistake removes nothing, and says so.
2. An orphan is quarantined first: it stays where it is, marked, and is removed when it was an orphan for the whole
   quarantine. A file that a record names again, because another backup was restored, is released.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from bide.core.wire import is_job_id
from bide.server.blobs import Blobs

log = logging.getLogger("bide.upkeep")
COMPLAIN_EVERY = 3600.0
AT_ONCE = 16
Known = Callable[[Sequence[str]], Awaitable[set[str]]]


class Orphans:
    """Of one service. `store_id` gives the id of its store."""

    def __init__(self, blobs: Blobs, store_id: Callable[[], Awaitable[str]], quarantine: float) -> None:
        """`quarantine`: seconds between the mark and the removal."""
        self._blobs = blobs
        self._store_id = store_id
        self._quarantine = quarantine
        self._next_complaint: float | None = None

    async def ours(self, now: float) -> bool:
        """Whether the files belong to our store, or to none yet; logs what to do when they do not. Writes nothing."""
        return self._is_own(await self._blobs.store_id(), await self._store_id(), now)

    def _is_own(self, found: str | None, own: str, now: float) -> bool:
        wrong = foreign(self._blobs, found, own)
        if wrong is not None and (self._next_complaint is None or now >= self._next_complaint):
            self._next_complaint = now + COMPLAIN_EVERY
            log.error("orphaned files are not removed: %s", wrong)
        return wrong is None

    async def sweep(self, space: str, prefix: str, known: Known, now: float, age: float) -> None:
        """Owners in `space`, which are named with `prefix` outside of it, that nobody has touched for `age` seconds."""
        own = await self._store_id()
        if not self._is_own(await self._blobs.claim(own), own, now):
            return
        found = [name for name in await self._blobs.owners(space, now - age) if is_job_id(name)]
        orphans = set(found) - await known(found)
        marked = await self._blobs.quarantined(space)
        over = {name for name in orphans if marked.get(name, now) <= now - self._quarantine}
        if over:  # first, for this may be what makes room for marks
            log.info("removing the files of %d jobs or uploads that no longer exist", len(over))
        await self._each(self._blobs.remove, prefix, over)
        await self._each(self._blobs.release, prefix, over | marked.keys() - orphans)
        new = orphans - over - marked.keys()
        if new:
            log.warning(
                "the files of %d jobs or uploads are in quarantine: no record names them. They are removed after %g days",
                len(new),
                self._quarantine / 86400,
            )
        await self._each(self._blobs.quarantine, prefix, new)

    async def _each(self, do: Callable[[str], Awaitable[None]], prefix: str, names: set[str]) -> None:
        ordered = sorted(names)
        for i in range(0, len(ordered), AT_ONCE):
            await asyncio.gather(*(do(prefix + name) for name in ordered[i : i + AT_ONCE]))


def foreign(blobs: Blobs, owner: str | None, own: str) -> str | None:
    """What is wrong, and what to do, when files belong to another store; None when they do not."""
    if owner is None or owner == own:
        return None
    return (
        f"the files at {blobs.shown} belong to the store {owner[:40]}, and this is the store {own}. Either another "
        "database uses the same place: give each one a folder, a bucket or a prefix of its own with --blobs. Or this "
        "database has replaced the other one: then delete `.store` there, and the next sweep takes the files over"
    )
