"""Uploads in numbered chunks, sent in any order and in parallel, written into one file.

1. A chunk counts when all of it is on disk. The client sends an incomplete chunk again.
2. A chunk that is on disk is not written again; a repeated request gets the same response.
3. A thread computes the checksum of the chunks that are on disk without a gap.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from bide.core.errors import NotFound, UploadConflict, WrongLength
from bide.server.media_types import HEAD
from bide.server.store import StoredUploads
from bide.server.upload_record import Upload, UploadStatus, Way
from bide.server.uploads.quota import Charge, charged, disk_problem
from bide.server.uploads.staging import Sink
from bide.server.uploads.upload_service import UploadService

DEFAULT_CHUNK = 8 * 1024 * 1024
MIN_CHUNK = 64 * 1024
MAX_CHUNK = 1024**3


class Chunks:
    """Chunked uploads of one upload service."""

    def __init__(self, uploads: UploadService) -> None:
        self._uploads = uploads
        self._hashing: dict[str, asyncio.Future[None]] = {}
        # Bytes of interrupted chunks stay on disk and in the quota until the chunk is sent again.
        self._incomplete: dict[str, dict[int, Charge]] = {}
        uploads.on_remove.append(self._release)

    async def put(
        self, upload_id: str, number: int, body: AsyncIterator[bytes], announced: int | None
    ) -> Upload:
        async with self._uploads.locks.hold(f"{upload_id}/{number}"):
            upload = await self._uploads.unfinished(upload_id, Way.CHUNKS)
            if number >= upload.chunk_count:
                raise NotFound(
                    f"upload {upload_id} has no chunk {number}, only 0 to {upload.chunk_count - 1}"
                )
            length = upload.chunk_length(number)
            if announced is not None and announced != length:
                raise WrongLength(
                    f"Content-Length is {announced}, but chunk {number} has {length} bytes"
                )
            if upload.has_chunk(number):
                async for _ in body:
                    pass
                return upload
            incomplete = self._incomplete.setdefault(upload_id, {})
            if (earlier := incomplete.pop(number, None)) is not None:
                earlier.close()
            charge = incomplete[number] = self._uploads.quota.charge(reserved=True)
            await self._write(upload, number, charged(body, charge), length)
            upload = await self._uploads.record(upload, chunk=number)
            charge.commit(length)
            incomplete.pop(number).close()
        if number == 0 and length >= HEAD:
            await self._uploads.check_head(upload)
        self._hash(upload)
        return upload

    async def _write(self, upload: Upload, number: int, body: AsyncIterator[bytes], length: int) -> None:
        assert upload.chunk_size is not None
        staging = self._uploads.staging
        begin = number * upload.chunk_size
        sink = Sink(staging, staging.path(upload.id), begin, None)
        try:
            async for data in body:
                if sink.position + len(data) > begin + length:
                    raise WrongLength(
                        f"the request sends more than the {length} bytes of chunk {number}"
                    )
                await sink.write(data)
            if sink.position != begin + length:
                raise WrongLength(
                    f"the request sent {sink.position - begin} of the {length} bytes of chunk {number}"
                )
            await sink.sync()
        except BaseException as error:
            await sink.abort()
            problem = disk_problem(error) if isinstance(error, OSError) else None
            if problem is not None:
                raise problem from error
            raise

    async def _release(self, upload: Upload) -> None:
        for earlier in self._incomplete.pop(upload.id, {}).values():
            earlier.close()

    def _hash(self, upload: Upload) -> None:
        """Hashes the bytes before the first gap, with one thread per upload."""
        assert upload.chunk_size is not None and upload.size is not None
        missing = upload.missing
        goal = min(missing[0] * upload.chunk_size, upload.size) if missing else upload.size
        if upload.id in self._hashing:
            return
        staging = self._uploads.staging
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
        """Finishes the upload. Raises UploadConflict with the missing chunks if there are any."""
        async with self._uploads.locks.hold(upload_id):
            upload = await self._uploads.find(upload_id)
            if upload.status is UploadStatus.DONE:
                return upload, None
            upload = await self._uploads.unfinished(upload_id, Way.CHUNKS)
            if upload.missing:
                shown = ", ".join(map(str, upload.missing[:20]))
                raise UploadConflict(
                    f"{len(upload.missing)} chunks of upload {upload_id} are missing: {shown}"
                )
            hashing = self._hashing.get(upload_id)
            if hashing is not None:
                with contextlib.suppress(OSError):
                    await asyncio.wait([hashing])
            upload = await self._uploads.record(upload, received=upload.size)
            stored = await self._uploads.finish(upload)
            await self._release(upload)
            return stored.uploads[0], stored
