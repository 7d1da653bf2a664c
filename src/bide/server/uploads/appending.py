"""Adds bytes to the end of an upload: what a cut connection has brought is kept, what was not verified is not."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator

from msgspec.structs import replace

from bide.core.errors import ChecksumMismatch, UploadConflict, WrongLength, WrongOffset
from bide.core.media import HEAD
from bide.core.upload import Upload, UploadStatus, Way
from bide.server.store import StoredUploads
from bide.server.uploads.reception import Reception, surely
from bide.server.uploads.room import Charge, told
from bide.server.uploads.staging import BytesLost, Digest, Hash, Sink

log = logging.getLogger("bide.uploads")
Body = AsyncIterator[bytes]


class Appending:
    """The way of tus."""

    def __init__(self, reception: Reception) -> None:
        self._reception = reception
        self._staging = reception.staging
        self._room = reception.room

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
    ) -> tuple[Upload, StoredUploads | None]:
        """Adds bytes at the end. `announced`: how many are to come; `size`: how many there will be in all, when that was
        not known; `checksum`: a hash of these bytes, and what it must come to; `promised`: the SHA-256 of the whole.
        """
        async with self._reception.turns.take(upload_id):
            upload = await self._reception.find(upload_id)
            if _is_again(upload, offset, announced):
                return upload, None
            self._reception.check_unfinished(upload, Way.TUS)
            upload = await self._reception.recovered(upload)
            if offset != upload.received:
                raise WrongOffset(f"the upload is at {upload.received}, and the request at {offset}")
            upload = replace(self._sized(upload, size), promised=promised or upload.promised)
            room = self._limit(upload) - offset
            if announced is not None and announced > room:
                raise WrongLength(f"{announced} bytes are announced, and {room} are missing")
            upload = await self._append(upload, body, checksum)
            if upload.received == upload.size and not upload.partial:
                return upload, await self.finish(upload)
            if offset < HEAD <= upload.received:
                await self._reception.check_head(upload)
            return upload, None

    async def position(self, upload_id: str) -> Upload:
        """Where it is at, after whoever writes was cut off. What is whole and was not finished is finished."""
        async with self._reception.turns.take(upload_id):
            upload = await self._reception.find(upload_id)
            if upload.status is UploadStatus.DONE:
                return upload
            self._reception.check_here(upload)
            upload = await self._reception.recovered(upload)
            if upload.status is UploadStatus.DONE or upload.partial or upload.received != upload.size:
                return upload
            return (await self.finish(upload)).uploads[0]

    async def finish(self, upload: Upload) -> StoredUploads:
        """What cannot be finished now, because storage is away, is left to the upkeep."""
        try:
            return await self._reception.finish(upload)
        except Exception:
            with contextlib.suppress(Exception):
                await self._reception.note(upload, received=upload.received)
            raise

    def _sized(self, upload: Upload, size: int | None) -> Upload:
        if size is None or size == upload.size:
            return upload
        if upload.size is not None:
            raise WrongLength(f"the upload was begun with {upload.size} bytes; that cannot change")
        if size < upload.received:
            raise WrongLength(f"{upload.received} bytes have come already")
        self._room.check_size(size)
        self._room.check(size - upload.received)
        self._room.declare(size - upload.received)
        return replace(upload, size=size)

    def _limit(self, upload: Upload) -> int:
        return self._reception.config.max_size if upload.size is None else upload.size

    async def _append(self, upload: Upload, body: Body, checksum: tuple[Hash, str] | None) -> Upload:
        digest = self._staging.take_digest(upload.id, upload.received)
        before = digest.copy() if checksum is not None else digest
        sink = Sink(
            self._staging,
            self._staging.path(upload.id),
            upload.received,
            digest,
            None if checksum is None else checksum[0],
        )
        with self._room.charge(reserved=upload.size is not None, at=upload.received) as charge:
            try:
                await self._fill(upload, sink, body, charge, durably=checksum is None)
                await self._settle(sink)
            except BytesLost:
                await self._reception.recovered(upload)  # which tells it
                raise
            except BaseException as error:
                await surely(self._save(upload, sink, digest, before, keep=checksum is None))
                if checksum is None:
                    charge.keep(sink.durable)
                problem = told(error) if isinstance(error, OSError) else None
                if problem is not None:
                    raise problem from error
                raise
            if checksum is not None and checksum[0].hexdigest() != checksum[1]:
                await surely(self._forget(upload, before))
                raise ChecksumMismatch(
                    f"Checksum mismatch: expected {checksum[1]}, got {checksum[0].hexdigest()}."
                )
            self._staging.keep_digest(upload.id, digest)
            upload = await self._noted(upload, sink.durable)
            charge.keep(sink.durable)
            return upload

    async def _forget(self, upload: Upload, before: Digest) -> None:
        """Bytes that cannot be trusted are in no record, so they must not stay on the disk either."""
        self._staging.keep_digest(upload.id, before)
        await self._staging.cut(upload.id, upload.received)

    async def _settle(self, sink: Sink) -> None:
        """The door is for what is over in a moment: a large file keeps nobody waiting there."""
        if not sink.small:
            await sink.settle()
        else:
            async with self._reception.door:
                await sink.settle()
        await self._reception.lane.turn()

    async def _fill(
        self, upload: Upload, sink: Sink, body: Body, charge: Charge, *, durably: bool
    ) -> None:
        limit, noted = self._limit(upload), sink.durable
        async for data in body:
            if sink.taken + len(data) > limit:
                raise WrongLength(f"more bytes came than the {limit} that are the most")
            charge.take(len(data))
            await sink.write(data)
            if durably and sink.durable > noted:
                noted = sink.durable
                await self._reception.note(upload, received=noted)
                charge.keep(noted)

    async def _save(
        self, upload: Upload, sink: Sink, digest: Digest, before: Digest, *, keep: bool
    ) -> None:
        """What came until something went wrong; with a checksum none of it can be trusted."""
        if not keep:
            await sink.give_up()
            await self._forget(upload, before)
            return
        try:
            await sink.settle()
        except OSError:
            await self._settled_anyway(sink)
        self._staging.keep_digest(upload.id, digest)
        if sink.durable > upload.received or upload.size is not None:
            await self._reception.note(upload, received=sink.durable)

    async def _settled_anyway(self, sink: Sink) -> None:
        """After a failed write: what was written before it."""
        await sink.give_up()
        try:
            await sink.settle()
        except OSError as error:
            log.warning("what was written of an upload cannot be made durable: %s", error)

    async def _noted(self, upload: Upload, received: int) -> Upload:
        """The record of the last byte comes with that of the whole."""
        if received == upload.size and not upload.partial:
            return replace(upload, received=received)
        return await self._reception.note(upload, received=received)


def _is_again(upload: Upload, offset: int, announced: int | None) -> bool:
    """Whether only the last answer is asked for, which was lost. Problems when it can take no bytes at all."""
    if upload.parts:
        raise UploadConflict("a final upload is made of its parts, and takes no bytes")
    if upload.status is not UploadStatus.DONE or upload.way is not Way.TUS:
        return False
    if offset != upload.received:
        raise WrongOffset(f"the upload is whole, at {upload.received}, and the request at {offset}")
    return announced == 0
