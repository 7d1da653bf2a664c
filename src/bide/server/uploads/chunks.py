"""Uploads in numbered chunks, sent in any order and in parallel, written into one file.

1. A chunk counts when all of it is on disk. The client sends an incomplete chunk again.
2. A chunk that is on disk is not written again; a repeated request gets the same response.
3. The request with the last missing chunk finishes the upload. The record of that chunk says that the upload is complete, so
   the upkeep finishes it if the service fails in between.
4. A thread computes the checksum of the chunks that are on disk without a gap.
5. A chunk is written only if the recorded ones are in the same file, so that no file has a hole.
6. In a bucket, a chunk is a part or an object, and any replica receives it. The complete object is read for its checksum.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from msgspec.structs import replace

from bide.core.errors import NotFound, TakenOver, UploadConflict, WrongLength
from bide.server.media_types import HEAD
from bide.server.upload_record import Upload, UploadStatus, Way
from bide.server.uploads.bucket import BucketChunkSink
from bide.server.uploads.lifecycle import UploadLifecycle
from bide.server.uploads.quota import Charge, Quota
from bide.server.uploads.staging import BytesLost, Sink, Staging

DEFAULT_CHUNK = 8 * 1024 * 1024
MIN_CHUNK = 64 * 1024
MAX_CHUNK = 1024**3


class ChunkedUploads:
    """The chunked uploads of one service."""

    def __init__(self, lifecycle: UploadLifecycle, staging: Staging, quota: Quota) -> None:
        self._lifecycle = lifecycle
        self._staging = staging
        self._quota = quota
        self._hashing: dict[str, asyncio.Future[None]] = {}

    async def put(
        self, upload_id: str, number: int, body: AsyncIterator[bytes], announced: int | None
    ) -> Upload:
        """Store a chunk. The last missing chunk completes the upload. Its request is repeated if the response was lost."""
        head = b""
        async with self._lifecycle.hold(f"{upload_id}/{number}"):
            upload = await self._lifecycle.find(upload_id)
            if upload.way is not Way.CHUNKS or upload.status is not UploadStatus.DONE:
                self._lifecycle.check_unfinished(upload, Way.CHUNKS)
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
            elif (found := await self._recovered(upload)).status is UploadStatus.DONE:
                upload = found
            else:
                charge = self._quota.charge_chunk(upload_id, number)
                head = await self._write(upload, number, body, length, charge)
                upload = await self._lifecycle.record(upload, chunk=number)
                charge.commit(length)
                self._quota.release(upload_id, number)
        if upload.has_all_chunks or upload.status is UploadStatus.DONE:
            return await self.complete(upload_id)
        if number == 0 and length >= HEAD:
            await self._lifecycle.check_head(upload, head)
        if upload.bucket is None:
            self._hash(upload)
        return upload

    async def _recovered(self, upload: Upload) -> Upload:
        """Checks that the recorded chunks are on disk. After a lossy failover of the database they may have left the staging
        folder with a complete upload; a new file there would have a hole.
        """
        end = upload.chunks_end
        if upload.bucket is not None:
            return upload  # the storage rejects a part of a multipart upload that does not exist
        if end == 0 or await self._staging.has(upload.id, end):
            return upload
        missing = replace(upload, received=end)
        return await self._lifecycle.complete_once(upload.id, lambda: self._lifecycle.recovered(missing))

    async def _write(
        self, upload: Upload, number: int, body: AsyncIterator[bytes], length: int, charge: Charge
    ) -> bytes:
        """Return the first bytes of a chunk that is in a bucket."""
        assert upload.chunk_size is not None
        begin = number * upload.chunk_size
        bucket = self._lifecycle.in_bucket(upload)
        sink: Sink | BucketChunkSink
        if bucket is None:
            sink = Sink(self._staging, upload.id, begin, charge, None)
        else:
            sink = bucket.chunk_sink(upload, number, charge)
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
        except BytesLost as lost:
            await sink.abort()
            if bucket is None:
                raise
            # Raises the problem that the caller gets, unless another replica has finished the upload.
            await self._lifecycle.recovered(upload, missing=str(lost))
            raise TakenOver(f"another request has finished upload {upload.id}") from None
        except BaseException:
            await sink.abort()
            raise
        return sink.head if isinstance(sink, BucketChunkSink) else b""

    def _hash(self, upload: Upload) -> None:
        """Hash the bytes before the first gap, with one thread per upload."""
        assert upload.chunk_size is not None and upload.size is not None
        missing = upload.missing
        goal = min(missing[0] * upload.chunk_size, upload.size) if missing else upload.size
        if upload.id in self._hashing:
            return
        staging = self._staging
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

    async def complete(self, upload_id: str) -> Upload:
        """Finish the upload. Raise UploadConflict with the missing chunks if there are any."""
        upload = await self._lifecycle.find(upload_id)
        if upload.status is UploadStatus.DONE:
            return upload
        self._lifecycle.check_unfinished(upload, Way.CHUNKS)
        if upload.missing:
            shown = ", ".join(map(str, upload.missing[:20]))
            raise UploadConflict(
                f"{len(upload.missing)} chunks of upload {upload_id} are missing: {shown}"
            )
        return await self._lifecycle.complete_once(upload_id, lambda: self._complete(upload_id))

    async def _complete(self, upload_id: str) -> Upload:
        async with self._lifecycle.hold(upload_id):
            upload = await self._lifecycle.find(upload_id)
            if upload.status is UploadStatus.DONE:
                return upload
            hashing = self._hashing.get(upload_id)
            if hashing is not None:
                with contextlib.suppress(OSError):
                    await asyncio.wait([hashing])
            upload = replace(upload, received=upload.size)
            if upload.bucket is None:
                upload = await self._lifecycle.recovered(upload)
            if upload.status is UploadStatus.DONE:
                return upload
            return await self._lifecycle.finish(upload)
