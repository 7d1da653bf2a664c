"""Uploads in one request. The record is stored when the file is complete; an incomplete file is removed."""

from __future__ import annotations

from collections.abc import Sequence

from bide.core.errors import ChecksumMismatch, Problem
from bide.server.durable_files import finished
from bide.server.intake import Submission
from bide.server.store import CompletedUploads, Inserted, NewJob, StoredUploads
from bide.server.upload_record import Upload, Way
from bide.server.uploads.bucket import whole_key
from bide.server.uploads.lifecycle import UploadLifecycle
from bide.server.uploads.quota import Charge, Quota
from bide.server.uploads.staging import Bytes
from bide.server.uploads.upload_jobs import UploadJobs


class DirectUpload:
    """One file that a request is sending: `write` its bytes, `finish`, then store or `discard` it."""

    def __init__(
        self,
        lifecycle: UploadLifecycle,
        quota: Quota,
        name: str,
        content_type: str,
        size: int | None,
        tenant: str,
    ) -> None:
        self.upload = lifecycle.new(Way.DIRECT, name, content_type=content_type, tenant=tenant)
        self.promised: str | None = None  # the SHA-256 that the caller expects
        self._lifecycle = lifecycle
        self._quota = quota
        self._stored = False  # True also while the outcome of the commit is unknown
        self._charge = Charge(quota, reserved=False)
        self._sink = lifecycle.new_sink(self.upload, self._charge, size)

    async def write(self, data: Bytes) -> None:
        """Raise a Problem if the file is too large or does not fit into the quota or on the disk."""
        self._quota.check_size(self._sink.position + len(data))
        await self._sink.write(data)

    async def finish(self) -> Upload:
        """Sync the file and verify its checksum. It is neither a blob nor in the store yet."""
        await self._sink.sync(last=True)
        digest = self._sink.digest
        assert digest is not None
        sha256 = digest.sha256.hexdigest()
        if self.promised is not None and self.promised != sha256:
            raise ChecksumMismatch(f"SHA-256 mismatch: expected {self.promised}, got {sha256}")
        bucket = self._sink.bucket
        blob = None if bucket is None else whole_key(self.upload.id, bucket)
        self.upload = self._lifecycle.completed(
            self.upload, self._sink.durable, sha256, digest.head, blob
        )
        return self.upload

    async def make_blob(self) -> None:
        await self._lifecycle.make_blob(self.upload, self._sink.bucket)

    def mark_stored(self) -> None:
        """Called before the commit: from now on the upload counts instead of the charge, and keeps its bytes."""
        self._charge.close()
        self._quota.add(self.upload)
        self._sink.close()
        self._stored = True

    async def discard(self) -> None:
        """Remove the file, unless its record is or may be in the store."""
        if not self._stored:
            await self._sink.discard()
        self._charge.close()
        if not self._stored:
            await self._lifecycle.remove_bytes(self.upload)


class DirectUploads:
    """The direct uploads of one service."""

    def __init__(self, lifecycle: UploadLifecycle, quota: Quota, jobs: UploadJobs) -> None:
        self._lifecycle = lifecycle
        self._quota = quota
        self._jobs = jobs

    def begin(
        self, name: str, content_type: str, size: int | None = None, *, tenant: str = "-"
    ) -> DirectUpload:
        """Raise a Problem if a file of this size does not fit."""
        if size is not None:
            self._quota.check_size(size)
            self._quota.check(size)
        return DirectUpload(self._lifecycle, self._quota, name, content_type, size, tenant)

    async def store(self, file: DirectUpload) -> Upload:
        """Store a file. If this raises a Problem, nothing is stored and the caller discards the file."""
        await file.finish()
        stored = await finished(self._store([file], None))
        return stored.uploads[0]

    async def submit(
        self,
        submission: Submission,
        files: Sequence[tuple[str, DirectUpload]],
        *,
        key: str | None,
        trace_id: str,
        tenant: str = "-",
    ) -> Inserted:
        """Store files, by parameter, and the job that uses them in one transaction. If this raises a Problem, nothing is
        stored and the caller discards the files.
        """
        given: dict[str, list[Upload]] = {}
        for name, file in files:
            given.setdefault(name, []).append(await file.finish())
        new = await self._jobs.from_form(submission, given, key=key, trace_id=trace_id, tenant=tenant)
        stored = await finished(self._store([file for _, file in files], new))
        assert isinstance(stored.job, Inserted)  # otherwise a Problem was raised
        if not stored.job.created:  # the earlier job has its own copy of the files
            for upload in stored.uploads:
                await self._lifecycle.discard(upload)
        return stored.job

    async def _store(self, files: Sequence[DirectUpload], new: NewJob | None) -> StoredUploads:
        for file in files:
            await file.make_blob()
        for file in files:
            file.mark_stored()
        uploads = tuple(file.upload for file in files)
        try:
            return await self._lifecycle.store_finished(CompletedUploads(uploads, new))
        except Problem:
            # The idempotency key belongs to another job: the files were stored, the job was not.
            for upload in uploads:
                await self._lifecycle.discard(upload)
            raise
