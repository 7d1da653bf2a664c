"""What time brings to uploads: they expire, are finished when nobody else does, and their orphans are swept."""

from __future__ import annotations

import contextlib
import logging
import time

from bide.core.errors import BideError, Problem
from bide.core.upload import Way, owner_of
from bide.core.wire import is_job_id
from bide.server.blobs import UPLOADS
from bide.server.blobs.orphans import Orphans
from bide.server.uploads.reception import Reception

log = logging.getLogger("bide.uploads")
EVERY = 5.0
SWEEP_EVERY = 600.0
LEFT = 10.0  # seconds after which nobody is thought to be finishing an upload any more
ORPHAN_AGE = 3600.0


class Tending:
    """`tick` is called by the upkeep, at every round."""

    def __init__(self, reception: Reception, orphans: Orphans) -> None:
        self._reception = reception
        self._orphans = orphans
        self._next = 0.0
        self._next_sweep = 0.0

    async def tick(self) -> None:
        now = self._reception.store.now()
        if now < self._next:
            return
        self._next = now + EVERY
        await self._expire()
        await self._complete(now)
        if now >= self._next_sweep:
            self._next_sweep = now + SWEEP_EVERY
            await self._sweep(time.time())  # files have the machine's time
        self._reception.room.known(await self._reception.store.upload_bytes())

    async def _expire(self) -> None:
        more = True
        while more:
            inputs = self._reception.config.inputs
            removed, more = await self._reception.store.expire_uploads(inputs=inputs)
            for upload in removed:
                await self._reception.remove_bytes(upload)

    async def _complete(self, now: float) -> None:
        """Those that are whole, and whose finishing was cut short: by a crash, or by storage that was away."""
        reception = self._reception
        for upload in await reception.store.unfinished(reception.replica, now - LEFT):
            if upload.way is Way.PRESIGNED or upload.partial or upload.received != upload.size:
                continue
            try:
                async with reception.turns.take(upload.id):
                    await reception.finish(upload)
            except Problem as problem:
                log.warning("upload %s: %s", upload.id, problem.detail)
            except (BideError, OSError) as error:
                log.warning("upload %s cannot be finished yet: %s", upload.id, error)

    async def _sweep(self, now: float) -> None:
        """Bytes of uploads that there are not."""
        reception = self._reception
        if not await self._orphans.ours(now):
            return
        names = await reception.staging.run(reception.staging.old, now - ORPHAN_AGE)
        ids = [name for name in names if is_job_id(name)]
        for upload_id in set(ids) - await reception.store.known_uploads(ids):
            with contextlib.suppress(OSError):
                await reception.staging.remove(upload_id)
        known = reception.store.known_uploads
        await self._orphans.sweep(UPLOADS, owner_of(""), known, now, ORPHAN_AGE)
