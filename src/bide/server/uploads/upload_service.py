"""The uploads of a service: one attribute per protocol, and the operations that all protocols have in common."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from bide.server.blobs import Blobs
from bide.server.blobs.orphans import Orphans
from bide.server.config import UploadConfig
from bide.server.intake import Intake
from bide.server.registry import Registry
from bide.server.store import UploadStore
from bide.server.uploads.bucket import BucketStaging
from bide.server.uploads.chunks import ChunkedUploads
from bide.server.uploads.direct import DirectUploads
from bide.server.uploads.expiry import UploadExpiry
from bide.server.uploads.lifecycle import UploadLifecycle
from bide.server.uploads.presigned import PresignedUploads
from bide.server.uploads.quota import Quota
from bide.server.uploads.staging import Staging
from bide.server.uploads.tus import TusUploads
from bide.server.uploads.upload_jobs import UploadJobs


class UploadService:
    """`folder` is for the bytes of incomplete uploads, unless the blobs receive them."""

    def __init__(
        self,
        store: UploadStore,
        blobs: Blobs,
        intake: Intake,
        registry: Registry,
        orphans: Orphans,
        folder: Path,
        config: UploadConfig,
    ) -> None:
        storage = blobs.signing(store)
        jobs = UploadJobs(registry, intake)
        self._staging = staging = Staging(folder)
        parts = blobs.part_storage()
        self._bucket = bucket = None if parts is None else BucketStaging(blobs, parts, staging)
        self._quota = quota = Quota(config, None if bucket is not None else folder)
        self._lifecycle = lifecycle = UploadLifecycle(
            store, blobs, storage, jobs, staging, bucket, quota, config.lifetime
        )
        self._expiry = UploadExpiry(lifecycle, store, staging, parts, quota, orphans, config.inputs)
        # What all protocols have in common.
        self.find = lifecycle.find
        self.list = lifecycle.list
        self.begin = lifecycle.begin
        self.remove = lifecycle.remove
        self.direct = DirectUploads(lifecycle, quota, jobs)
        self.tus = TusUploads(lifecycle, staging, quota, config.max_size)
        self.chunks = ChunkedUploads(lifecycle, staging, quota)
        self.presigned = PresignedUploads(
            lifecycle, store, blobs, storage, jobs, quota, int(config.signed)
        )

    def open(self, replica: str) -> None:
        """Called when the service starts: only then the name of the replica is known and the folder locked."""
        self._lifecycle.replica = replica
        self._staging.prepare()

    async def close(self) -> None:
        """Wait for the threads that write, and until superseded objects are removed."""
        if self._bucket is not None:
            await self._bucket.close()
        await asyncio.to_thread(self._staging.close)

    def upkeep_tasks(self) -> list[Callable[[], Awaitable[None]]]:
        """Return the tasks that the upkeep runs in every round."""
        return [self._expiry.tick, self.presigned.tick]
