"""The bytes of incomplete uploads in a bucket: full parts of a multipart upload, and the rest as an object of its own.

1. When `BucketSink.sync` returns, the bucket has all bytes, and `bucket` names them. No byte is on the local disk.
2. Any replica continues an upload. The store accepts updates only from the process that has last taken it over. A stale
   process can still overwrite a part; the ETag in the record shows that, and the stored parts are then hashed again.
3. Storage cannot read the parts of an incomplete multipart upload. So if another process has received some of the bytes,
   the SHA-256 is computed from the complete object.
4. All uploads together buffer at most MAX_BUFFERED bytes, or two parts if those are larger.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import secrets
from collections import OrderedDict
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from typing import Any, NamedTuple

from msgspec.structs import replace

from bide.core.errors import BideError, StorageUnavailable
from bide.server.blobs import (
    BlobMissing,
    Blobs,
    PartChanged,
    PartStorage,
    StoredPart,
    chunk_key,
    new_object_key,
    upload_key,
)
from bide.server.media_types import HEAD
from bide.server.upload_record import ANY_REPLICA, BucketBytes, Upload, Way, owner_of
from bide.server.uploads.parts import Bytes, PartBuffer, UploadPart, part_size
from bide.server.uploads.quota import Charge
from bide.server.uploads.staging import BytesLost, Digest, Hash, Staging

MAX_BUFFERED = 256 * 1024 * 1024
PART = 8 * 1024 * 1024  # bytes of a part, unless the upload would have too many
CHECKPOINT = 32 * 1024 * 1024  # bytes between two updates of the record during a long request
IN_FLIGHT = 32 * 1024 * 1024  # bytes of parts that one upload sends at a time
BUFFER_TIMEOUT = 30.0  # seconds that an upload waits for the buffers of others
CACHED_TAILS = 64 * 1024 * 1024  # bytes
# Seconds that a superseded tail is kept. After a failover that lost commits, the record names it again.
TAIL_GRACE = 60.0


class WholeObject(NamedTuple):
    """The complete object of an upload."""

    blob: str
    size: int
    sha256: str
    head: bytes


def whole_key(upload_id: str, bucket: BucketBytes) -> str:
    """Return the key of the object with all bytes in `bucket`, when its parts are joined."""
    return bucket.tail if bucket.tail and not bucket.parts else upload_key(upload_id)


class UploadMemory:
    """Limits the bytes that all uploads buffer."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._used = 0
        self._freed = asyncio.Event()

    async def reserve(self, size: int, part: int) -> None:
        """Wait until `size` bytes are free. Raise StorageUnavailable if the uploads of others keep them for too long."""
        limit = max(self._limit, 2 * part)
        if self._used + size > limit and self._used > 0:
            if asyncio.current_task() is None:
                await asyncio.sleep(0)  # a request runs without a task until its first wait
            try:
                async with asyncio.timeout(BUFFER_TIMEOUT):
                    while self._used + size > limit and self._used > 0:
                        self._freed.clear()
                        await self._freed.wait()
            except TimeoutError:
                raise StorageUnavailable(
                    "the service buffers the bytes of too many uploads; try again later"
                ) from None
        self._used += size

    def release(self, size: int) -> None:
        self._used -= size
        self._freed.set()


class BucketStaging:
    """The incomplete uploads of one service in a bucket. `staging` has its threads and digests."""

    def __init__(self, blobs: Blobs, storage: PartStorage, staging: Staging) -> None:
        self._blobs = blobs
        self.storage = storage
        self.smallest = max(PART, storage.smallest_part)
        self._staging = staging
        self.memory = UploadMemory(MAX_BUFFERED)
        # Changes with every process: one that was killed may still have requests at the storage.
        self.writer = secrets.token_hex(8)
        self._tails: OrderedDict[str, bytes] = OrderedDict()  # by key; the objects never change
        self._cached = 0
        self._removing: set[asyncio.Task[None]] = set()
        self._closing = asyncio.Event()

    async def close(self) -> None:
        """Remove superseded objects now."""
        self._closing.set()
        if self._removing:
            await asyncio.wait(self._removing)

    async def place(self, upload: Upload) -> Upload:
        """Return the new upload with its place in the bucket."""
        storage = self.storage
        if upload.way is not Way.CHUNKS:
            size = part_size(upload.size, self.smallest, storage.most_parts)
            return replace(upload, replica=ANY_REPLICA, bucket=BucketBytes(self.writer, size))
        size = _chunk_part(upload, storage.smallest_part, storage.most_parts)
        multipart = ""
        if size:
            multipart = await storage.begin(upload_key(upload.id), upload.content_type)
        return replace(upload, replica=ANY_REPLICA, bucket=BucketBytes(self.writer, size, multipart))

    async def sink(self, upload: Upload, charge: Charge, checksum: Hash | None = None) -> BucketSink:
        """Return the sink that appends to an upload."""
        assert upload.bucket is not None
        tail = await self._tail(upload.bucket)
        digest = await self._digest(upload, tail)
        return BucketSink(self, upload, upload.bucket, tail, charge, digest, checksum)

    def new_sink(self, upload: Upload, charge: Charge | None, size: int | None) -> BucketSink:
        """Return the sink of an upload that has no bytes yet. Without `charge`, its bytes are in the quota already."""
        size = part_size(size, self.smallest, self.storage.most_parts)
        return BucketSink(self, upload, BucketBytes(self.writer, size), b"", charge, Digest(), None)

    def chunk_sink(self, upload: Upload, number: int, charge: Charge) -> BucketChunkSink:
        return BucketChunkSink(self, upload, number, charge)

    async def _tail(self, bucket: BucketBytes) -> bytes:
        if not bucket.tail:
            return b""
        known = self._tails.get(bucket.tail)
        if known is not None:
            return known
        try:
            return b"".join([piece async for piece in self.read(bucket.tail)])
        except BlobMissing:
            raise BytesLost(f"the object {bucket.tail} is missing") from None

    async def _digest(self, upload: Upload, tail: bytes) -> Digest | None:
        """Return the digest of the received bytes; None if another process has received some of them."""
        assert upload.bucket is not None
        digest = self._staging.take_digest(upload.id, upload.received)
        if digest.at == upload.received:
            return digest
        if upload.bucket.parts:
            return None
        digest = Digest()
        await self.run(digest.update, tail)
        return digest

    def run(self, work: Any, *args: Any) -> asyncio.Future[Any]:
        return self._staging.run(work, *args)

    def keep_digest(self, upload_id: str, digest: Digest | None) -> None:
        if digest is not None:
            self._staging.keep_digest(upload_id, digest)

    def drop_digest(self, upload_id: str) -> None:
        self._staging.take_digest(upload_id, 0)

    def cache_tail(self, key: str, data: bytes) -> None:
        self._tails[key] = data
        self._cached += len(data)
        while self._cached > CACHED_TAILS:
            _, oldest = self._tails.popitem(last=False)
            self._cached -= len(oldest)

    def remove_later(self, key: str, grace: float = 0.0) -> None:
        """Remove an object that no record names any more. If that fails, it is removed with the upload."""
        self._cached -= len(self._tails.pop(key, b""))
        task = asyncio.ensure_future(self._remove(key, grace))
        self._removing.add(task)
        task.add_done_callback(self._removing.discard)

    async def _remove(self, key: str, grace: float) -> None:
        if grace:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), grace)
        with contextlib.suppress(BideError):
            await self.storage.remove_object(key)

    async def read(self, key: str) -> AsyncGenerator[bytes, None]:
        """Yield the bytes of an object."""
        async with aclosing(await self._blobs.open(key)) as pieces:
            async for piece in pieces:
                yield piece

    # --- completing

    async def complete(self, upload: Upload) -> WholeObject:
        """Make the bytes of a complete upload one object. Raise BytesLost if the bucket does not have them."""
        assert upload.bucket is not None and upload.size is not None
        if upload.way is Way.CHUNKS:
            return await self._complete_chunks(upload)
        digest: Digest | None = self._staging.take_digest(upload.id, upload.size)
        blob, trusted = await self._join(upload, upload.bucket)
        if trusted and digest is not None and digest.at == upload.size:
            return WholeObject(blob, digest.at, digest.sha256.hexdigest(), digest.head)
        return await self.hashed(blob, upload.size)

    async def join(self, upload: Upload, bucket: BucketBytes) -> str:
        """Make the bytes in `bucket` one object, unless they are one; return its `whole_key`."""
        return (await self._join(upload, bucket))[0]

    async def _join(self, upload: Upload, bucket: BucketBytes) -> tuple[str, bool]:
        """Return the key of the object, and whether it has the parts whose ETags are in `bucket`."""
        key = whole_key(upload.id, bucket)
        if not bucket.parts:
            if not bucket.tail:
                await self.storage.put_object(key, b"", upload.content_type)
            return key, True
        parts = [StoredPart(n, size, etag) for n, (size, etag) in enumerate(bucket.parts, 1)]
        try:
            if bucket.tail:
                number, tail = len(parts) + 1, await self._tail(bucket)
                etag = await self.storage.put_part(key, bucket.multipart, number, tail)
                parts.append(StoredPart(number, len(tail), etag))
            try:
                await self.storage.finish(key, bucket.multipart, parts)
            except PartChanged:
                await self.storage.finish(
                    key, bucket.multipart, await self._same_sizes(key, bucket.multipart, parts)
                )
                return key, False
        except BlobMissing:
            # Another request has joined the parts, unless they are lost.
            if await self.storage.head(key) is None:
                raise BytesLost(f"the parts of upload {upload.id} are missing") from None
            return key, False
        return key, True

    async def _same_sizes(self, key: str, multipart: str, parts: list[StoredPart]) -> list[StoredPart]:
        """Return the parts as they are stored now."""
        wanted = {part.number: part.size for part in parts}
        found = [part for part in await self.storage.parts(key, multipart) if part.number in wanted]
        if {part.number: part.size for part in found} != wanted:
            raise StorageUnavailable(f"the storage does not list all parts of {key}")
        return found

    async def _complete_chunks(self, upload: Upload) -> WholeObject:
        bucket = upload.bucket
        assert bucket is not None and upload.size is not None
        if bucket.multipart:
            key = upload_key(upload.id)
            if await self.storage.head(key) is None:
                wanted = [StoredPart(n, size, "") for n, size in _chunk_parts(upload)]
                try:
                    found = await self._same_sizes(key, bucket.multipart, wanted)
                    await self.storage.finish(key, bucket.multipart, found)
                except BlobMissing:
                    raise BytesLost(f"the parts of upload {upload.id} are missing") from None
            return await self.hashed(key, upload.size)
        if upload.chunk_count == 1:
            return await self.hashed(chunk_key(upload.id, 0), upload.size)
        sink = self.new_sink(upload, None, upload.size)
        try:
            for number in range(upload.chunk_count):
                async for piece in self.read(chunk_key(upload.id, number)):
                    await sink.write(piece)
            await sink.sync(last=True)
        except BlobMissing:
            await sink.discard()
            raise BytesLost(f"chunks of upload {upload.id} are missing") from None
        except BaseException:
            await sink.discard()
            raise
        assert sink.digest is not None
        sink.close()
        blob = await self.join(upload, sink.bucket)
        return WholeObject(blob, sink.digest.at, sink.digest.sha256.hexdigest(), sink.digest.head)

    async def hashed(self, blob: str, size: int) -> WholeObject:
        """Read an object and return its checksum. Raise BytesLost if it does not exist or has another size."""
        sha256, count, head = hashlib.sha256(), 0, b""
        try:
            async for piece in self.read(blob):
                await self.run(sha256.update, piece)
                count += len(piece)
                head = head + piece[: HEAD - len(head)] if len(head) < HEAD else head
        except BlobMissing:
            raise BytesLost(f"the object {blob} is missing") from None
        if count != size:
            raise BytesLost(f"the object {blob} has {count} bytes, expected {size}")
        return WholeObject(blob, count, sha256.hexdigest(), head)

    async def joined(self, upload: Upload) -> WholeObject | None:
        """Return the object of an upload whose parts another request has joined, without a record of it; None if the bucket
        has no such object.
        """
        assert upload.bucket is not None
        if not upload.bucket.multipart:
            return None
        found = await self.storage.head(upload_key(upload.id))
        return None if found is None else await self.hashed(upload_key(upload.id), found.size)

    # --- removal

    async def abort(self, upload: Upload) -> None:
        """Remove the parts of an incomplete upload. Its other objects are removed with their owner."""
        if upload.bucket is not None and upload.bucket.multipart:
            await self.storage.abort(upload_key(upload.id), upload.bucket.multipart)

    async def clean(self, upload: Upload, blob: str) -> None:
        """Remove the chunks of an upload that is complete as `blob`."""
        chunks = f"{owner_of(upload.id)}/chunks"
        if upload.way is Way.CHUNKS and not blob.startswith(f"{chunks}/"):
            with contextlib.suppress(BideError):
                await self._blobs.remove(chunks)


class BucketSink:
    """Sends consecutive bytes of an upload to the bucket, and charges them to the quota. `digest` covers the whole file,
    `checksum` only the bytes that this sink gets; None: it is not computed. `durable` and `bucket` describe the same
    stored bytes. Raises StorageUnavailable if the storage fails, and BytesLost if earlier bytes are missing.
    """

    bucket: BucketBytes

    def __init__(
        self,
        staging: BucketStaging,
        upload: Upload,
        bucket: BucketBytes,
        tail: bytes,
        charge: Charge | None,
        digest: Digest | None,
        checksum: Hash | None,
    ) -> None:
        storage = staging.storage
        self._staging = staging
        self._storage = storage
        self._upload = upload
        self._charge = charge
        self._checksum = checksum
        self._before = digest.copy() if digest is not None and checksum is not None else digest
        self._buffer = PartBuffer(bucket, tail, staging.smallest, storage.most_parts)
        self._recorded = bucket  # as the store has it
        self._multipart = bucket.multipart
        self._beginning: asyncio.Task[str] | None = None
        self._unhashed: list[Bytes] = []
        self._preparing: asyncio.Future[bytes] | None = None
        self._parts: dict[int, UploadPart] = {}  # that are not stored yet, by number
        self._sending: dict[int, asyncio.Task[None]] = {}
        self._in_flight = 0
        self._held = 0  # bytes of the memory of all uploads
        self._tail = ""  # the key of the object with the bytes after the parts
        self.digest = digest
        self.bucket = bucket
        self.durable = self.begin = self._buffer.position

    @property
    def position(self) -> int:
        """The offset of the next byte."""
        return self._buffer.position

    async def write(self, data: Bytes) -> None:
        """Also raises the error of an earlier part."""
        await self._staging.memory.reserve(len(data), self._buffer.goal)
        self._held += len(data)
        if self._charge is not None:
            self._charge.add(len(data))
        self._unhashed.append(data)
        for part in self._buffer.add(data):
            self._parts[part.number] = part
            self._start(part)
        while self._in_flight > IN_FLIGHT and len(self._sending) > 1:
            await asyncio.wait(self._sending.values(), return_when=asyncio.FIRST_COMPLETED)
            self._raise_failure()
        self._raise_failure()
        if self._buffer.stored_end - self.durable >= CHECKPOINT:
            self._checkpoint()

    def _start(self, part: UploadPart) -> None:
        """Begin to store a part. It continues if the caller is cancelled."""
        self._in_flight += part.size
        data = self._prepare(part.pieces)
        self._sending[part.number] = asyncio.ensure_future(self._store(part, data))

    def _prepare(self, pieces: list[Bytes]) -> asyncio.Future[bytes]:
        """Join pieces and hash the new ones in a thread, one after the other."""
        unhashed, self._unhashed = self._unhashed, []
        self._preparing = asyncio.ensure_future(self._prepared(self._preparing, list(pieces), unhashed))
        return self._preparing

    async def _prepared(
        self, earlier: asyncio.Future[bytes] | None, pieces: list[Bytes], unhashed: list[Bytes]
    ) -> bytes:
        if earlier is not None:
            await asyncio.wait([earlier])
        joined: bytes = await self._staging.run(self._join_and_hash, pieces, unhashed)
        return joined

    def _join_and_hash(self, pieces: list[Bytes], unhashed: Iterable[Bytes]) -> bytes:
        """Run in a thread."""
        for piece in unhashed:
            if self.digest is not None:
                self.digest.update(piece)
            if self._checksum is not None:
                self._checksum.update(piece)
        return b"".join(pieces)

    async def _store(self, part: UploadPart, data: asyncio.Future[bytes]) -> None:
        try:
            body = await asyncio.shield(data)
            part.pieces = [body]  # frees the pieces
            if not self._multipart:
                if self._beginning is None:
                    self._beginning = asyncio.ensure_future(
                        self._storage.begin(upload_key(self._upload.id), self._upload.content_type)
                    )
                self._multipart = await asyncio.shield(self._beginning)
            key = upload_key(self._upload.id)
            etag = await self._storage.put_part(key, self._multipart, part.number, body)
            self._buffer.stored(part.number, etag)
            del self._parts[part.number]
            self._release(part.size)
        except BlobMissing:
            raise BytesLost(f"the parts of upload {self._upload.id} are missing") from None
        finally:
            self._in_flight -= part.size

    def _raise_failure(self) -> None:
        for number, task in list(self._sending.items()):
            if task.done():
                del self._sending[number]
                begun = self._beginning
                if begun is not None and begun.done() and begun.exception() is not None:
                    self._beginning = None  # the next part tries again
                task.result()

    def _checkpoint(self) -> None:
        self.bucket, self.durable = self._buffer.state(self._multipart, self._tail)

    async def sync(self, *, last: bool = False) -> None:
        """Store all bytes. `last`: the upload is complete with them. After an error, at least the bytes up to `durable` are
        stored.
        """
        part = self._buffer.rest(last=last)
        if part is not None:
            self._parts[part.number] = part
        for number, unsent in self._parts.items():
            if number not in self._sending:
                self._start(unsent)
        if self._buffer.pieces and (self.position > self.begin or not self._recorded.tail):
            await self._put_tail(last)
        elif self._unhashed:
            self._prepare([])
        while self._sending:
            await asyncio.wait(self._sending.values())
            self._raise_failure()
        if self._preparing is not None:
            await asyncio.wait([self._preparing])
        self._checkpoint()

    async def _put_tail(self, last: bool) -> None:
        data = await asyncio.shield(self._prepare(self._buffer.pieces))
        key = new_object_key(self._upload.id)
        await self._storage.put_object(key, data, self._upload.content_type)
        self._tail = key
        if not last:
            self._staging.cache_tail(key, data)

    async def save(self) -> None:
        """Store the bytes that arrived before an error, as many as possible."""
        try:
            await self.sync()
        except (BideError, OSError):
            await self._stop(cancel=False)
            self._checkpoint()
        if self.bucket.multipart != self._multipart:
            await self._abort_multipart()

    def recorded(self) -> None:
        """Called when the store has `bucket`, or the upload is complete."""
        if self._recorded.tail and self._recorded.tail != self.bucket.tail:
            self._staging.remove_later(self._recorded.tail, TAIL_GRACE)
        self._recorded = self.bucket

    def keep(self) -> None:
        """Keep the digest for the next request."""
        self._staging.keep_digest(self._upload.id, self.digest)
        self.close()

    def close(self) -> None:
        self._release(self._held)

    def _release(self, size: int) -> None:
        size = min(size, self._held)  # the bytes of an earlier tail were not reserved
        self._held -= size
        self._staging.memory.release(size)

    async def reject(self) -> None:
        """Discard the bytes of this sink, because their checksum does not match."""
        await self.discard()
        self._staging.keep_digest(self._upload.id, self._before)

    async def abort(self) -> None:
        """Stop. A record may name what was stored, so nothing is removed; the upkeep removes what no record names."""
        await self._stop(cancel=True)
        self._staging.drop_digest(self._upload.id)  # it may cover more bytes than the record
        self.close()

    async def discard(self) -> None:
        """Remove the bytes that are not recorded."""
        await self._stop(cancel=True)
        await self._abort_multipart()
        if self._tail and self._tail != self._recorded.tail:
            self._staging.remove_later(self._tail)
        self._staging.drop_digest(self._upload.id)  # it covers the discarded bytes
        self.close()

    async def _stop(self, *, cancel: bool) -> None:
        """Wait until the requests to the storage have ended."""
        tasks: list[asyncio.Future[Any]] = [*self._sending.values()]
        for task in tasks if cancel else ():
            task.cancel()
        if self._beginning is not None:
            tasks.append(self._beginning)
        if self._preparing is not None:
            tasks.append(self._preparing)
        if tasks:
            await asyncio.gather(*tasks, return_exceptions=True)
        self._sending.clear()
        if self._beginning is not None and self._beginning.exception() is None:
            self._multipart = self._beginning.result()

    async def _abort_multipart(self) -> None:
        """Abort the multipart upload, unless the record names it."""
        if self._multipart and not self._recorded.multipart:
            with contextlib.suppress(BideError):
                await self._storage.abort(upload_key(self._upload.id), self._multipart)
            self._multipart, self._beginning = "", None


class BucketChunkSink:
    """Sends one chunk of an upload to the bucket: as parts of a multipart upload, or as an object if it is too small."""

    def __init__(self, staging: BucketStaging, upload: Upload, number: int, charge: Charge) -> None:
        assert upload.bucket is not None and upload.chunk_size is not None
        self._staging = staging
        self._upload = upload
        self._number = number
        self._charge = charge
        self._goal = upload.bucket.part_size or upload.chunk_size
        self._next = number * _parts_per_chunk(upload) + 1  # the number of the next part
        self._pieces: list[Bytes] = []
        self._size = 0
        self._sending: asyncio.Task[None] | None = None
        self._held = 0
        self.head = b""
        self.position = number * upload.chunk_size

    async def write(self, data: Bytes) -> None:
        await self._staging.memory.reserve(len(data), self._goal)
        self._held += len(data)
        self._charge.add(len(data))
        self.position += len(data)
        if len(self.head) < HEAD:
            self.head += bytes(data[: HEAD - len(self.head)])
        while self._size + len(data) > self._goal:
            view, missing = memoryview(data), self._goal - self._size
            self._pieces.append(view[:missing])
            self._size, data = self._goal, view[missing:]
            await self._flush()
        self._pieces.append(data)
        self._size += len(data)

    async def _flush(self) -> None:
        """Begin to store the current part, when the one before it is stored."""
        await self._sent()
        pieces, size = self._pieces, self._size
        self._pieces, self._size = [], 0
        number, self._next = self._next, self._next + 1
        self._sending = asyncio.ensure_future(self._store(number, pieces, size))

    async def _store(self, number: int, pieces: list[Bytes], size: int) -> None:
        data = await self._staging.run(b"".join, pieces)
        upload, storage = self._upload, self._staging.storage
        assert upload.bucket is not None
        if upload.bucket.multipart:
            key = upload_key(upload.id)
            try:
                await storage.put_part(key, upload.bucket.multipart, number, data)
            except BlobMissing:
                raise BytesLost(f"the parts of upload {upload.id} are missing") from None
        else:
            await storage.put_object(chunk_key(upload.id, self._number), data, upload.content_type)
        self._release(size)

    async def _sent(self) -> None:
        sending, self._sending = self._sending, None
        if sending is not None:
            try:
                await asyncio.shield(sending)
            except asyncio.CancelledError:
                self._sending = sending
                raise

    async def sync(self) -> None:
        """Store all bytes of the chunk."""
        await self._flush()
        await self._sent()

    async def abort(self) -> None:
        """Discard the chunk. A part of it may be stored; it is overwritten when the chunk is sent again."""
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.gather(self._sending, return_exceptions=True)
        self._release(self._held)

    def _release(self, size: int) -> None:
        self._held -= size
        self._staging.memory.release(size)


def _chunk_part(upload: Upload, smallest: int, most: int) -> int:
    """Return the size of the parts of each chunk; 0 if chunks are objects, because they are too small or too many."""
    assert upload.chunk_size is not None
    count = upload.chunk_count
    parts = (upload.size or 0) > PART if count == 1 else smallest <= upload.chunk_size
    if not parts or count > most:
        return 0
    per_chunk = max(1, min(upload.chunk_size // max(PART, smallest), most // count))
    return -(-upload.chunk_size // per_chunk)


def _parts_per_chunk(upload: Upload) -> int:
    assert upload.bucket is not None and upload.chunk_size is not None
    size = upload.bucket.part_size
    return -(-upload.chunk_size // size) if size else 1


def _chunk_parts(upload: Upload) -> list[tuple[int, int]]:
    """Return the number and the size of each part of all chunks."""
    assert upload.bucket is not None
    size, found = upload.bucket.part_size, []
    for chunk in range(upload.chunk_count):
        left, number = upload.chunk_length(chunk), chunk * _parts_per_chunk(upload) + 1
        while left > 0:
            found.append((number, min(size, left)))
            left, number = left - size, number + 1
    return found
