"""The life of an upload, the same for every protocol: begun, received, finished as a blob and perhaps a job, or removed.

1. Bytes that a response reports as received are on disk and in the record.
2. The end of an upload, its record and its job are one store transaction. The bytes are a blob before it.
3. If the service or its storage fails before an upload is finished, the upkeep finishes it (`expiry`).
4. An upload has one writer at a time (`write_lock`).
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec.structs import replace

from bide.core.errors import (
    ChecksumMismatch,
    Gone,
    MisdirectedUpload,
    NotFound,
    Problem,
    UploadConflict,
    WrongContent,
)
from bide.server.blobs import BlobMissing, Blobs, Signing, upload_key
from bide.server.durable_files import finished
from bide.server.intake import accepted
from bide.server.media_types import HEAD, detect
from bide.server.store import (
    CompletedUploads,
    Missing,
    NewJob,
    StoredUploads,
    UploadStore,
    UploadUpdate,
)
from bide.server.upload_record import Upload, UploadStatus, Way, owner_of
from bide.server.uploads.quota import Quota
from bide.server.uploads.staging import Staging
from bide.server.uploads.upload_jobs import UploadJob, UploadJobs
from bide.server.uploads.write_lock import WriteLock

log = logging.getLogger("bide.uploads")
# The responses to all uploads of one commit are sent in one loop iteration, and polls wait for that. So only a few
# uploads share a commit, even if many have arrived.
CONCURRENT_COMMITS = 2


class UploadLifecycle:
    """The uploads of one service. `lifetime`: seconds that an upload is kept after its last byte."""

    def __init__(
        self,
        store: UploadStore,
        blobs: Blobs,
        storage: Signing,
        jobs: UploadJobs,
        staging: Staging,
        quota: Quota,
        lifetime: float,
    ) -> None:
        self._store = store
        self._blobs = blobs
        self._storage = storage
        self._jobs = jobs
        self._staging = staging
        self._quota = quota
        self._lifetime = lifetime
        self._writers: dict[str, WriteLock] = {}
        self._completing: dict[str, asyncio.Future[Upload]] = {}
        self._commits = asyncio.Semaphore(CONCURRENT_COMMITS)
        self.replica = ""  # known when the service starts

    def hold(self, name: str) -> WriteLock:
        """Return the lock of an upload, or of a chunk or part of it. A newer writer cancels the older one."""
        return WriteLock(self._writers, name)

    def is_held(self, upload_id: str) -> bool:
        """Whether a request writes or finishes the upload."""
        return upload_id in self._writers

    # --- finding

    async def find(self, upload_id: str, tenant: str | None = None) -> Upload:
        """Raise NotFound or Gone if there is no such upload. With `tenant`, those of others do not exist."""
        found = await self._store.upload(upload_id)
        if tenant is not None and found.tenant != tenant:
            found = Missing()
        if isinstance(found, Missing):
            if found.gone:
                raise Gone(f"upload {upload_id} was deleted or has expired")
            raise NotFound(f"upload {upload_id[:100]!r} does not exist")
        return found

    async def list(
        self, tenant: str, status: UploadStatus | None, before: str | None, limit: int
    ) -> list[Upload]:
        """The uploads of a tenant, newest first."""
        return await self._store.list_uploads(tenant, status, before, limit)

    def check_unfinished(self, upload: Upload, way: Way) -> None:
        """Raise a Problem unless this replica can add bytes to the upload with this protocol."""
        if upload.way is not way:
            raise UploadConflict(f"upload {upload.id} is a {upload.way} upload, not a {way} upload")
        if upload.status is UploadStatus.DONE:
            raise UploadConflict(f"upload {upload.id} is already complete")
        self.check_replica(upload)

    def check_replica(self, upload: Upload) -> None:
        if upload.replica != self.replica:
            raise MisdirectedUpload(
                f"upload {upload.id} began at replica {upload.replica}; this is replica {self.replica}"
            )

    # --- receiving

    def new(self, way: Way, name: str, job: UploadJob | None = None, **fields: Any) -> Upload:
        """Return the record of a new upload; store nothing."""
        now = self._store.now()
        if job is not None:
            fields |= {
                "submission": job.encoded,
                "parameter": job.parameter,
                "key": job.key,
                "trace_id": job.trace_id,
            }
        values = {"replica": self.replica, "expires_at": now + self._lifetime, **fields}
        return Upload(self._jobs.intake.id(now), way, name, now, now, **values)

    async def begin(self, way: Way, name: str, job: UploadJob | None = None, **fields: Any) -> Upload:
        """Store a new upload; `fields` are those of its record. Raise a Problem if it does not fit, or if its job would be
        rejected.
        """
        upload = self.new(way, name, job, **fields)
        if upload.size is not None:
            self._quota.check_size(upload.size)
        self._quota.check(upload.size or 0)
        new = None if job is None else await self._jobs.check(upload, job.submission)
        return await self.add(upload, new)

    async def add(self, upload: Upload, new: NewJob | None = None) -> Upload:
        """Store the record of a new upload. `new`: the job that it becomes when it is complete."""
        async with self._jobs.intake.upload(upload):
            if new is not None:
                await self._jobs.intake.admit_later(new)
            self._quota.add(upload)
            async with self._commits:
                return await self._store.add_upload(upload)

    async def record(
        self,
        upload: Upload,
        *,
        received: int | None = None,
        chunk: int | None = None,
        expires_in: float | None = None,
    ) -> Upload:
        """Record received bytes. A cancelled caller does not interrupt it."""
        expires_at = self._store.now() + (self._lifetime if expires_in is None else expires_in)
        update = UploadUpdate(upload.id, received, upload.size, chunk, expires_at)
        after = await finished(self._receive(update))
        if isinstance(after, Missing):
            raise Gone(f"upload {upload.id} was deleted during the request, or has expired")
        return after

    async def _receive(self, update: UploadUpdate) -> Upload | Missing:
        async with self._commits:
            return await self._store.receive(update)

    # --- finishing

    async def complete_once(self, upload_id: str, complete: Callable[[], Awaitable[Upload]]) -> Upload:
        """Complete an upload once for all concurrent requests, and continue if they disconnect."""
        running = self._completing.get(upload_id)
        if running is None:
            running = asyncio.ensure_future(complete())
            self._completing[upload_id] = running
            running.add_done_callback(lambda done: self._completed(upload_id, done))
        return await asyncio.shield(running)

    def _completed(self, upload_id: str, done: asyncio.Future[Upload]) -> None:
        del self._completing[upload_id]
        if not done.cancelled():
            # Mark the exception as retrieved: all callers may have disconnected.
            done.exception()

    async def finish(self, upload: Upload) -> Upload:
        """Move a complete upload to the blobs and create its job, if any. A cancelled caller does not interrupt it."""
        return await finished(self._finish(upload))

    async def _finish(self, upload: Upload) -> Upload:
        assert upload.size is not None
        sha256, head = await self._staging.complete(upload.id, upload.size)
        done = self.completed(upload, upload.size, sha256, head)
        if upload.promised is not None and upload.promised != sha256:
            await self.discard(done)
            raise ChecksumMismatch(f"SHA-256 mismatch: expected {upload.promised}, got {sha256}")
        new, problem = await self._new_job(done)
        await self.adopt(done)
        stored = await self.store_finished(CompletedUploads((done,), new))
        if problem is not None:
            raise problem
        return stored.uploads[0]

    async def adopt(self, upload: Upload) -> None:
        """Move the bytes of a complete upload to the blobs."""
        path = self._staging.path(upload.id)
        await self._blobs.adopt(upload_key(upload.id), path, upload.content_type)

    async def recovered(self, upload: Upload) -> Upload:
        """Check that the bytes of an upload are in the staging folder. A crash between the move to the blobs and the
        commit leaves them as a blob; then this finishes the upload. Raise Gone if they are in neither place.
        """
        if await self._staging.has(upload.id, upload.received):
            return upload
        sha256, size, head = hashlib.sha256(), 0, b""
        try:
            async for data in await self._blobs.open(upload_key(upload.id)):
                sha256.update(data)
                head, size = head or data[:HEAD], size + len(data)
        except BlobMissing:  # not StorageUnavailable: the blob may exist then
            log.error(
                "upload %s is lost: it has neither a file in %s nor a blob",
                upload.id,
                self._staging.root,
            )
            await self.discard(upload)
            raise Gone(f"the bytes of upload {upload.id} are lost; start a new upload") from None
        done = self.completed(upload, size, sha256.hexdigest(), head)
        new, _ = await self._new_job(done)
        return (await self.store_finished(CompletedUploads((done,), new))).uploads[0]

    async def check_head(self, upload: Upload) -> None:
        """Reject a file of the wrong type by its first bytes, before the client sends the rest."""
        if upload.submission is None or upload.partial:
            return
        try:
            if not self._jobs.restricts_types(upload):
                return
            head = await self._staging.head(upload.id)
            await self._jobs.new_job(self.completed(upload, upload.received, "", head))
        except WrongContent:
            await self.discard(upload)
            raise
        except Problem:
            return  # reported when the upload is finished; the cause may be gone by then

    def completed(self, upload: Upload, size: int, sha256: str, head: bytes) -> Upload:
        now = self._store.now()
        return replace(
            upload,
            status=UploadStatus.DONE,
            size=size,
            received=size,
            sha256=sha256,
            detected=detect(head),
            blob=upload_key(upload.id),
            updated_at=now,
            expires_at=now + self._lifetime,
        )

    async def _new_job(self, done: Upload) -> tuple[NewJob | None, Problem | None]:
        """Return the job of a complete upload, or the problem that prevents it. Discards a file of the wrong type."""
        if done.submission is None:
            return None, None
        try:
            return await self._jobs.new_job(done), None
        except WrongContent:
            await self.discard(done)
            raise
        except Problem as problem:
            return None, problem

    async def store_finished(self, completed: CompletedUploads) -> StoredUploads:
        """Store complete uploads and their job. Raise Gone if an upload was removed meanwhile."""
        async with self._commits:
            storing = self._store.finish(completed)
            if completed.new is not None:
                self._jobs.intake.hint(completed.new)
            stored = await finished(storing)
        if isinstance(stored, Missing):
            for upload in completed.uploads:
                await self.remove_bytes(upload)
            raise Gone("the upload was deleted during the request, or has expired")
        for upload in completed.uploads:
            self._jobs.forget(upload.id)
            self._quota.release(upload.id)
        if stored.job is not None and completed.new is not None:
            self._jobs.intake.learn(completed.new, stored.job)
            # Raises a Problem if the idempotency key belongs to another job.
            accepted(stored.job, completed.new)
        return stored

    # --- removal

    async def remove(self, upload_id: str) -> None:
        """Cancel the current writer and remove the upload. Raise UploadConflict if a job uses it."""
        async with self.hold(upload_id):
            await self.find(upload_id)
            removed = await self._store.remove_upload(upload_id)
            if isinstance(removed, Missing):
                raise Gone(f"upload {upload_id} was already deleted")
            if not isinstance(removed, Upload):
                raise UploadConflict(
                    f"job {removed.job_id} uses upload {upload_id}: delete the job first"
                )
            self._quota.remove(removed)
            await self.remove_bytes(removed)

    async def discard(self, upload: Upload) -> None:
        """Remove an upload that cannot be completed."""
        removed = await self._store.remove_upload(upload.id)
        if isinstance(removed, Upload):
            self._quota.remove(removed)
        await self.remove_bytes(upload)

    async def remove_bytes(self, upload: Upload) -> None:
        """Remove the bytes of an upload, wherever they are."""
        self._jobs.forget(upload.id)
        self._quota.release(upload.id)
        await self.abort_parts(upload)
        await self._staging.remove(upload.id)
        await self._blobs.remove(owner_of(upload.id))

    async def abort_parts(self, upload: Upload) -> None:
        """Remove the parts of an incomplete multipart upload from the storage."""
        if upload.way is Way.PRESIGNED and upload.metadata and upload.status is not UploadStatus.DONE:
            await self._storage.abort(upload_key(upload.id), upload.metadata)
