"""The life of an upload, the same for every protocol: begun, received, finished as a blob and perhaps a job, or removed.

1. Bytes that a response reports as received are on disk or in the bucket, and in the record.
2. The end of an upload, its record and its job are one store transaction. The bytes are a blob before it.
3. If the service or its storage fails before an upload is finished, the upkeep finishes it (`expiry`).
4. An upload has one writer at a time: in a process by `write_lock`, and of all replicas by the name in the record.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec.structs import replace

from bide.core.errors import (
    BideError,
    ChecksumMismatch,
    Gone,
    MisdirectedUpload,
    NotFound,
    Problem,
    StorageUnavailable,
    TakenOver,
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
from bide.server.upload_record import BucketBytes, Upload, UploadStatus, Way, owner_of
from bide.server.uploads.bucket import BucketStaging
from bide.server.uploads.quota import Charge, Quota
from bide.server.uploads.staging import AppendSink, BytesLost, Digest, Hash, Sink, Staging
from bide.server.uploads.upload_jobs import UploadJob, UploadJobs
from bide.server.uploads.write_lock import WriteLock

log = logging.getLogger("bide.uploads")
# The responses to all uploads of one commit are sent in one loop iteration, and polls wait for that. So only a few
# uploads share a commit, even if many have arrived.
CONCURRENT_COMMITS = 2
# Seconds between the updates of an upload that a replica completes, so that no other replica completes it as interrupted.
TOUCH_INTERVAL = 3.0


class UploadLifecycle:
    """The uploads of one service. `lifetime`: seconds that an upload is kept after its last byte."""

    def __init__(
        self,
        store: UploadStore,
        blobs: Blobs,
        storage: Signing,
        jobs: UploadJobs,
        staging: Staging,
        bucket: BucketStaging | None,
        quota: Quota,
        lifetime: float,
    ) -> None:
        """`bucket`: new uploads go there; None: to the folder of `staging`."""
        self._store = store
        self._blobs = blobs
        self._storage = storage
        self._jobs = jobs
        self._staging = staging
        self._bucket = bucket
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
        if upload.bucket is None and upload.replica != self.replica:
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
        if self._bucket is None:
            return await self.add(upload, new)
        upload = await self._bucket.place(upload)
        try:
            return await self.add(upload, new)
        except BaseException:
            await self._bucket.abort(upload)
            raise

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
        bucket: BucketBytes | None = None,
    ) -> Upload:
        """Record received bytes. A cancelled caller does not interrupt it. Raise TakenOver if they are in a bucket, and
        another replica has taken the upload over.
        """
        expires_at = self._store.now() + (self._lifetime if expires_in is None else expires_in)
        update = UploadUpdate(upload.id, received, upload.size, chunk, expires_at, bucket)
        after = await finished(self._receive(update))
        if isinstance(after, Missing):
            raise Gone(f"upload {upload.id} was deleted during the request, or has expired")
        if bucket is not None and after.bucket is not None and after.bucket.writer != bucket.writer:
            raise TakenOver(f"another replica continues upload {upload.id}")
        return after

    def in_bucket(self, upload: Upload) -> BucketStaging | None:
        """Return the bucket that has the bytes of an incomplete upload; None: they are on a local disk."""
        if upload.bucket is None:
            return None
        if self._bucket is None:
            raise StorageUnavailable(
                f"the bytes of upload {upload.id} are in a bucket, and this replica has none: start all replicas with the "
                "same --blobs"
            )
        return self._bucket

    async def taken(self, upload: Upload) -> Upload:
        """Take an incomplete upload in a bucket over from another replica or an earlier process, and finish it if that one
        has stored all bytes. An upload on a local disk stays as it is.
        """
        bucket = self.in_bucket(upload)
        if bucket is None or (upload.bucket is not None and upload.bucket.writer == bucket.writer):
            return upload
        after = await finished(self._receive(UploadUpdate(upload.id, writer=bucket.writer)))
        if isinstance(after, Missing):
            raise Gone(f"upload {upload.id} was deleted during the request, or has expired")
        return after if after.status is UploadStatus.DONE else await self.recovered(after)

    async def sink(self, upload: Upload, charge: Charge, checksum: Hash | None = None) -> AppendSink:
        """Return the sink that appends to an upload."""
        bucket = self.in_bucket(upload)
        if bucket is not None:
            return await bucket.sink(upload, charge, checksum)
        digest = self._staging.take_digest(upload.id, upload.received)
        return Sink(self._staging, upload.id, upload.received, charge, digest, checksum)

    def new_sink(self, upload: Upload, charge: Charge, size: int | None) -> AppendSink:
        """Return the sink of an upload that is stored when it is complete."""
        if self._bucket is not None:
            return self._bucket.new_sink(upload, charge, size)
        return Sink(self._staging, upload.id, 0, charge, Digest())

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
        bucket = self.in_bucket(upload)
        if bucket is None:
            sha256, head = await self._staging.complete(upload.id, upload.size)
            done = self.completed(upload, upload.size, sha256, head)
        else:
            done = await self._complete_in(bucket, upload)
        await self._check_promised(done)
        new, problem = await self._new_job(done)
        if bucket is None:
            await self.adopt(done)
        stored = await self.store_finished(CompletedUploads((done,), new))
        if bucket is not None and done.blob is not None:
            await bucket.clean(upload, done.blob)
        if problem is not None:
            raise problem
        return stored.uploads[0]

    async def _check_promised(self, done: Upload) -> None:
        """Remove a complete upload and raise ChecksumMismatch if its SHA-256 is not the one that its sender declared."""
        if done.promised is not None and done.promised != done.sha256:
            await self.discard(done)
            raise ChecksumMismatch(f"SHA-256 mismatch: expected {done.promised}, got {done.sha256}")

    async def _complete_in(self, bucket: BucketStaging, upload: Upload) -> Upload:
        """Return the complete upload. It may have to be read, so tell other replicas that this one works on it."""
        touching = asyncio.ensure_future(self._touch(upload))
        try:
            whole = await bucket.complete(upload)
        except BytesLost as lost:
            raise await self._lost(upload, str(lost)) from None
        finally:
            touching.cancel()
        return self.completed(upload, whole.size, whole.sha256, whole.head, whole.blob)

    async def _touch(self, upload: Upload) -> None:
        while True:
            await asyncio.sleep(TOUCH_INTERVAL)
            with contextlib.suppress(BideError):
                await self._store.receive(UploadUpdate(upload.id))

    async def adopt(self, upload: Upload) -> None:
        """Move the bytes of a complete upload to the blobs."""
        path = self._staging.path(upload.id)
        await self._blobs.adopt(upload_key(upload.id), path, upload.content_type)

    async def make_blob(self, upload: Upload, bucket: BucketBytes | None) -> None:
        """Make the bytes of a complete upload a blob, from the staging folder or from `bucket`."""
        if bucket is None:
            await self.adopt(upload)
        elif self._bucket is not None:
            await self._bucket.join(upload, bucket)

    async def _lost(self, upload: Upload, why: str) -> Gone:
        """Remove an upload whose bytes are lost; return the problem for the caller."""
        log.error("upload %s is lost: %s", upload.id, why)
        await self.discard(upload)
        return Gone(f"the bytes of upload {upload.id} are lost; start a new upload")

    async def recovered(self, upload: Upload, *, missing: str | None = None) -> Upload:
        """Check that the bytes of an upload are in the staging folder or in the bucket. A crash between the blob and the
        commit leaves them as a blob; then this finishes the upload. Raise Gone if they are in neither place. `missing`: why
        an upload in a bucket cannot be continued.
        """
        bucket = self.in_bucket(upload)
        if bucket is not None:
            return await self._recovered_in(bucket, upload, missing)
        if await self._staging.has(upload.id, upload.received):
            return upload
        sha256, size, head = hashlib.sha256(), 0, b""
        try:
            async for data in await self._blobs.open(upload_key(upload.id)):
                sha256.update(data)
                head, size = head or data[:HEAD], size + len(data)
        except BlobMissing:  # not StorageUnavailable: the blob may exist then
            why = f"it has neither a file in {self._staging.root} nor a blob"
            raise await self._lost(upload, why) from None
        done = self.completed(upload, size, sha256.hexdigest(), head)
        new, _ = await self._new_job(done)
        return (await self.store_finished(CompletedUploads((done,), new))).uploads[0]

    async def _recovered_in(self, bucket: BucketStaging, upload: Upload, missing: str | None) -> Upload:
        if missing is None and upload.partial:
            return upload
        whole = None if upload.partial else await bucket.joined(upload)
        if whole is None:
            if missing is None:
                return upload
            found = await self.find(upload.id)  # another replica may have finished it
            if found.status is UploadStatus.DONE:
                return found
            raise await self._lost(upload, missing)
        done = self.completed(upload, whole.size, whole.sha256, whole.head, whole.blob)
        await self._check_promised(done)  # a crash may have come before this check, but after the join
        new, _ = await self._new_job(done)
        return (await self.store_finished(CompletedUploads((done,), new))).uploads[0]

    async def check_head(self, upload: Upload, first: bytes = b"") -> None:
        """Reject a file of the wrong type by its first bytes, before the client sends the rest. `first`: those of an upload
        in a bucket.
        """
        if upload.submission is None or upload.partial:
            return
        try:
            if not self._jobs.restricts_types(upload):
                return
            head = await self._staging.head(upload.id) if upload.bucket is None else first
            if len(head) < HEAD:
                return  # not known here; the end of the upload reports it
            await self._jobs.new_job(self.completed(upload, upload.received, "", head))
        except WrongContent:
            await self.discard(upload)
            raise
        except Problem:
            return  # reported when the upload is finished; the cause may be gone by then

    def completed(
        self, upload: Upload, size: int, sha256: str, head: bytes, blob: str | None = None
    ) -> Upload:
        """Return the upload as it is when it is complete. `blob`: its key, if it differs from `upload_key`."""
        now = self._store.now()
        return replace(
            upload,
            status=UploadStatus.DONE,
            size=size,
            received=size,
            sha256=sha256,
            detected=detect(head),
            blob=blob or upload_key(upload.id),
            bucket=None,
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
        if self._bucket is not None:
            await self._bucket.abort(upload)
