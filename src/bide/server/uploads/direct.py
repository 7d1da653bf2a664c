"""Uploads in one request. The record is stored when the file is complete; an incomplete file is removed."""

from __future__ import annotations

from collections.abc import Sequence

from bide.core.errors import ChecksumMismatch, Problem
from bide.server.blobs import upload_key
from bide.server.store import CompletedUploads, NewJob, StoredUploads
from bide.server.upload_record import Upload, Way
from bide.server.uploads.quota import disk_problem
from bide.server.uploads.staging import Bytes, Digest, Sink
from bide.server.uploads.upload_service import UploadService, uninterrupted


class DirectUpload:
    """One file that a request is sending."""

    def __init__(self, uploads: UploadService, upload_id: str, name: str, content_type: str) -> None:
        now = uploads.store.now()
        self.upload = Upload(
            upload_id, Way.DIRECT, name, now, now, content_type, replica=uploads.replica
        )
        self._uploads = uploads
        self._digest = Digest()
        self._sink = Sink(uploads.staging, uploads.staging.path(upload_id), 0, self._digest)
        self._charge = uploads.quota.charge(reserved=False)
        self.stored = False  # True also while the outcome of the commit is unknown
        self.promised: str | None = None  # the SHA-256 that the caller expects

    async def write(self, data: Bytes) -> None:
        """Raises a Problem if the file is too large or does not fit into the quota or on the disk."""
        self._uploads.quota.check_size(self._sink.position + len(data))
        self._charge.add(len(data))
        try:
            await self._sink.write(data)
        except OSError as error:
            problem = disk_problem(error)
            if problem is None:
                raise
            raise problem from error

    async def finish(self) -> Upload:
        """Syncs the file and verifies its checksum. It is neither a blob nor in the store yet."""
        try:
            await self._sink.sync()
        except OSError as error:
            problem = disk_problem(error)
            if problem is None:
                raise
            raise problem from error
        sha256 = self._digest.sha256.hexdigest()
        if self.promised is not None and self.promised != sha256:
            raise ChecksumMismatch(f"SHA-256 mismatch: expected {self.promised}, got {sha256}")
        self.upload = self._uploads.completed(self.upload, self._sink.durable, sha256, self._digest.head)
        return self.upload

    def release(self) -> None:
        """Releases the charge: the record in the store counts now, or the file is removed."""
        self._charge.close()

    async def discard(self) -> None:
        """Removes the file, unless its record is or may be in the store: a stored upload must have its bytes."""
        await self._sink.abort()
        self.release()
        if not self.stored:
            await self._uploads.remove_bytes(self.upload)


async def store_files(
    uploads: UploadService, files: Sequence[DirectUpload], new: NewJob | None = None
) -> StoredUploads:
    """Moves finished files to the blobs and stores their records and the job in one transaction. If this raises a Problem,
    nothing is stored and the caller discards the files. A cancelled caller does not interrupt it.
    """
    return await uninterrupted(_store_files(uploads, files, new))


async def _store_files(
    uploads: UploadService, files: Sequence[DirectUpload], new: NewJob | None
) -> StoredUploads:
    for one in files:
        path = uploads.staging.path(one.upload.id)
        await uploads.blobs.adopt(upload_key(one.upload.id), path, one.upload.content_type)
    for one in files:
        one.stored = True
    try:
        stored = await uploads.store_finished(CompletedUploads(tuple(one.upload for one in files), new))
    except Problem:
        # The idempotency key belongs to another job: the files were stored, the job was not.
        for one in files:
            await uploads.store.remove_upload(one.upload.id)
            one.stored = False
        raise
    for one in files:
        one.release()
        uploads.quota.add(one.upload)
    return stored
