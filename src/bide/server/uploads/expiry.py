"""Periodic upkeep of uploads: removes expired ones, finishes interrupted ones, and removes orphaned files."""

from __future__ import annotations

import contextlib
import logging
import time

from bide.core.errors import BideError, Problem
from bide.core.wire.http import is_job_id
from bide.server.blobs import UPLOADS
from bide.server.blobs.orphans import Orphans
from bide.server.store import UploadStore
from bide.server.upload_record import UploadStatus, Way, owner_of
from bide.server.uploads.lifecycle import UploadLifecycle
from bide.server.uploads.quota import Quota
from bide.server.uploads.staging import Staging

log = logging.getLogger("bide.uploads")
INTERVAL = 5.0
SWEEP_INTERVAL = 600.0
# Seconds after which a complete upload counts as interrupted, because no request is finishing it any more.
INTERRUPTED_AFTER = 10.0
ORPHAN_AGE = 3600.0


class UploadExpiry:
    """The upkeep calls `tick` in every round. `inputs`: seconds that an upload is kept after the end of the last job that
    uses it; None: until that job is removed.
    """

    def __init__(
        self,
        lifecycle: UploadLifecycle,
        store: UploadStore,
        staging: Staging,
        quota: Quota,
        orphans: Orphans,
        inputs: float | None,
    ) -> None:
        self._lifecycle = lifecycle
        self._store = store
        self._staging = staging
        self._quota = quota
        self._orphans = orphans
        self._inputs = inputs
        self._next = 0.0
        self._next_sweep = 0.0

    async def tick(self) -> None:
        now = self._store.now()
        if now < self._next:
            return
        self._next = now + INTERVAL
        await self._expire()
        await self._complete(now)
        if now >= self._next_sweep:
            self._next_sweep = now + SWEEP_INTERVAL
            # Modification times of files follow this machine's clock.
            await self._sweep(time.time())
        self._quota.update(await self._store.upload_bytes())

    async def _expire(self) -> None:
        more = True
        while more:
            removed, more = await self._store.expire_uploads(inputs=self._inputs)
            for upload in removed:
                await self._lifecycle.remove_bytes(upload)

    async def _complete(self, now: float) -> None:
        """Finish complete uploads whose request was interrupted by a crash or by unavailable storage."""
        replica = self._lifecycle.replica
        for upload in await self._store.unfinished(replica, now - INTERRUPTED_AFTER):
            if upload.way is Way.PRESIGNED or upload.partial or upload.received != upload.size:
                continue
            if self._lifecycle.is_held(upload.id):
                continue  # a request is still moving a large file to the blobs
            try:
                async with self._lifecycle.hold(upload.id):
                    found = await self._lifecycle.recovered(upload)
                    if found.status is not UploadStatus.DONE:
                        await self._lifecycle.finish(found)
            except Problem as problem:
                log.warning("cannot finish upload %s: %s", upload.id, problem.detail)
            except (BideError, OSError) as error:
                log.warning("cannot finish upload %s, retrying: %s", upload.id, error)

    async def _sweep(self, now: float) -> None:
        """Remove files of uploads that no longer exist."""
        if not await self._orphans.may_remove(now):
            return
        names = await self._staging.run(self._staging.old, now - ORPHAN_AGE)
        ids = [name for name in names if is_job_id(name)]
        for upload_id in set(ids) - await self._store.known_uploads(ids):
            with contextlib.suppress(OSError):
                await self._staging.remove(upload_id)
        known = self._store.known_uploads
        await self._orphans.sweep(UPLOADS, owner_of(""), known, now, ORPHAN_AGE)
