"""A file that comes in one piece: nothing is in the store before it is whole, and nothing is left of one that is not."""

from __future__ import annotations

from collections.abc import Sequence

from bide.core.errors import ChecksumMismatch, Problem
from bide.core.upload import Upload, Way
from bide.server.blobs import upload_key
from bide.server.store import CompletedUploads, NewJob, StoredUploads
from bide.server.uploads.reception import Reception, surely
from bide.server.uploads.room import told
from bide.server.uploads.staging import Bytes, Digest, Sink


class Incoming:
    """One file under way."""

    def __init__(self, reception: Reception, upload_id: str, name: str, content_type: str) -> None:
        now = reception.store.now()
        self.upload = Upload(
            upload_id, Way.DIRECT, name, now, now, content_type, replica=reception.replica
        )
        self._reception = reception
        self._digest = Digest()
        self._sink = Sink(reception.staging, reception.staging.path(upload_id), 0, self._digest)
        self._charge = reception.room.charge(reserved=False)
        self.stored = False  # or it is not known
        self.promised: str | None = None  # the SHA-256 that its sender has told

    async def write(self, data: Bytes) -> None:
        """A Problem when it becomes too large, or there is no room for it."""
        self._reception.room.check_size(self._sink.taken + len(data))
        self._charge.take(len(data))
        try:
            await self._sink.write(data)
        except OSError as error:
            problem = told(error)
            if problem is None:
                raise
            raise problem from error

    async def whole(self) -> Upload:
        """It is on disk, but neither a blob nor in the store yet."""
        try:
            await self._sink.settle()
        except OSError as error:
            problem = told(error)
            if problem is None:
                raise
            raise problem from error
        sha256 = self._digest.sha256.hexdigest()
        if self.promised is not None and self.promised != sha256:
            raise ChecksumMismatch(
                f"the file has the SHA-256 {sha256}, and {self.promised} was promised"
            )
        self.upload = self._reception.whole(self.upload, self._sink.durable, sha256, self._digest.head)
        return self.upload

    def counted(self) -> None:
        """It is in the store, or gone."""
        self._charge.close()

    async def discard(self) -> None:
        """Unless it may be in the store, whatever became of who asked for it: what is there must have its bytes."""
        await self._sink.give_up()
        self.counted()
        if not self.stored:
            await self._reception.remove_bytes(self.upload)


async def keep(
    reception: Reception, incoming: Sequence[Incoming], new: NewJob | None = None
) -> StoredUploads:
    """Makes blobs of whole files and stores them, with the job that they are for; none of it when there is a Problem.
    The bytes are the caller's to discard then. Once begun it goes to its end.
    """
    return await surely(_keep(reception, incoming, new))


async def _keep(reception: Reception, incoming: Sequence[Incoming], new: NewJob | None) -> StoredUploads:
    for one in incoming:
        path = reception.staging.path(one.upload.id)
        await reception.blobs.adopt(upload_key(one.upload.id), path, one.upload.content_type)
    for one in incoming:
        one.stored = True
    try:
        kept = await reception.store_finished(
            CompletedUploads(tuple(one.upload for one in incoming), new)
        )
    except Problem:  # its key was used for something else: the files were stored, the job was not
        for one in incoming:
            await reception.store.remove_upload(one.upload.id)
            one.stored = False
        raise
    for one in incoming:
        one.counted()
        reception.room.add(one.upload)
    return kept
