"""Resumable uploads, according to tus: bytes are appended, and uploads can be concatenated.

1. Bytes that arrived before a connection broke are stored, unless another replica has taken the upload over.
2. Bytes with a checksum are stored only if the checksum matches.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from bide.core.errors import (
    ChecksumMismatch,
    FinalUpload,
    Gone,
    NotFound,
    Problem,
    TakenOver,
    UploadConflict,
    WrongLength,
    WrongOffset,
)
from bide.server.durable_files import create, finished, sync_path
from bide.server.media_types import HEAD
from bide.server.upload_record import Upload, UploadStatus, Way
from bide.server.uploads.lifecycle import UploadLifecycle
from bide.server.uploads.quota import Charge, Quota, reporting_full_disk
from bide.server.uploads.staging import BATCH, AppendSink, BytesLost, Digest, Hash, Staging
from bide.server.uploads.upload_jobs import UploadJob

log = logging.getLogger("bide.uploads")
Body = AsyncIterator[bytes]
# Seconds that parts are kept after their concatenation, so that the client can repeat a request whose response was lost.
PART_LIFETIME = 3600.0


class TusUploads:
    """The tus uploads of one service. `max_size`: the maximum bytes of one upload."""

    def __init__(
        self, lifecycle: UploadLifecycle, staging: Staging, quota: Quota, max_size: int
    ) -> None:
        self._lifecycle = lifecycle
        self._staging = staging
        self._quota = quota
        self._max_size = max_size

    async def append(
        self,
        upload_id: str,
        offset: int,
        body: Body,
        *,
        announced: int | None = None,
        size: int | None = None,
        checksum: tuple[Hash, str] | None = None,
        promised: str | None = None,
    ) -> Upload:
        """Append the body at `offset`. `announced`: the number of bytes in the body; `size`: the total size, if the upload
        began without one; `checksum`: a hash object for these bytes and the expected value; `promised`: the expected
        SHA-256 of the whole file.
        """
        async with self._lifecycle.hold(upload_id):
            upload = await self._lifecycle.find(upload_id)
            if _is_repeat(upload, offset, announced):
                return upload
            self._lifecycle.check_unfinished(upload, Way.TUS)
            upload = await self._ready(upload)
            if _is_repeat(upload, offset, announced):
                return upload
            self._lifecycle.check_unfinished(upload, Way.TUS)
            if offset != upload.received:
                raise WrongOffset(
                    f"Upload-Offset is {offset}, but upload {upload.id} has {upload.received} bytes; continue there"
                )
            upload = replace(self._sized(upload, size), promised=promised or upload.promised)
            missing = self._limit(upload) - offset
            if announced is not None and announced > missing:
                raise WrongLength(
                    f"the request has {announced} bytes, but only {missing} are missing of upload {upload.id}"
                )
            upload, sink = await self._append(upload, body, checksum)
            if upload.status is UploadStatus.DONE:
                return upload  # another replica has finished it meanwhile
            if upload.received == upload.size and not upload.partial:
                upload = await self._finish(upload)
                sink.recorded()
                return upload
            if offset < HEAD <= upload.received:
                await self._lifecycle.check_head(
                    upload, b"" if sink.digest is None else sink.digest.head
                )
            return upload

    async def _ready(self, upload: Upload) -> Upload:
        """Return the upload when this process may add bytes to it and the earlier ones exist."""
        if upload.bucket is not None:
            return await self._lifecycle.taken(upload)
        return await self._lifecycle.recovered(upload)

    async def position(self, upload_id: str) -> Upload:
        """Cancel the current writer and return the upload. Finish an upload that is complete but was not finished."""
        async with self._lifecycle.hold(upload_id):
            upload = await self._lifecycle.find(upload_id)
            if upload.status is UploadStatus.DONE:
                return upload
            self._lifecycle.check_replica(upload)
            upload = await self._ready(upload)
            if upload.status is UploadStatus.DONE or upload.partial or upload.received != upload.size:
                return upload
            return await self._finish(upload)

    async def _finish(self, upload: Upload) -> Upload:
        """Finish a complete upload. If that fails, for example because the storage is unavailable, the upkeep retries."""
        try:
            return await self._lifecycle.finish(upload)
        except Exception:
            with contextlib.suppress(Exception):
                await self._lifecycle.record(upload, received=upload.received, bucket=upload.bucket)
            raise

    def _sized(self, upload: Upload, size: int | None) -> Upload:
        if size is None or size == upload.size:
            return upload
        if upload.size is not None:
            raise WrongLength(
                f"Upload-Length is {size}, but upload {upload.id} began with {upload.size}"
            )
        if size < upload.received:
            raise WrongLength(f"Upload-Length is {size}, but {upload.received} bytes have been received")
        self._quota.check_size(size)
        self._quota.check(size - upload.received)
        self._quota.declare(size - upload.received)
        return replace(upload, size=size)

    def _limit(self, upload: Upload) -> int:
        return self._max_size if upload.size is None else upload.size

    async def _append(
        self, upload: Upload, body: Body, checksum: tuple[Hash, str] | None
    ) -> tuple[Upload, AppendSink]:
        with contextlib.closing(
            Charge(self._quota, reserved=upload.size is not None, at=upload.received)
        ) as charge:
            sink: AppendSink | None = None
            try:
                sink = await self._lifecycle.sink(
                    upload, charge, None if checksum is None else checksum[0]
                )
                limit, recorded = self._limit(upload), sink.durable
                async for data in body:
                    if sink.position + len(data) > limit:
                        raise WrongLength(
                            f"the request sends more than the {limit} bytes of upload {upload.id}"
                        )
                    await sink.write(data)
                    if checksum is None and sink.durable > recorded:
                        recorded = sink.durable
                        await self._lifecycle.record(upload, received=recorded, bucket=sink.bucket)
                        sink.recorded()
                        charge.commit(recorded)
                await sink.sync(last=sink.position == upload.size)
            except BytesLost as lost:
                if sink is not None:
                    await sink.abort()
                # Raises the problem that the caller gets, unless another replica has finished the upload.
                await self._lifecycle.recovered(upload, missing=str(lost))
                raise TakenOver(f"another request has finished upload {upload.id}") from None
            except BaseException as error:
                if sink is not None:
                    await finished(self._save(upload, sink, error, keep=checksum is None))
                    if checksum is None:
                        charge.commit(sink.durable)
                raise
            if checksum is not None and checksum[0].hexdigest() != checksum[1]:
                await finished(sink.reject())
                raise ChecksumMismatch(
                    f"Checksum mismatch: expected {checksum[1]}, got {checksum[0].hexdigest()}."
                )
            sink.keep()
            upload = await self._record(upload, sink)
            charge.commit(sink.durable)
            return upload, sink

    async def _save(self, upload: Upload, sink: AppendSink, error: BaseException, *, keep: bool) -> None:
        """Store the bytes that arrived before an error. Bytes with a checksum were not verified and are discarded."""
        if isinstance(
            error, TakenOver | Gone
        ):  # by another replica: the store accepts nothing more from this one
            await self._abandon(upload, sink)
            return
        if not keep:
            await sink.reject()
            return
        await sink.save()
        sink.keep()
        if sink.durable > upload.received or upload.size is not None:
            await self._record_saved(upload, sink)

    async def _record(self, upload: Upload, sink: AppendSink) -> Upload:
        """Record the received bytes. The last bytes are recorded when the upload is finished."""
        if sink.durable == upload.size and not upload.partial:
            return replace(upload, received=sink.durable, bucket=sink.bucket)
        return await self._record_saved(upload, sink)

    async def _record_saved(self, upload: Upload, sink: AppendSink) -> Upload:
        try:
            after = await self._lifecycle.record(upload, received=sink.durable, bucket=sink.bucket)
        except (TakenOver, Gone):
            await self._abandon(upload, sink)
            raise
        sink.recorded()
        return after

    async def _abandon(self, upload: Upload, sink: AppendSink) -> None:
        """Stop, because another replica has the upload, or it was removed. The response to an earlier update may have been
        lost, so the record may name what the sink has stored.
        """
        try:
            named = (await self._lifecycle.find(upload.id)).bucket
        except (Gone, NotFound):
            named = upload.bucket
        if named is None or (sink.bucket is not None and named.multipart == sink.bucket.multipart != ""):
            await sink.abort()
        else:
            await sink.discard()

    async def concatenate(
        self,
        parts: Sequence[str],
        name: str,
        job: UploadJob | None = None,
        *,
        tenant: str = "-",
        **fields: Any,
    ) -> Upload:
        """Copy partial uploads into one. Raise UploadConflict if one of them is not a partial upload, or incomplete."""
        found = [await self._lifecycle.find(part, tenant) for part in parts]
        for part in found:
            self._lifecycle.check_replica(part)
            if not part.partial or part.received != part.size:
                raise UploadConflict(
                    f"upload {part.id} cannot be concatenated: it is not a partial upload, or not complete"
                )
        size = sum(part.received for part in found)
        upload = await self._lifecycle.begin(
            Way.TUS, name, job, size=size, parts=tuple(parts), tenant=tenant, **fields
        )
        with contextlib.closing(Charge(self._quota, reserved=True)) as charge:
            try:
                if upload.bucket is None:
                    await self._copy(found, upload, charge)
                else:
                    upload = await self._send(found, upload, charge)
            except (Problem, OSError):
                await self._lifecycle.discard(upload)
                raise
            upload = await self._lifecycle.record(upload, received=size, bucket=upload.bucket)
            charge.commit(size)
        upload = await self._finish(upload)
        for part in found:
            await self._lifecycle.record(part, expires_in=PART_LIFETIME)
        return upload

    async def _copy(self, parts: Sequence[Upload], upload: Upload, charge: Charge) -> None:
        """Copy the files of partial uploads into one."""
        sources = [(self._staging.path(part.id), part.received) for part in parts]
        charge.add(upload.size or 0)
        with reporting_full_disk():
            copying = self._staging.run(_copy, sources, self._staging.path(upload.id))
            digest = await finished(copying)
        self._staging.keep_digest(upload.id, digest)

    async def _send(self, parts: Sequence[Upload], upload: Upload, charge: Charge) -> Upload:
        """Send the bytes of partial uploads to the bucket as one upload."""
        sink = await self._lifecycle.sink(upload, charge)
        try:
            for part in parts:
                async for data in self._bytes_of(part):
                    await sink.write(data)
            await sink.sync(last=True)
        except BaseException:
            await sink.discard()
            raise
        sink.keep()
        return replace(upload, bucket=sink.bucket)

    async def _bytes_of(self, part: Upload) -> AsyncIterator[bytes]:
        """Yield the bytes of a complete partial upload."""
        bucket = self._lifecycle.in_bucket(part)
        if bucket is not None:
            if part.received:
                assert part.bucket is not None
                async for data in bucket.read(await bucket.join(part, part.bucket)):
                    yield data
            return
        with self._staging.path(part.id).open("rb", buffering=0) as file:  # began before --blobs was set
            left = part.received
            while left and (data := await self._staging.run(file.read, min(BATCH, left))):
                left -= len(data)
                yield data


def _is_repeat(upload: Upload, offset: int, announced: int | None) -> bool:
    """Whether the client repeats a request whose response was lost. Raise a Problem if the upload accepts no bytes."""
    if upload.parts:
        raise FinalUpload(f"upload {upload.id} is a concatenation of other uploads and accepts no bytes")
    if upload.status is not UploadStatus.DONE or upload.way is not Way.TUS:
        return False
    if offset != upload.received:
        raise WrongOffset(
            f"Upload-Offset is {offset}, but upload {upload.id} is complete with {upload.received} bytes"
        )
    return announced == 0


def _copy(sources: Sequence[tuple[Path, int]], goal: Path) -> Digest:
    """Run in a thread."""
    digest = Digest()
    with create(goal) as file:
        for path, size in sources:
            with path.open("rb", buffering=0) as source:
                left = size
                while left:
                    data = source.read(min(BATCH, left))
                    if not data:
                        raise OSError(f"{path} has less than {size} bytes")
                    file.write(data)
                    digest.update(data)
                    left -= len(data)
    sync_path(goal)
    sync_path(goal.parent)
    return digest
