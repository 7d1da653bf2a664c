"""Presigned uploads: the service signs requests with which clients send files directly to storage.

1. An object counts only after the service has verified its size, content type and checksum. Before that the service
   moves it to a key that no client has a signature for, so the verified bytes cannot change.
2. A complete request, a storage event and the upkeep all start the same verification; one of them is enough.
3. The service always asks storage and does not trust events. If storage is unavailable, nothing changes and the upkeep
   retries.
4. No replica owns a presigned upload; any replica may complete it.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator, Awaitable
from contextlib import aclosing, closing
from typing import Any

import msgspec
from msgspec.structs import replace

from bide.core.errors import (
    ChecksumMismatch,
    ErrorInfo,
    Gone,
    InvalidInput,
    NotFound,
    Problem,
    UploadConflict,
    WrongContent,
    WrongLength,
)
from bide.core.jobs.record import Job, Status
from bide.core.jobs.state_machine import Failed
from bide.core.wire.http import is_job_id
from bide.server.blobs import (
    UPLOADS,
    BlobMissing,
    Blobs,
    Signed,
    SignedReceiver,
    Signing,
    StoredPart,
    incoming_key,
    upload_key,
)
from bide.server.intake import accepted
from bide.server.media_types import HEAD
from bide.server.store import CompletedUploads, Inserted, Missing, NewJob, UploadStore, UploadUpdate
from bide.server.upload_record import Upload, UploadStatus, Way, owner_of
from bide.server.uploads.lifecycle import UploadLifecycle
from bide.server.uploads.quota import Charge, Quota, charged, reporting_full_disk
from bide.server.uploads.upload_jobs import UploadJob, UploadJobs

log = logging.getLogger("bide.uploads")
NO_REPLICA = ""  # the replica of uploads that no replica owns
MIN_PART = 8 * 1024 * 1024
# Seconds after which the upkeep checks an upload that no request or event completed. The interval then grows.
FIRST_CHECK = 30.0
MAX_CHECKED = 5000  # uploads per round
CONCURRENT_VERIFICATIONS = 4


class PresignedUploads:
    """The presigned uploads of one service. `seconds`: the lifetime of a signature."""

    def __init__(
        self,
        lifecycle: UploadLifecycle,
        store: UploadStore,
        blobs: Blobs,
        storage: Signing,
        jobs: UploadJobs,
        quota: Quota,
        seconds: int,
    ) -> None:
        self.seconds = seconds
        self._lifecycle = lifecycle
        self._store = store
        self._blobs = blobs
        self._storage = storage
        self._jobs = jobs
        self._quota = quota
        self._hints: set[str] = set()
        self._verifying = asyncio.Semaphore(CONCURRENT_VERIFICATIONS)

    # --- beginning

    async def begin(
        self, name: str, job: UploadJob | None, *, size: int, multipart: bool, **fields: Any
    ) -> tuple[Upload, Inserted | None]:
        """Store an upload and the job that waits for it. If this raises a Problem, nothing is stored."""
        past_service = self._storage.receiver is None
        upload = self._lifecycle.new(
            *(Way.PRESIGNED, name, job),
            replica=NO_REPLICA,
            size=size,
            past_service=past_service,
            **fields,
        )
        self._quota.check_size(size)
        self._quota.check_quota(size)
        if not past_service:
            self._quota.check_disk(size)
        if multipart:
            upload = await self._in_parts(upload, size)
        elif size > self._storage.largest_put:
            detail = f"storage accepts up to {self._storage.largest_put} bytes per request: set `multipart` to true"
            raise InvalidInput(detail, errors=[{"pointer": "/size", "detail": detail}])
        try:
            return await self._store_new(upload, job)
        except BaseException:
            await self._lifecycle.abort_parts(upload)
            raise

    async def _in_parts(self, upload: Upload, size: int) -> Upload:
        storage = self._storage
        length = max(MIN_PART, storage.smallest_part, -(-size // storage.most_parts))
        multipart = await storage.begin(upload_key(upload.id), upload.content_type)
        return replace(upload, chunk_size=length, metadata=multipart)

    async def _store_new(self, upload: Upload, job: UploadJob | None) -> tuple[Upload, Inserted | None]:
        if job is None:
            return await self._lifecycle.add(upload), None
        new = await self._jobs.check(upload, job.submission)
        if new.content or new.unique:
            # The content identifies the job, so the job cannot exist before the file is complete.
            return await self._lifecycle.add(upload, new), None
        new = _waiting(new, upload)
        stored = await self._lifecycle.add(replace(upload, job_id=new.job.id))
        try:
            (outcome,) = await self._store.insert([new])
            self._jobs.intake.learn(new, outcome)
            inserted = accepted(outcome, new)
        except BaseException:
            await self._lifecycle.discard(stored)
            raise
        if inserted.created:
            return stored, inserted
        # The idempotency key belongs to an earlier job: return that job and its upload.
        await self._lifecycle.discard(stored)
        return await self._upload_of(inserted.job, stored), inserted

    async def _upload_of(self, job: Job, repeated: Upload) -> Upload:
        """Return the upload that a job waits for or has used. `repeated` is the upload of the same request."""
        names = _uploads_in(msgspec.json.decode(await self._store.input(job.id)))
        for name in names:
            found = await self._store.upload(name)
            if isinstance(found, Upload) and found.job_id == job.id:
                return found
        # If the file was removed after the job, there is nothing to send.
        if names and job.status.terminal:
            return replace(repeated, id=names[0], status=UploadStatus.DONE, job_id=job.id)
        raise UploadConflict(f"the file of job {job.id} has been deleted; use another idempotency key")

    async def sign(self, upload: Upload) -> Signed | None:
        """Return the signed request for the file; None if the upload is multipart or complete."""
        if upload.metadata or upload.status is UploadStatus.DONE:
            return None
        size = upload.size or 0
        return await self._storage.sign_put(
            incoming_key(upload.id), upload.content_type, size, self.seconds
        )

    # --- receiving, if the storage is a folder of this service

    async def put(self, upload_id: str, body: AsyncIterator[bytes], size: int) -> str:
        """Store the file and return its ETag. A newer writer cancels an older one."""
        receiver = self.receiver()
        async with self._lifecycle.hold(f"{upload_id}/content"):
            upload = await self._open(upload_id)
            with closing(Charge(self._quota, reserved=True)) as charge:
                etag = await _stored(
                    receiver.receive(incoming_key(upload_id), charged(body, charge), size)
                )
                await self._received(upload, received=size)
                # Bytes of an earlier request are in the quota until the new ones have replaced them.
                if upload.received == 0:
                    charge.commit(size)
            return etag

    async def put_part(
        self, upload_id: str, multipart: str, number: int, body: AsyncIterator[bytes], size: int
    ) -> str:
        receiver = self.receiver()
        async with self._lifecycle.hold(f"{upload_id}/parts/{number}"):
            upload = await self._open(upload_id)
            with closing(Charge(self._quota, reserved=True)) as charge:
                key = upload_key(upload_id)
                etag = await _stored(
                    receiver.receive_part(key, multipart, number, charged(body, charge), size)
                )
                await self._received(upload, chunk=number - 1)
                if not upload.has_chunk(number - 1):
                    charge.commit(size)
            return etag

    def receiver(self) -> SignedReceiver:
        """Return the receiver of signed requests at this service. Raise NotFound if there is none."""
        receiver = self._storage.receiver
        if receiver is None:
            raise NotFound(
                "this service does not receive presigned uploads: use the URL that POST /uploads/presign returns"
            )
        return receiver

    async def _open(self, upload_id: str) -> Upload:
        upload = await self.find(upload_id)
        if upload.blob is not None:
            raise UploadConflict(f"upload {upload.id} is already complete")
        return upload

    async def _received(
        self, upload: Upload, received: int | None = None, chunk: int | None = None
    ) -> None:
        after = await self._store.receive(UploadUpdate(upload.id, received, chunk=chunk))
        if isinstance(after, Missing):
            await self._lifecycle.remove_bytes(upload)
            raise Gone(f"upload {upload.id} was deleted during the request, or has expired")

    # --- parts

    async def find(self, upload_id: str) -> Upload:
        upload = await self._lifecycle.find(upload_id)
        if upload.way is not Way.PRESIGNED:
            raise UploadConflict(
                f"upload {upload_id} is a {upload.way} upload, not a {Way.PRESIGNED} upload"
            )
        return upload

    async def open_parts(self, upload_id: str) -> Upload:
        upload = await self.find(upload_id)
        if not upload.metadata:
            raise UploadConflict(f"upload {upload_id} is not a multipart upload")
        if upload.status is UploadStatus.DONE:
            raise UploadConflict(f"upload {upload_id} is already complete")
        return upload

    async def sign_part(self, upload: Upload, number: int) -> tuple[Signed, int]:
        """Return the signed request for a part and the size of the part. Parts are numbered from 1."""
        if not 1 <= number <= upload.chunk_count:
            raise NotFound(f"upload {upload.id} has no part {number}, only 1 to {upload.chunk_count}")
        size = upload.chunk_length(number - 1)
        key = upload_key(upload.id)
        return await self._storage.sign_part(key, upload.metadata, number, size, self.seconds), size

    async def parts(self, upload: Upload) -> list[StoredPart]:
        try:
            return await self._storage.parts(upload_key(upload.id), upload.metadata)
        except BlobMissing:
            raise UploadConflict(
                f"storage no longer has the parts of upload {upload.id}; start a new upload"
            ) from None

    # --- completing

    async def complete(self, upload_id: str) -> Upload:
        """Verify the upload once for all concurrent requests, and continue if they disconnect."""
        upload = await self.find(upload_id)
        if upload.status is UploadStatus.DONE:
            return upload
        return await self._lifecycle.complete_once(upload_id, lambda: self._complete(upload))

    async def _complete(self, upload: Upload) -> Upload:
        async with self._verifying:
            await self._move_to_blob(upload)
            done = await self._verified(upload)
            what = await self._with_job(done)
        return (await self._lifecycle.store_finished(what)).uploads[0]

    async def _move_to_blob(self, upload: Upload) -> None:
        """Move the object to its final key, unless an earlier attempt did. Raise UploadConflict if it is incomplete."""
        key = upload_key(upload.id)
        if await self._storage.head(key) is not None:
            return
        if upload.metadata:
            parts = await self.parts(upload)
            _check_parts(upload, parts)
            if self._storage.receiver is not None:  # the parts are copied into one file
                self._quota.check_disk(upload.size or 0)
            await self._storage.finish(key, upload.metadata, parts)
            return
        found = await self._storage.head(incoming_key(upload.id))
        if found is None:
            raise UploadConflict(f"storage has no file for upload {upload.id} yet")
        declared = found.content_type
        if declared is not None and declared != upload.content_type:
            await self._remove_object(upload)
            raise WrongContent(
                f"Content-Type mismatch: expected {upload.content_type}, storage has {declared[:100]}"
            )
        await self._storage.move(incoming_key(upload.id), key, upload.content_type)

    async def _verified(self, upload: Upload) -> Upload:
        sha256, size, head = hashlib.sha256(), 0, b""
        async with aclosing(await self._blobs.open(upload_key(upload.id))) as pieces:
            async for data in pieces:
                await asyncio.to_thread(sha256.update, data)
                size += len(data)
                head = (head + data)[:HEAD] if len(head) < HEAD else head
        if size != upload.size:
            await self._remove_object(upload)
            raise WrongLength(f"size mismatch: expected {upload.size} bytes, storage has {size}")
        if upload.promised is not None and upload.promised != sha256.hexdigest():
            await self._remove_object(upload)
            raise ChecksumMismatch(
                f"SHA-256 mismatch: expected {upload.promised}, got {sha256.hexdigest()}"
            )
        return self._lifecycle.completed(upload, size, sha256.hexdigest(), head)

    async def _remove_object(self, upload: Upload) -> None:
        """Remove the bytes but not the upload: the client can send them again while the signature is valid."""
        await self._blobs.remove(owner_of(upload.id))

    async def _with_job(self, done: Upload) -> CompletedUploads:
        """Return the upload with its job: a new one, or the files of the job that waits."""
        if done.submission is None:
            return CompletedUploads((done,))
        try:
            new = await self._jobs.new_job(done)
        except WrongContent as problem:
            await self._fail_job(done, problem)
            raise
        if done.job_id is None:
            return CompletedUploads((done,), new)
        # The engine needs only queue and kind, which equal those of the waiting job.
        self._jobs.intake.hint(new)
        return CompletedUploads((done,), files=new.files)

    async def _fail_job(self, done: Upload, problem: Problem) -> None:
        """Fail the job that waits for a file of the wrong type, and discard the file."""
        if done.job_id is not None:
            error = ErrorInfo("WRONG_CONTENT", problem.detail, trace_id=done.trace_id)
            await self._store.apply([Failed(job_id=done.job_id, error=error)])
        await self._lifecycle.discard(done)

    # --- completing without a request

    def hint(self, upload_id: str) -> None:
        """Make the upkeep check this upload in its next round."""
        if len(self._hints) < MAX_CHECKED:
            self._hints.add(upload_id)

    @staticmethod
    def upload_in(key: str) -> str | None:
        """Return the id of the upload that a storage key belongs to; None for other keys."""
        *_, space, upload_id, name = ["", "", *key.split("/")]
        is_upload = space == UPLOADS and name in ("content", "incoming") and is_job_id(upload_id)
        return upload_id if is_upload else None

    async def tick(self) -> None:
        """The upkeep calls this in every round: completes uploads that were sent but never completed."""
        hints, self._hints = self._hints, set()
        for upload_id in hints:
            found = await self._store.upload(upload_id)
            if isinstance(found, Upload) and found.way is Way.PRESIGNED:
                await self._check(found)
        now = self._store.now()
        for upload in await self._store.unfinished(NO_REPLICA, now - FIRST_CHECK, MAX_CHECKED):
            if now - upload.updated_at >= upload.updated_at - upload.created_at:
                # Updates `updated_at`, so that the next check is later.
                await self._store.receive(UploadUpdate(upload.id))
                await self._check(upload)

    async def _check(self, upload: Upload) -> None:
        try:
            await self.complete(upload.id)
        except UploadConflict:
            return  # incomplete
        except Problem as problem:
            log.warning("cannot complete upload %s: %s", upload.id, problem.detail)


def _waiting(new: NewJob, upload: Upload) -> NewJob:
    """Return the job that waits for the file. Its fingerprint covers the request and not the upload id, which differs in
    each request.
    """
    job = replace(new.job, status=Status.UPLOADING, run=0, due=None)
    identity = msgspec.json.encode(
        [upload.submission, upload.name, upload.content_type, upload.size, upload.promised]
    )
    return replace(new, job=job, fingerprint=hashlib.sha256(identity).digest() if new.key else b"")


async def _stored(storing: Awaitable[str]) -> str:
    try:
        with reporting_full_disk():
            return await storing
    except BlobMissing as missing:
        raise UploadConflict(str(missing)) from None


def _uploads_in(value: object) -> list[str]:
    if isinstance(value, dict):
        name = value.get("upload")
        if len(value) == 1 and isinstance(name, str):
            return [name]
        return [found for part in value.values() for found in _uploads_in(part)]
    return [found for part in value for found in _uploads_in(part)] if isinstance(value, list) else []


def _check_parts(upload: Upload, parts: list[StoredPart]) -> None:
    sizes = {part.number: part.size for part in parts}
    wanted = {number + 1: upload.chunk_length(number) for number in range(upload.chunk_count)}
    wrong = [number for number, size in wanted.items() if sizes.get(number) != size]
    if wrong or sizes.keys() - wanted.keys():
        shown = ", ".join(map(str, wrong[:20]))
        raise UploadConflict(
            f"{len(wrong)} parts of upload {upload.id} are missing or have the wrong size: {shown}"
        )
