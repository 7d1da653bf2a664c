"""An upload in numbered chunks, in any order and several at once, into one file.

1. A chunk counts when all of it is on disk; half of one counts for nothing and is sent again.
2. A chunk that is there is not written again: whoever sends it twice is answered as the first time.
3. The checksum follows behind in a thread, as far as chunks are there without a gap.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from bide.core.errors import NotFound, UploadConflict, WrongLength
from bide.core.media import HEAD
from bide.core.upload import Upload, UploadStatus, Way
from bide.server.store import StoredUploads
from bide.server.uploads.reception import Reception
from bide.server.uploads.room import Charge, charged, told
from bide.server.uploads.staging import Sink

DEFAULT_CHUNK = 8 * 1024 * 1024
LEAST_CHUNK = 64 * 1024
MOST_CHUNK = 1024**3


class Chunks:
    """One service's."""

    def __init__(self, reception: Reception) -> None:
        self._reception = reception
        self._hashing: dict[str, asyncio.Future[None]] = {}
        # Bytes of chunks that were cut off stay on the disk, and charged, until the chunk comes again.
        self._halves: dict[str, dict[int, Charge]] = {}
        reception.forgets.append(self._forget)

    async def put(
        self, upload_id: str, number: int, body: AsyncIterator[bytes], announced: int | None
    ) -> Upload:
        async with self._reception.turns.take(f"{upload_id}/{number}"):
            upload = await self._reception.unfinished(upload_id, Way.CHUNKS)
            if number >= upload.chunk_count:
                raise NotFound(f"the upload has chunks 0 to {upload.chunk_count - 1}")
            length = upload.chunk_length(number)
            if announced is not None and announced != length:
                raise WrongLength(f"chunk {number} has {length} bytes, and {announced} are announced")
            if upload.has_chunk(number):
                async for _ in body:
                    pass
                return upload
            halves = self._halves.setdefault(upload_id, {})
            if (half := halves.pop(number, None)) is not None:
                half.close()
            charge = halves[number] = self._reception.room.charge(reserved=True)
            await self._write(upload, number, charged(body, charge), length)
            upload = await self._reception.note(upload, chunk=number)
            charge.keep(length)
            halves.pop(number).close()
        if number == 0 and length >= HEAD:
            await self._reception.check_head(upload)
        self._hash(upload)
        return upload

    async def _write(self, upload: Upload, number: int, body: AsyncIterator[bytes], length: int) -> None:
        assert upload.chunk_size is not None
        staging = self._reception.staging
        begin = number * upload.chunk_size
        sink = Sink(staging, staging.path(upload.id), begin, None)
        try:
            async for data in body:
                if sink.taken + len(data) > begin + length:
                    raise WrongLength(f"chunk {number} has {length} bytes, and more came")
                await sink.write(data)
            if sink.taken != begin + length:
                raise WrongLength(f"chunk {number} has {length} bytes, and {sink.taken - begin} came")
            await sink.settle()
        except BaseException as error:
            await sink.give_up()
            problem = told(error) if isinstance(error, OSError) else None
            if problem is not None:
                raise problem from error
            raise

    async def _forget(self, upload: Upload) -> None:
        for half in self._halves.pop(upload.id, {}).values():
            half.close()

    def _hash(self, upload: Upload) -> None:
        """As far as there is no gap; one thread an upload."""
        assert upload.chunk_size is not None and upload.size is not None
        missing = upload.missing
        goal = min(missing[0] * upload.chunk_size, upload.size) if missing else upload.size
        if upload.id in self._hashing:
            return
        staging = self._reception.staging
        digest = staging.take_digest(upload.id, upload.size)
        if digest.at >= goal:
            staging.keep_digest(upload.id, digest)
            return
        hashing = staging.run(digest.catch_up, staging.path(upload.id), goal)
        self._hashing[upload.id] = hashing

        def hashed(future: asyncio.Future[None]) -> None:
            self._hashing.pop(upload.id, None)
            if not future.cancelled() and future.exception() is None:
                staging.keep_digest(upload.id, digest)

        hashing.add_done_callback(hashed)

    async def complete(self, upload_id: str) -> tuple[Upload, StoredUploads | None]:
        """UploadConflict, with what is missing, when it is not whole."""
        async with self._reception.turns.take(upload_id):
            upload = await self._reception.find(upload_id)
            if upload.status is UploadStatus.DONE:
                return upload, None
            upload = await self._reception.unfinished(upload_id, Way.CHUNKS)
            if upload.missing:
                shown = ", ".join(map(str, upload.missing[:20]))
                raise UploadConflict(f"{len(upload.missing)} chunks are missing: {shown}")
            hashing = self._hashing.get(upload_id)
            if hashing is not None:
                with contextlib.suppress(OSError):
                    await asyncio.wait([hashing])
            upload = await self._reception.note(upload, received=upload.size)
            kept = await self._reception.finish(upload)
            await self._forget(upload)
            return kept.uploads[0], kept
