"""Periodic upkeep of uploads: removes expired ones, finishes interrupted ones, and removes orphaned files."""

from __future__ import annotations

import contextlib
import logging
import time

from bide.core.errors import BideError, Problem
from bide.core.wire.http import is_job_id
from bide.server.blobs import UPLOADS
from bide.server.blobs.orphans import Orphans
from bide.server.upload_record import Way, owner_of
from bide.server.uploads.upload_service import UploadService

log = logging.getLogger("bide.uploads")
INTERVAL = 5.0
SWEEP_INTERVAL = 600.0
# Seconds after which a complete upload counts as interrupted, because no request is finishing it any more.
INTERRUPTED_AFTER = 10.0
ORPHAN_AGE = 3600.0


class UploadExpiry:
    """The upkeep calls `tick` in every round."""

    def __init__(self, uploads: UploadService, orphans: Orphans) -> None:
        self._uploads = uploads
        self._orphans = orphans
        self._next = 0.0
        self._next_sweep = 0.0

    async def tick(self) -> None:
        now = self._uploads.store.now()
        if now < self._next:
            return
        self._next = now + INTERVAL
        await self._expire()
        await self._complete(now)
        if now >= self._next_sweep:
            self._next_sweep = now + SWEEP_INTERVAL
            # Modification times of files follow this machine's clock.
            await self._sweep(time.time())
        self._uploads.quota.update(await self._uploads.store.upload_bytes())

    async def _expire(self) -> None:
        more = True
        while more:
            inputs = self._uploads.config.inputs
            removed, more = await self._uploads.store.expire_uploads(inputs=inputs)
            for upload in removed:
                await self._uploads.remove_bytes(upload)

    async def _complete(self, now: float) -> None:
        """Finishes complete uploads whose request was interrupted by a crash or by unavailable storage."""
        uploads = self._uploads
        for upload in await uploads.store.unfinished(uploads.replica, now - INTERRUPTED_AFTER):
            if upload.way is Way.PRESIGNED or upload.partial or upload.received != upload.size:
                continue
            try:
                async with uploads.locks.hold(upload.id):
                    await uploads.finish(upload)
            except Problem as problem:
                log.warning("cannot finish upload %s: %s", upload.id, problem.detail)
            except (BideError, OSError) as error:
                log.warning("cannot finish upload %s, retrying: %s", upload.id, error)

    async def _sweep(self, now: float) -> None:
        """Removes files of uploads that no longer exist."""
        uploads = self._uploads
        if not await self._orphans.may_remove(now):
            return
        names = await uploads.staging.run(uploads.staging.old, now - ORPHAN_AGE)
        ids = [name for name in names if is_job_id(name)]
        for upload_id in set(ids) - await uploads.store.known_uploads(ids):
            with contextlib.suppress(OSError):
                await uploads.staging.remove(upload_id)
        known = uploads.store.known_uploads
        await self._orphans.sweep(UPLOADS, owner_of(""), known, now, ORPHAN_AGE)
