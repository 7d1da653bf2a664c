"""Takes uploads in: begins them, keeps what arrives, and makes blobs and jobs of those that are whole.

1. What a sender is told to be received is on disk, and in the record.
2. A whole upload, its record and its job are one transaction of the store. The bytes are a blob before it.
3. An upload that is whole and was not finished, because the service or its storage failed in between, is finished by
   `tend`, without its sender.
4. One writer at a time: see `turns`.
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
from bide.core.media import HEAD, detect
from bide.core.record import Job
from bide.core.upload import Upload, UploadStatus, Way, owner_of
from bide.server.blobs import BlobMissing, Blobs, upload_key
from bide.server.config import UploadConfig
from bide.server.durable_files import FILE_MODE, finished
from bide.server.intake import accepted
from bide.server.store import (
    CompletedUploads,
    JobStore,
    Missing,
    NewJob,
    StoredUploads,
    UploadRecords,
    UploadUpdate,
)
from bide.server.uploads.lane import Lane
from bide.server.uploads.room import Room
from bide.server.uploads.staging import Digest, Staging
from bide.server.uploads.turns import Turns
from bide.server.uploads.wishes import Wishes

log = logging.getLogger("bide.uploads")
T = TypeVar("T")
STORING = 2  # uploads that are stored at the same time


class UploadStore(JobStore, UploadRecords, Protocol):
    """A store that keeps uploads, too."""


class Reception:
    """One service's."""

    def __init__(
        self,
        store: UploadStore,
        blobs: Blobs,
        wishes: Wishes,
        staging: Staging,
        config: UploadConfig,
    ) -> None:
        self.store = store
        self.blobs = blobs
        self.wishes = wishes
        self.staging = staging
        self.config = config
        self.room = Room(config, staging.root)
        self.lane = Lane()
        self.turns = Turns(self.lane)
        # What one commit of many uploads brings is answered in one go, and polls wait for that. So they are let through by
        # twos, however many have arrived.
        self.door = asyncio.Semaphore(STORING)
        self.replica = ""
        # Of ways whose bytes are elsewhere, too: what is called before they are removed.
        self.forgets: list[Callable[[Upload], Awaitable[None]]] = []

    def open(self, replica: str) -> None:
        """The name is known, and the folder ours, only when the service starts."""
        self.replica = replica
        self.staging.prepare()

    # --- looking

    async def find(self, upload_id: str) -> Upload:
        found = await self.store.upload(upload_id)
        if isinstance(found, Missing):
            if found.gone:
                raise Gone(f"upload {upload_id} was removed, or has expired")
            raise NotFound(f"there is no upload {upload_id[:100]!r}")
        return found

    async def unfinished(self, upload_id: str, way: Way) -> Upload:
        """One that bytes can be added to, here."""
        upload = await self.find(upload_id)
        self.check_unfinished(upload, way)
        return upload

    def check_unfinished(self, upload: Upload, way: Way) -> None:
        if upload.way is not way:
            raise UploadConflict(f"upload {upload.id} comes by way of {upload.way}, not of {way}")
        if upload.status is UploadStatus.DONE:
            raise UploadConflict(f"upload {upload.id} is whole already")
        self.check_here(upload)

    def check_here(self, upload: Upload) -> None:
        if upload.replica != self.replica:
            raise MisdirectedUpload(
                f"upload {upload.id} was begun at replica {upload.replica}, and this is {self.replica}"
            )

    def expiry(self) -> float:
        return self.store.now() + self.config.lifetime

    # --- beginning

    async def begin(self, way: Way, name: str, upload_id: str, **fields: Any) -> Upload:
        """Stores a new one, when there is room for it and a job could come of it."""
        await self.lane.turn()
        now = self.store.now()
        upload = Upload(
            upload_id, way, name, now, now, replica=self.replica, expires_at=self.expiry(), **fields
        )
        if upload.size is not None:
            self.room.check_size(upload.size)
        self.room.check(upload.size or 0)
        await self.wishes.check(upload)
        self.room.add(upload)
        async with self.door:
            stored = await self.store.add_upload(upload)
        await self.lane.turn()
        return stored

    async def note(
        self,
        upload: Upload,
        *,
        received: int | None = None,
        chunk: int | None = None,
        expires_in: float | None = None,
    ) -> Upload:
        """What is on disk now; a caller that leaves meanwhile changes nothing of it."""
        expires_at = self.expiry() if expires_in is None else self.store.now() + expires_in
        progress = UploadUpdate(upload.id, received, upload.size, chunk, expires_at)
        after = await surely(self._receive(progress))
        await self.lane.turn()
        if isinstance(after, Missing):
            raise Gone(f"upload {upload.id} was removed meanwhile, or has expired")
        return after

    async def _receive(self, progress: UploadUpdate) -> Upload | Missing:
        async with self.door:
            return await self.store.receive(progress)

    # --- the end

    async def finish(self, upload: Upload) -> StoredUploads:
        """Makes a blob of a whole upload, and the job that was asked for, if one was. Once begun it goes to its end."""
        return await surely(self._finish(upload))

    async def _finish(self, upload: Upload) -> StoredUploads:
        assert upload.size is not None
        path, digest = self.staging.path(upload.id), self.staging.take_digest(upload.id, upload.size)
        if digest.at == digest.length == upload.size:
            sha256, head = digest.sha256.hexdigest(), digest.head
        else:
            sha256, head = await self.staging.run(_complete, path, upload.size, digest)
        done = self.whole(upload, upload.size, sha256, head)
        if upload.promised is not None and upload.promised != sha256:
            await self.discard(done)
            raise ChecksumMismatch(
                f"the file has the SHA-256 {sha256}, and {upload.promised} was promised"
            )
        new, problem = await self._wished(done)
        await self.blobs.adopt(upload_key(upload.id), path, upload.content_type)
        kept = await self.store_finished(CompletedUploads((done,), new))
        if problem is not None:
            raise problem
        return kept

    async def recovered(self, upload: Upload) -> Upload:
        """The upload when its bytes are where they are to be. A crash right before the record of the whole leaves them
        as a blob already: then it is finished now.
        """
        if upload.received == 0 or self.staging.has_digest(upload.id, upload.received):
            return upload
        if await self.staging.run(_is_there, self.staging.path(upload.id), upload.received):
            return upload
        key, sha256, size, head = upload_key(upload.id), hashlib.sha256(), 0, b""
        try:
            async for data in await self.blobs.open(key):
                sha256.update(data)
                head, size = head or data[:HEAD], size + len(data)
        except BlobMissing:  # and not when storage is only away: then they may well be there
            log.error(
                "the bytes of upload %s are neither in %s nor a blob", upload.id, self.staging.root
            )
            await self.discard(upload)
            raise Gone(f"the bytes of upload {upload.id} are lost: begin it again") from None
        done = self.whole(upload, size, sha256.hexdigest(), head)
        new, _ = await self._wished(done)
        return (await self.store_finished(CompletedUploads((done,), new))).uploads[0]

    async def check_head(self, upload: Upload) -> None:
        """As soon as the first bytes are there: a file of the wrong type is not to be sent to its end."""
        if upload.submission is None or upload.partial:
            return
        try:
            if not self.wishes.choosy(upload):
                return
            head = await self.staging.head(upload.id)
            await self.wishes.make([self.whole(upload, upload.received, "", head)])
        except WrongContent:
            await self.discard(upload)
            raise
        except Problem:
            return  # told at the end, when it may be otherwise

    def whole(self, upload: Upload, size: int, sha256: str, head: bytes) -> Upload:
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

    async def _wished(self, done: Upload) -> tuple[NewJob | None, Problem | None]:
        """A file of the wrong type is thrown away; any other reason that no job comes of it leaves the upload."""
        if done.submission is None:
            return None, None
        try:
            return await self.wishes.make([done]), None
        except WrongContent:
            await self.discard(done)
            raise
        except Problem as problem:
            return None, problem

    async def store_finished(self, what: CompletedUploads) -> StoredUploads:
        async with self.door:
            storing = self.store.finish(what)
            if what.new is not None:
                self.wishes.stored(what.new)
            kept = await surely(storing)
        await self.lane.turn()
        if isinstance(kept, Missing):
            for upload in what.uploads:
                await self.remove_bytes(upload)
            raise Gone("the upload was removed meanwhile, or has expired")
        if kept.job is not None and what.new is not None:
            accepted(kept.job, what.new)  # a Problem when its key was used for something else
        return kept

    # --- removal

    async def remove(self, upload_id: str) -> None:
        """Cuts off whoever writes it."""
        async with self.turns.take(upload_id):
            await self.find(upload_id)
            removed = await self.store.remove_upload(upload_id)
            if isinstance(removed, Missing):
                raise Gone(f"upload {upload_id} was removed before")
            if not isinstance(removed, Upload):
                raise UploadConflict(f"job {removed.job_id} uses the upload: delete that one first")
            self.room.remove(removed)
            await self.remove_bytes(removed)

    async def discard(self, upload: Upload) -> None:
        """One that can never become anything."""
        removed = await self.store.remove_upload(upload.id)
        if isinstance(removed, Upload):
            self.room.remove(removed)
        await self.remove_bytes(upload)

    async def remove_bytes(self, upload: Upload) -> None:
        for forget in self.forgets:
            await forget(upload)
        await self.staging.remove(upload.id)
        await self.blobs.remove(owner_of(upload.id))


def job_of(kept: StoredUploads) -> Job | None:
    return getattr(kept.job, "job", None)


def _complete(path: Path, size: int, digest: Digest) -> tuple[str, bytes]:
    """In a thread: the checksum and the first bytes of a file that is cut to its size."""
    if size == 0:
        path.touch(FILE_MODE)
    with path.open("r+b", buffering=0) as file:
        if os.fstat(file.fileno()).st_size > size:
            file.truncate(size)
            os.fdatasync(file.fileno())
        digest.catch_up(path, size)
        file.seek(0)
        return digest.sha256.hexdigest(), file.read(HEAD)


def _is_there(path: Path, size: int) -> bool:
    try:
        return path.stat().st_size >= size
    except FileNotFoundError:
        return False


async def surely(awaited: Awaitable[T]) -> T:
    """To its end, even when who waits for it is cut off."""
    return await finished(asyncio.ensure_future(awaited))
