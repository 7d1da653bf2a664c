"""Periodic upkeep of uploads: removes expired ones, finishes interrupted ones, and removes orphaned files."""

from __future__ import annotations

import contextlib
import logging
import time

from bide.core.errors import BideError, Problem
from bide.core.wire.http import is_job_id
from bide.server.blobs import UPLOADS, PartStorage
from bide.server.blobs.orphans import Orphans
from bide.server.store import UploadStore, UploadUpdate
from bide.server.upload_record import ANY_REPLICA, Upload, UploadStatus, Way, owner_of
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
        parts: PartStorage | None,
        quota: Quota,
        orphans: Orphans,
        inputs: float | None,
    ) -> None:
        self._lifecycle = lifecycle
        self._store = store
        self._staging = staging
        self._parts = parts
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
        before = now - INTERRUPTED_AFTER
        for upload in await self._store.unfinished(self._lifecycle.replica, before):
            if upload.way is not Way.PRESIGNED:
                await self._finish(upload)
        if self._parts is None:
            return
        for upload in await self._store.unfinished(ANY_REPLICA, before):
            if upload.received == upload.size and not upload.partial:
                # Updates `updated_at`, so that other replicas do not finish it at the same time.
                await self._store.receive(UploadUpdate(upload.id))
                await self._finish(upload)

    async def _finish(self, upload: Upload) -> None:
        if upload.partial or upload.received != upload.size:
            return
        if self._lifecycle.is_held(upload.id):
            return  # a request is still moving a large file to the blobs
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
        if self._parts is not None:
            await self._abort_orphans(self._parts, now)

    async def _abort_orphans(self, parts: PartStorage, now: float) -> None:
        """Abort multipart uploads that no record names, for example of a direct upload that was killed."""
        before = now - max(ORPHAN_AGE, self._orphans.quarantine)
        for found in await parts.multiparts(UPLOADS):
            upload_id = found.key.split("/")[1]
            if found.begun_at > before or not is_job_id(upload_id):
                continue
            upload = await self._store.upload(upload_id)
            if isinstance(upload, Upload) and _may_use(upload, found.multipart):
                continue
            log.info("aborting the multipart upload of %s, which no record names", found.key)
            await parts.abort(found.key, found.multipart)


def _may_use(upload: Upload, multipart: str) -> bool:
    """Whether the record names the multipart upload. The one of a complete upload may have been completed since it was
    listed, and some storage would then remove the object.
    """
    if upload.status is UploadStatus.DONE:
        return True
    return multipart in (upload.metadata, "" if upload.bucket is None else upload.bucket.multipart)
