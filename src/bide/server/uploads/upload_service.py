"""Begins uploads, records received bytes, and creates the blobs and jobs of complete uploads.

1. Bytes that a response reports as received are on disk and in the record.
2. The end of an upload, its record and its job are one store transaction. The bytes are a blob before it.
3. If the service or its storage fails before an upload is finished, the upkeep finishes it (`expiry`).
4. An upload has one writer at a time (`write_lock`).
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar

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
from bide.core.jobs.record import Job
from bide.server.blobs import BlobMissing, Blobs, upload_key
from bide.server.config import UploadConfig
from bide.server.durable_files import FILE_MODE, finished
from bide.server.intake import accepted
from bide.server.media_types import HEAD, detect
from bide.server.store import (
    CompletedUploads,
    JobStore,
    Missing,
    NewJob,
    StoredUploads,
    UploadRecords,
    UploadUpdate,
)
from bide.server.upload_record import Upload, UploadStatus, Way, owner_of
from bide.server.uploads.fair_turns import FairTurns
from bide.server.uploads.quota import Quota
from bide.server.uploads.staging import Digest, Staging
from bide.server.uploads.upload_jobs import UploadJobs
from bide.server.uploads.write_lock import WriteLocks

log = logging.getLogger("bide.uploads")
T = TypeVar("T")
CONCURRENT_COMMITS = 2


class UploadStore(JobStore, UploadRecords, Protocol):
    """A store of jobs and uploads."""


class UploadService:
    """The uploads of one service."""

    def __init__(
        self,
        store: UploadStore,
        blobs: Blobs,
        jobs: UploadJobs,
        staging: Staging,
        config: UploadConfig,
    ) -> None:
        self.store = store
        self.blobs = blobs
        self.jobs = jobs
        self.staging = staging
        self.config = config
        self.quota = Quota(config, staging.root)
        self.turns = FairTurns()
        self.locks = WriteLocks(self.turns)
        # The responses to all uploads of one commit are sent in one loop iteration, and polls wait for that. So only a few
        # uploads share a commit, even if many have arrived.
        self.commits = asyncio.Semaphore(CONCURRENT_COMMITS)
        self.replica = ""
        # Called before the bytes of an upload are removed, to remove data that this class does not manage.
        self.on_remove: list[Callable[[Upload], Awaitable[None]]] = []

    def open(self, replica: str) -> None:
        """Called when the service starts: only then the name of the replica is known and the folder locked."""
        self.replica = replica
        self.staging.prepare()

    # --- finding

    async def find(self, upload_id: str) -> Upload:
        found = await self.store.upload(upload_id)
        if isinstance(found, Missing):
            if found.gone:
                raise Gone(f"upload {upload_id} was deleted or has expired")
            raise NotFound(f"upload {upload_id[:100]!r} does not exist")
        return found

    async def unfinished(self, upload_id: str, way: Way) -> Upload:
        """Returns an upload to which this replica can add bytes."""
        upload = await self.find(upload_id)
        self.check_unfinished(upload, way)
        return upload

    def check_unfinished(self, upload: Upload, way: Way) -> None:
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

    def expiry(self) -> float:
        return self.store.now() + self.config.lifetime

    # --- receiving

    async def begin(self, way: Way, name: str, upload_id: str, **fields: Any) -> Upload:
        """Stores a new upload. Raises a Problem if it does not fit, or if its job would be rejected."""
        await self.turns.wait()
        now = self.store.now()
        upload = Upload(
            upload_id, way, name, now, now, replica=self.replica, expires_at=self.expiry(), **fields
        )
        if upload.size is not None:
            self.quota.check_size(upload.size)
        self.quota.check(upload.size or 0)
        await self.jobs.check(upload)
        self.quota.add(upload)
        async with self.commits:
            stored = await self.store.add_upload(upload)
        await self.turns.wait()
        return stored

    async def record(
        self,
        upload: Upload,
        *,
        received: int | None = None,
        chunk: int | None = None,
        expires_in: float | None = None,
    ) -> Upload:
        """Records received bytes. A cancelled caller does not interrupt it."""
        expires_at = self.expiry() if expires_in is None else self.store.now() + expires_in
        progress = UploadUpdate(upload.id, received, upload.size, chunk, expires_at)
        after = await uninterrupted(self._receive(progress))
        await self.turns.wait()
        if isinstance(after, Missing):
            raise Gone(f"upload {upload.id} was deleted during the request, or has expired")
        return after

    async def _receive(self, progress: UploadUpdate) -> Upload | Missing:
        async with self.commits:
            return await self.store.receive(progress)

    # --- finishing

    async def finish(self, upload: Upload) -> StoredUploads:
        """Moves a complete upload to the blobs and creates its job, if any. A cancelled caller does not interrupt it."""
        return await uninterrupted(self._finish(upload))

    async def _finish(self, upload: Upload) -> StoredUploads:
        assert upload.size is not None
        path, digest = self.staging.path(upload.id), self.staging.take_digest(upload.id, upload.size)
        if digest.at == digest.length == upload.size:
            sha256, head = digest.sha256.hexdigest(), digest.head
        else:
            sha256, head = await self.staging.run(_complete, path, upload.size, digest)
        done = self.completed(upload, upload.size, sha256, head)
        if upload.promised is not None and upload.promised != sha256:
            await self.discard(done)
            raise ChecksumMismatch(f"SHA-256 mismatch: expected {upload.promised}, got {sha256}")
        new, problem = await self._new_job(done)
        await self.blobs.adopt(upload_key(upload.id), path, upload.content_type)
        stored = await self.store_finished(CompletedUploads((done,), new))
        if problem is not None:
            raise problem
        return stored

    async def recovered(self, upload: Upload) -> Upload:
        """Checks that the bytes of an upload are in the staging folder. A crash between the move to the blobs and the
        commit leaves them as a blob; then this finishes the upload. Raises Gone if they are in neither place.
        """
        if upload.received == 0 or self.staging.has_digest(upload.id, upload.received):
            return upload
        if await self.staging.run(_has_bytes, self.staging.path(upload.id), upload.received):
            return upload
        key, sha256, size, head = upload_key(upload.id), hashlib.sha256(), 0, b""
        try:
            async for data in await self.blobs.open(key):
                sha256.update(data)
                head, size = head or data[:HEAD], size + len(data)
        except BlobMissing:  # not StorageUnavailable: the blob may exist then
            log.error(
                "upload %s is lost: it has neither a file in %s nor a blob", upload.id, self.staging.root
            )
            await self.discard(upload)
            raise Gone(f"the bytes of upload {upload.id} are lost; start a new upload") from None
        done = self.completed(upload, size, sha256.hexdigest(), head)
        new, _ = await self._new_job(done)
        return (await self.store_finished(CompletedUploads((done,), new))).uploads[0]

    async def check_head(self, upload: Upload) -> None:
        """Rejects a file of the wrong type by its first bytes, before the client sends the rest."""
        if upload.submission is None or upload.partial:
            return
        try:
            if not self.jobs.checks_content(upload):
                return
            head = await self.staging.head(upload.id)
            await self.jobs.new_job(self.completed(upload, upload.received, "", head))
        except WrongContent:
            await self.discard(upload)
            raise
        except Problem:
            return  # reported when the upload is finished; the cause may be gone by then

    def completed(self, upload: Upload, size: int, sha256: str, head: bytes) -> Upload:
        return replace(
            upload,
            status=UploadStatus.DONE,
            size=size,
            received=size,
            sha256=sha256,
            detected=detect(head),
            blob=upload_key(upload.id),
            updated_at=self.store.now(),
            expires_at=self.expiry(),
        )

    async def _new_job(self, done: Upload) -> tuple[NewJob | None, Problem | None]:
        """Returns the job of a complete upload, or the problem that prevents it. Discards a file of the wrong type."""
        if done.submission is None:
            return None, None
        try:
            return await self.jobs.new_job(done), None
        except WrongContent:
            await self.discard(done)
            raise
        except Problem as problem:
            return None, problem

    async def store_finished(self, completed: CompletedUploads) -> StoredUploads:
        async with self.commits:
            storing = self.store.finish(completed)
            if completed.new is not None:
                self.jobs.notify_engine(completed.new)
            stored = await uninterrupted(storing)
        await self.turns.wait()
        if isinstance(stored, Missing):
            for upload in completed.uploads:
                await self.remove_bytes(upload)
            raise Gone("the upload was deleted during the request, or has expired")
        if stored.job is not None and completed.new is not None:
            # Raises a Problem if the idempotency key belongs to another job.
            accepted(stored.job, completed.new)
        return stored

    # --- removal

    async def remove(self, upload_id: str) -> None:
        """Cancels the current writer and removes the upload."""
        async with self.locks.hold(upload_id):
            await self.find(upload_id)
            removed = await self.store.remove_upload(upload_id)
            if isinstance(removed, Missing):
                raise Gone(f"upload {upload_id} was already deleted")
            if not isinstance(removed, Upload):
                raise UploadConflict(
                    f"job {removed.job_id} uses upload {upload_id}: delete the job first"
                )
            self.quota.remove(removed)
            await self.remove_bytes(removed)

    async def discard(self, upload: Upload) -> None:
        """Removes an upload that cannot be completed."""
        removed = await self.store.remove_upload(upload.id)
        if isinstance(removed, Upload):
            self.quota.remove(removed)
        await self.remove_bytes(upload)

    async def remove_bytes(self, upload: Upload) -> None:
        for callback in self.on_remove:
            await callback(upload)
        await self.staging.remove(upload.id)
        await self.blobs.remove(owner_of(upload.id))


def job_of(stored: StoredUploads) -> Job | None:
    return getattr(stored.job, "job", None)


def _complete(path: Path, size: int, digest: Digest) -> tuple[str, bytes]:
    """Truncates the file to its size; returns its checksum and first bytes. Runs in a thread."""
    if size == 0:
        path.touch(FILE_MODE)
    with path.open("r+b", buffering=0) as file:
        if os.fstat(file.fileno()).st_size > size:
            file.truncate(size)
            os.fdatasync(file.fileno())
        digest.catch_up(path, size)
        file.seek(0)
        return digest.sha256.hexdigest(), file.read(HEAD)


def _has_bytes(path: Path, size: int) -> bool:
    try:
        return path.stat().st_size >= size
    except FileNotFoundError:
        return False


async def uninterrupted(awaited: Awaitable[T]) -> T:
    """Awaits the result even if the caller is cancelled; then raises CancelledError."""
    return await finished(asyncio.ensure_future(awaited))
