"""The operations on uploads inside a transaction, the same for every store: one function per operation.

An operation may run twice if the response to the first commit was lost; the second run changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from bide.core.errors import ErrorInfo
from bide.core.jobs.record import Job, Status
from bide.core.jobs.state_machine import Failed, Uploaded
from bide.server.store import (
    CompletedUploads,
    Inserted,
    Missing,
    StoredUploads,
    UploadInUse,
    UploadUpdate,
)
from bide.server.store.operations import apply, gone, insert
from bide.server.store.transaction import Transaction
from bide.server.upload_record import Upload, UploadStatus, Way, with_chunk

ABANDONED = ErrorInfo("UPLOAD_ABANDONED", "the upload of its file expired before it was complete")
REMOVED = ErrorInfo("UPLOAD_REMOVED", "the upload of its file was removed before it was complete")

# Seconds that a file of a replayed submission is kept, so that the client can repeat a request whose response was lost.
DUPLICATE_LIFETIME = 3600.0


def add(tx: Transaction, upload: Upload) -> Upload:
    known = tx.upload(upload.id)
    if known is not None:
        return known
    tx.put_upload(upload)
    return upload


def receive(tx: Transaction, received: UploadUpdate) -> Upload | Missing:
    upload = tx.upload(received.upload_id)
    if upload is None:
        return gone(tx, received.upload_id)
    if upload.status is UploadStatus.DONE:
        return upload
    bucket = upload.bucket
    if received.bucket is not None:
        if bucket is None or bucket.writer != received.bucket.writer:
            return upload  # another process has taken it over
        bucket = received.bucket
    elif received.writer is not None and bucket is not None:
        bucket = replace(bucket, writer=received.writer)
    after = replace(
        upload,
        updated_at=tx.now,
        bucket=bucket,
        received=max(upload.received, received.received or 0),
        size=upload.size if received.size is None else received.size,
        chunks=upload.chunks if received.chunk is None else with_chunk(upload.chunks, received.chunk),
        expires_at=received.expires_at or upload.expires_at,
    )
    if after.way is Way.CHUNKS and after.has_all_chunks:
        after = replace(after, received=after.size)  # complete, so the upkeep finishes it after a crash
    tx.put_upload(after)
    return after


def finish(tx: Transaction, finished: CompletedUploads) -> StoredUploads | Missing:
    known = [tx.upload(upload.id) for upload in finished.uploads]
    for upload, stored in zip(finished.uploads, known, strict=True):
        if stored is None and tx.was_removed(upload.id):
            return Missing(gone=True)
    if known and all(stored is not None and stored.status is UploadStatus.DONE for stored in known):
        return _earlier_result(tx, [stored for stored in known if stored is not None])
    for upload in finished.uploads:
        tx.put_upload(upload)
    outcome = None
    if finished.new is not None:
        outcome = insert(tx, finished.new)
        if isinstance(outcome, Inserted):
            for upload in finished.uploads:
                linked = replace(upload, job_id=outcome.job.id)
                if not outcome.created:  # the earlier job has its own copy of the file
                    expires_at = min(tx.now + DUPLICATE_LIFETIME, linked.expires_at or tx.now)
                    linked = replace(linked, expires_at=expires_at, replayed=True)
                tx.put_upload(linked)
    elif finished.files:
        outcome = _make_job_due(tx, finished)
    return StoredUploads(tuple(tx.upload(u.id) or u for u in finished.uploads), outcome)


def _earlier_result(tx: Transaction, uploads: list[Upload]) -> StoredUploads:
    """The result of the first run."""
    job = None if uploads[0].job_id is None else tx.job(uploads[0].job_id)
    inserted = None if job is None else Inserted(job, created=not uploads[0].replayed)
    return StoredUploads(tuple(uploads), inserted)


def _make_job_due(tx: Transaction, finished: CompletedUploads) -> Inserted | None:
    """Make the job that waits for the uploads due; None if it has already ended."""
    (job_id,) = {upload.job_id for upload in finished.uploads}
    assert job_id is not None
    after = apply(tx, Uploaded(job_id=job_id))
    if not isinstance(after, Job):
        return None
    tx.keep_files(job_id, finished.files)
    for file in finished.files:
        if file.upload is not None:
            tx.use_upload(file.upload, after)
    return Inserted(after, created=False)


def remove(tx: Transaction, upload_id: str) -> Upload | UploadInUse | Missing:
    upload = tx.upload(upload_id)
    if upload is None:
        return gone(tx, upload_id)
    tx.flush()
    users = tx.read_uses(upload=upload_id)
    if users:
        return UploadInUse(users[0])
    _drop(tx, upload, REMOVED)
    return upload


def expire(tx: Transaction, upload_ids: Iterable[str], inputs: float | None) -> list[Upload]:
    """Remove those uploads that have expired, and that no job uses. Another process may have stored such a job, or removed
    the upload, since the caller found them.
    """
    tx.flush()
    ended = None if inputs is None else tx.now - inputs
    removed = []
    for upload_id in upload_ids:
        upload = tx.upload(upload_id)
        if upload is None or upload.expires_at is None or upload.expires_at > tx.now:
            continue
        if not tx.read_uses(upload=upload_id, ended=ended):
            _drop(tx, upload, ABANDONED)
            removed.append(upload)
    return removed


def _drop(tx: Transaction, upload: Upload, error: ErrorInfo) -> None:
    tx.drop_upload(upload)
    job = None if upload.job_id is None else tx.job(upload.job_id)
    if job is not None and job.status is Status.UPLOADING:
        apply(tx, Failed(job_id=job.id, error=error))
