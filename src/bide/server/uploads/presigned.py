"""Uploads that go straight to storage, by requests that are signed here.

1. What was put counts for nothing until it was verified: size, content type, checksum. Before that it is moved to where
   nobody has a signature for, so what was verified is what stays.
2. Complete, an event of storage and the upkeep all lead to the same verification; only one of them has to come.
3. Storage is asked, nobody's word is taken. When it is away, all stays as it is and is tried again.
4. No replica owns such an upload: any of them may complete it.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing

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
from bide.core.job import Failed
from bide.core.media import HEAD
from bide.core.record import Job, Status
from bide.core.upload import Upload, UploadStatus, Way, owner_of
from bide.core.wire import is_job_id
from bide.server.blobs import (
    UPLOADS,
    BlobMissing,
    Part,
    Signed,
    Storage,
    incoming_key,
    upload_key,
)
from bide.server.intake import accepted
from bide.server.store import CompletedUploads, Missing, NewJob, UploadUpdate
from bide.server.uploads.reception import Reception
from bide.server.uploads.room import charged

log = logging.getLogger("bide.uploads")
Write = Callable[[AsyncIterator[bytes]], Awaitable[str]]  # what takes a body, and gives its checksum
NOBODY = ""  # the replica of uploads whose bytes are at none
LEAST_PART = 8 * 1024 * 1024
SOONEST = 30.0  # seconds after which storage is asked without anybody's word; then ever more seldom
MOST_ASKED = 5000  # uploads that are looked at in one round
AT_ONCE = 4  # large files that are verified at once


class Presigned:
    """One service's."""

    def __init__(self, reception: Reception, storage: Storage) -> None:
        self.storage = storage
        self._reception = reception
        self._store = reception.store
        self._completing: dict[str, asyncio.Future[Upload]] = {}
        self._hints: set[str] = set()
        self._verifying = asyncio.Semaphore(AT_ONCE)
        reception.forgets.append(self._abort)

    @property
    def seconds(self) -> int:
        """How long a signature is good."""
        return int(self._reception.config.signed)

    # --- beginning

    async def begin(self, upload: Upload, *, multipart: bool) -> tuple[Upload, Job | None]:
        """Stores it, and the job that waits for it. A Problem, and nothing is stored, when it could not come to that."""
        reception = self._reception
        size = upload.size or 0
        reception.room.check_size(size)
        reception.room.check_quota(size)
        if self.storage.through_service:
            reception.room.check_disk(size)
        else:
            upload = replace(upload, past_service=True)
        if multipart:
            upload = await self._in_parts(upload, size)
        elif size > self.storage.largest_put:
            detail = (
                f"storage takes up to {self.storage.largest_put} bytes in one request: ask for multipart"
            )
            raise InvalidInput(detail, errors=[{"pointer": "/size", "detail": detail}])
        try:
            return await self._store_new(upload)
        except BaseException:
            await self._abort(upload)
            raise

    async def _in_parts(self, upload: Upload, size: int) -> Upload:
        storage = self.storage
        length = max(LEAST_PART, storage.smallest_part, -(-size // storage.most_parts))
        multipart = await storage.begin(upload_key(upload.id), upload.content_type)
        return replace(upload, chunk_size=length, metadata=multipart)

    async def _store_new(self, upload: Upload) -> tuple[Upload, Job | None]:
        await self._reception.wishes.check(upload)
        waits = upload.submission is not None and not _by_content(upload)
        new = await self._waiting(upload) if waits else None
        if new is not None:
            upload = replace(upload, job_id=new.job.id)
        self._reception.room.add(upload)
        stored = await self._store.add_upload(upload)
        if new is None:
            return stored, None
        try:
            (outcome,) = await self._store.insert([new])
            inserted = accepted(outcome, new)
        except BaseException:
            await self._reception.discard(stored)
            raise
        if inserted.created:
            return stored, inserted.job
        # The same key: the upload that the first job waits for, or that it has had.
        await self._reception.discard(stored)
        return await self._upload_of(inserted.job), inserted.job

    async def _waiting(self, upload: Upload) -> NewJob:
        new = await self._reception.wishes.make([upload])
        job = replace(new.job, status=Status.UPLOADING, due=None)
        # Of what was asked for, and not of an id that is another one each time.
        asked = msgspec.json.encode(
            [upload.submission, upload.name, upload.content_type, upload.size, upload.promised]
        )
        return replace(new, job=job, fingerprint=hashlib.sha256(asked).digest() if new.key else b"")

    async def _upload_of(self, job: Job) -> Upload:
        for name in _uploads_in(msgspec.json.decode(await self._store.input(job.id))):
            found = await self._store.upload(name)
            if isinstance(found, Upload) and found.job_id == job.id:
                return found
        raise UploadConflict(f"job {job.id} has had its file, which is no longer kept")

    async def sign(self, upload: Upload) -> Signed | None:
        """The request that puts it; None when it comes in parts, or is there."""
        if upload.metadata or upload.status is UploadStatus.DONE:
            return None
        size = upload.size or 0
        return await self.storage.sign_put(
            incoming_key(upload.id), upload.content_type, size, self.seconds
        )

    # --- taking, where what is put passes through the service

    async def put(self, upload_id: str, write: Write, body: AsyncIterator[bytes], size: int) -> str:
        """One writer at a time: the newer one counts, as with every way. What `write` has returned is returned."""
        async with self._reception.turns.take(f"{upload_id}/content"):
            upload = await self._open(upload_id)
            return await self._put(upload, write, body, size, upload.received > 0, received=size)

    async def put_part(
        self, upload_id: str, number: int, write: Write, body: AsyncIterator[bytes], size: int
    ) -> str:
        async with self._reception.turns.take(f"{upload_id}/parts/{number}"):
            upload = await self._open(upload_id)
            again = upload.has_chunk(number - 1)
            return await self._put(upload, write, body, size, again, chunk=number - 1)

    async def _open(self, upload_id: str) -> Upload:
        upload = await self.find(upload_id)
        if upload.blob is not None:
            raise UploadConflict(f"upload {upload.id} is whole already")
        return upload

    async def _put(
        self,
        upload: Upload,
        write: Write,
        body: AsyncIterator[bytes],
        size: int,
        again: bool,
        **received: int,
    ) -> str:
        """What is there already is charged until the new bytes have replaced it, and so are those."""
        with self._reception.room.charge(reserved=True) as charge:
            etag = await write(charged(body, charge))
            after = await self._store.receive(UploadUpdate(upload.id, **received))
            if isinstance(after, Missing):
                await self._reception.remove_bytes(upload)
                raise Gone(f"upload {upload.id} was removed meanwhile, or has expired")
            if not again:
                charge.keep(size)
        return etag

    # --- parts

    async def find(self, upload_id: str) -> Upload:
        upload = await self._reception.find(upload_id)
        if upload.way is not Way.PRESIGNED:
            raise UploadConflict(
                f"upload {upload_id} comes by way of {upload.way}, not of {Way.PRESIGNED}"
            )
        return upload

    async def open_parts(self, upload_id: str) -> Upload:
        upload = await self.find(upload_id)
        if not upload.metadata:
            raise UploadConflict(f"upload {upload_id} comes in one piece")
        if upload.status is UploadStatus.DONE:
            raise UploadConflict(f"upload {upload_id} is whole already")
        return upload

    async def sign_part(self, upload: Upload, number: int) -> tuple[Signed, int]:
        """Numbers begin with 1."""
        if not 1 <= number <= upload.chunk_count:
            raise NotFound(f"the upload has parts 1 to {upload.chunk_count}")
        size = upload.chunk_length(number - 1)
        key = upload_key(upload.id)
        return await self.storage.sign_part(key, upload.metadata, number, size, self.seconds), size

    async def parts(self, upload: Upload) -> list[Part]:
        try:
            return await self.storage.parts(upload_key(upload.id), upload.metadata)
        except BlobMissing:
            raise UploadConflict(f"storage has no parts of upload {upload.id} any more") from None

    async def _abort(self, upload: Upload) -> None:
        if upload.way is Way.PRESIGNED and upload.metadata and upload.status is not UploadStatus.DONE:
            await self.storage.abort(upload_key(upload.id), upload.metadata)

    # --- the end

    async def complete(self, upload_id: str) -> Upload:
        """Verifies it, once, however many ask; goes to its end when they leave."""
        upload = await self.find(upload_id)
        if upload.status is UploadStatus.DONE:
            return upload
        running = self._completing.get(upload_id)
        if running is None:
            running = asyncio.ensure_future(self._complete(upload))
            self._completing[upload_id] = running
            running.add_done_callback(lambda done: self._completed(upload_id, done))
        return await asyncio.shield(running)

    def _completed(self, upload_id: str, done: asyncio.Future[Upload]) -> None:
        del self._completing[upload_id]
        if not done.cancelled():
            done.exception()  # whoever has asked is told; nobody may have stayed

    async def _complete(self, upload: Upload) -> Upload:
        async with self._verifying:
            await self._arrange(upload)
            done = await self._verified(upload)
            what = await self._finished(done)
        return (await self._reception.store_finished(what)).uploads[0]

    async def _arrange(self, upload: Upload) -> None:
        """Puts it where it stays, unless an earlier try has done so. UploadConflict when it is not all there."""
        key = upload_key(upload.id)
        if await self.storage.head(key) is not None:
            return
        if upload.metadata:
            parts = await self.parts(upload)
            _check_parts(upload, parts)
            if self.storage.through_service:  # which puts the parts together in a file of their own
                self._reception.room.check_disk(upload.size or 0)
            await self.storage.finish(key, upload.metadata, parts)
            return
        found = await self.storage.head(incoming_key(upload.id))
        if found is None:
            raise UploadConflict(f"nothing was put for upload {upload.id} yet")
        declared = found.content_type
        if declared is not None and declared != upload.content_type:
            await self._throw_away(upload)
            raise WrongContent(
                f"storage has it as {declared[:100]}, and {upload.content_type} was announced"
            )
        await self.storage.move(incoming_key(upload.id), key, upload.content_type)

    async def _verified(self, upload: Upload) -> Upload:
        sha256, size, head = hashlib.sha256(), 0, b""
        async with aclosing(await self._reception.blobs.open(upload_key(upload.id))) as pieces:
            async for data in pieces:
                await asyncio.to_thread(sha256.update, data)
                size += len(data)
                head = (head + data)[:HEAD] if len(head) < HEAD else head
        if size != upload.size:
            await self._throw_away(upload)
            raise WrongLength(f"storage has {size} bytes, and {upload.size} were announced")
        if upload.promised is not None and upload.promised != sha256.hexdigest():
            await self._throw_away(upload)
            raise ChecksumMismatch(
                f"the file has the SHA-256 {sha256.hexdigest()}, and {upload.promised} was promised"
            )
        return self._reception.whole(upload, size, sha256.hexdigest(), head)

    async def _throw_away(self, upload: Upload) -> None:
        """The bytes; the upload stays, and can be put again as long as its signature holds."""
        await self._reception.blobs.remove(owner_of(upload.id))

    async def _finished(self, done: Upload) -> CompletedUploads:
        """With the job that it leads to: a new one, or the one that waits."""
        if done.submission is None:
            return CompletedUploads((done,))
        try:
            new = await self._reception.wishes.make([done])
        except WrongContent as problem:
            await self._refuse(done, problem)
            raise
        if done.job_id is None:
            return CompletedUploads((done,), new)
        self._reception.wishes.stored(
            new
        )  # by its queue and kind, which are those of the one that waits
        return CompletedUploads((done,), files=new.files)

    async def _refuse(self, done: Upload, problem: Problem) -> None:
        """A file that its job does not take: the job says so, and the bytes go."""
        if done.job_id is not None:
            error = ErrorInfo("WRONG_CONTENT", problem.detail, trace_id=done.trace_id)
            await self._store.apply([Failed(job_id=done.job_id, error=error)])
        await self._reception.discard(done)

    # --- without anybody's word

    def hint(self, upload_id: str) -> None:
        """Somebody says that it was put: it is looked at in the next round."""
        if len(self._hints) < MOST_ASKED:
            self._hints.add(upload_id)

    @staticmethod
    def upload_in(key: str) -> str | None:
        """The upload that an object of storage belongs to; None when it is something else."""
        *_, space, upload_id, name = ["", "", *key.split("/")]
        ours = space == UPLOADS and name in ("content", "incoming") and is_job_id(upload_id)
        return upload_id if ours else None

    async def tend(self) -> None:
        """Called by the upkeep, at every round: completes what was put and never completed."""
        hints, self._hints = self._hints, set()
        for upload_id in hints:
            found = await self._store.upload(upload_id)
            if isinstance(found, Upload) and found.way is Way.PRESIGNED:
                await self._look(found)
        now = self._store.now()
        for upload in await self._store.unfinished(NOBODY, now - SOONEST, MOST_ASKED):
            if now - upload.updated_at >= upload.updated_at - upload.created_at:
                await self._store.receive(
                    UploadUpdate(upload.id)
                )  # that it was looked at: the next time is later
                await self._look(upload)

    async def _look(self, upload: Upload) -> None:
        try:
            await self.complete(upload.id)
        except UploadConflict:
            return  # not all there yet
        except Problem as problem:
            log.warning("upload %s: %s", upload.id, problem.detail)


def _by_content(upload: Upload) -> bool:
    """Whether its job depends on what is in it, and so cannot be there before."""
    assert upload.submission is not None
    return msgspec.json.decode(upload.submission).get("dedupe") is not None


def _uploads_in(value: object) -> list[str]:
    if isinstance(value, dict):
        name = value.get("upload")
        if len(value) == 1 and isinstance(name, str):
            return [name]
        return [found for part in value.values() for found in _uploads_in(part)]
    return [found for part in value for found in _uploads_in(part)] if isinstance(value, list) else []


def _check_parts(upload: Upload, parts: list[Part]) -> None:
    there = {part.number: part.size for part in parts}
    wanted = {number + 1: upload.chunk_length(number) for number in range(upload.chunk_count)}
    wrong = [number for number, size in wanted.items() if there.get(number) != size]
    if wrong or there.keys() - wanted.keys():
        shown = ", ".join(map(str, wrong[:20]))
        raise UploadConflict(f"{len(wrong)} parts are missing or have another size: {shown}")
