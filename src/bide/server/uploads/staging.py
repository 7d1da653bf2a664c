"""The bytes of incomplete uploads on a local disk: one file per upload, written and hashed in threads while more bytes
arrive. `bucket` has those of a service whose files are in a bucket.

1. When `Sink.sync` returns, the file, its size and its name are on disk.
2. The loop never waits for a disk, and an upload has at most two batches in memory.
3. Bytes beyond the received size in the record do not count. They are overwritten, or truncated at the end.
4. No file is open between two batches, so uploads in progress use no file descriptors.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol, TypeVar

from bide.core.errors import StorageFull
from bide.server.durable_files import FILE_MODE, finished, make_folders, sync_path
from bide.server.media_types import HEAD
from bide.server.upload_record import BucketBytes
from bide.server.uploads.quota import Charge, reporting_full_disk

log = logging.getLogger("bide.uploads")
T = TypeVar("T")
Bytes = bytes | memoryview
BATCH = 512 * 1024
CHECKPOINT = 64 * 1024 * 1024  # bytes between two syncs of a long request
MAX_DIGESTS = 20_000
_MAX_BUFFERS = 512  # per system call; Linux accepts up to 1,024


class BytesLost(OSError):
    """Bytes that were stored before are missing from the disk."""


class Hash(Protocol):
    def update(self, data: Bytes, /) -> None: ...

    def hexdigest(self) -> str: ...


class Digest:
    """The SHA-256 of the first `at` bytes of a file."""

    __slots__ = ("at", "head", "length", "sha256")

    def __init__(self) -> None:
        self.at = 0
        self.head = b""
        self.length: int | None = None  # of the file, at the last sync
        self.sha256: Any = hashlib.sha256()

    def copy(self) -> Digest:
        other = Digest()
        other.at, other.head, other.sha256 = self.at, self.head, self.sha256.copy()
        return other

    def update(self, data: Bytes) -> None:
        if len(self.head) < HEAD:
            self.head += bytes(data[: HEAD - len(self.head)])
        self.sha256.update(data)
        self.at += len(data)

    def catch_up(self, path: Path, goal: int) -> None:
        """Hash bytes from the file that this process did not hash on arrival: after a restart, or out of order."""
        if self.at >= goal:
            return
        with path.open("rb", buffering=0) as file:
            file.seek(self.at)
            while self.at < goal:
                data = file.read(min(BATCH, goal - self.at))
                if not data:
                    raise OSError(f"{path} has {self.at} bytes, expected {goal}")
                self.update(data)


class Staging:
    """The folder, the threads and the digests of uploads in progress."""

    def __init__(self, root: Path) -> None:
        self.root = root
        # Not the loop's default executor, because uploads must not delay lists and downloads.
        self._pool = ThreadPoolExecutor(min(8, (os.cpu_count() or 1) + 2), "bide-upload")
        self._digests: OrderedDict[str, Digest] = OrderedDict()

    def prepare(self) -> None:
        make_folders(self.root)

    def close(self) -> None:
        """Wait for the running calls. Do not call it on the loop's thread: it blocks."""
        self._pool.shutdown()

    def path(self, upload_id: str) -> Path:
        return self.root / upload_id

    def run(self, work: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(self._pool, work, *args)

    def take_digest(self, upload_id: str, at_most: int) -> Digest:
        """Remove and return the digest. One beyond `at_most` covers bytes that were never recorded and are sent again,
        so a new digest is returned instead.
        """
        known = self._digests.pop(upload_id, None)
        return known if known is not None and known.at <= at_most else Digest()

    def keep_digest(self, upload_id: str, digest: Digest) -> None:
        self._digests[upload_id] = digest
        while len(self._digests) > MAX_DIGESTS:
            self._digests.popitem(last=False)

    async def has(self, upload_id: str, size: int) -> bool:
        """Whether the folder has the first `size` bytes of the upload."""
        digest = self._digests.get(upload_id)
        if size == 0 or (digest is not None and digest.at == size):  # this process wrote them
            return True
        return await self.run(_has_bytes, self.path(upload_id), size)

    async def complete(self, upload_id: str, size: int) -> tuple[str, bytes]:
        """Truncate the file to its size; return its SHA-256 and first bytes."""
        digest = self.take_digest(upload_id, size)
        if digest.at == digest.length == size:
            return digest.sha256.hexdigest(), digest.head
        return await self.run(_complete, self.path(upload_id), size, digest)

    async def head(self, upload_id: str) -> bytes:
        """Return the first bytes of the file."""
        known = self._digests.get(upload_id)
        if known is not None and len(known.head) == HEAD:
            return known.head
        return await self.run(_head, self.path(upload_id))

    async def remove(self, upload_id: str) -> None:
        self._digests.pop(upload_id, None)
        await self.run(_unlink, self.path(upload_id))

    async def truncate(self, upload_id: str, size: int) -> None:
        """Remove the bytes after the first `size`."""
        await self.run(_truncate, self.path(upload_id), size)

    def old(self, before: float) -> list[str]:
        """Return the names of files that were last modified before this instant."""
        if not self.root.is_dir():
            return []
        with os.scandir(self.root) as entries:
            return [entry.name for entry in entries if _age(entry) < before]


def _age(entry: os.DirEntry[str]) -> float:
    try:
        return entry.stat().st_mtime
    except FileNotFoundError:
        return float("inf")


def _has_bytes(path: Path, size: int) -> bool:
    try:
        return path.stat().st_size >= size
    except FileNotFoundError:
        return False


def _complete(path: Path, size: int, digest: Digest) -> tuple[str, bytes]:
    if size == 0:
        path.touch(FILE_MODE)
    with path.open("r+b", buffering=0) as file:
        if os.fstat(file.fileno()).st_size > size:
            file.truncate(size)
            os.fdatasync(file.fileno())
        digest.catch_up(path, size)
        file.seek(0)
        return digest.sha256.hexdigest(), file.read(HEAD)


def _head(path: Path) -> bytes:
    with path.open("rb", buffering=0) as file:
        return file.read(HEAD)


def _truncate(path: Path, size: int) -> None:
    # If the file is missing or the disk fails, the next write reports it.
    with contextlib.suppress(OSError):
        if path.stat().st_size > size:
            os.truncate(path, size)


def _unlink(path: Path) -> None:
    path.unlink(missing_ok=True)


class AppendSink(Protocol):
    """Stores consecutive bytes of an upload. `durable` is the end of the bytes that are stored safely; `bucket` says where
    they are, if they are in a bucket.
    """

    durable: int
    digest: Digest | None  # None: it is computed when the upload is complete

    @property
    def bucket(self) -> BucketBytes | None: ...

    @property
    def position(self) -> int:
        """The offset of the next byte."""
        ...

    async def write(self, data: Bytes) -> None: ...

    async def sync(self, *, last: bool = False) -> None:
        """Store all bytes. `last`: the upload is complete with them."""
        ...

    async def save(self) -> None:
        """Store the bytes that arrived before an error, as many as possible."""
        ...

    async def reject(self) -> None:
        """Discard all bytes of this sink, because their checksum does not match."""
        ...

    async def abort(self) -> None:
        """Stop. Bytes that are not recorded are overwritten later, or removed with the upload."""
        ...

    async def discard(self) -> None:
        """Stop, and remove the bytes that are not recorded. Only if no record names them."""
        ...

    def recorded(self) -> None:
        """Called when the store has `durable` and `bucket`."""
        ...

    def keep(self) -> None:
        """Close, and keep the digest for the next request."""
        ...

    def close(self) -> None: ...


class Sink:
    """Writes consecutive bytes of an upload from `offset` on, and charges them to the quota. `digest` covers the whole
    file, `checksum` only the bytes that this sink writes. Raises StorageFull if they do not fit, and OSError if the disk
    fails.
    """

    bucket = None

    def __init__(
        self,
        staging: Staging,
        upload_id: str,
        offset: int,
        charge: Charge,
        digest: Digest | None,
        checksum: Hash | None = None,
    ) -> None:
        self._staging = staging
        self._upload_id = upload_id
        self._path = staging.path(upload_id)
        self._charge = charge
        self._before = digest.copy() if digest is not None and checksum is not None else digest
        self.digest = digest
        self._checksum = checksum
        self._batch: list[Bytes] = []
        self._batched = 0
        self._writing: asyncio.Future[None] | None = None
        self.begin = offset
        self.position = offset  # of the next byte
        self.written = offset  # end of the bytes that were written to the file
        self.durable = offset  # end of the bytes that were synced

    async def write(self, data: Bytes) -> None:
        """Also raises the error of an earlier batch."""
        self._charge.add(len(data))
        self._batch.append(data)
        self._batched += len(data)
        self.position += len(data)
        if self._batched >= BATCH:
            await self._written()
            self._submit(sync=self.written - self.durable >= CHECKPOINT)

    def _submit(self, *, sync: bool) -> None:
        """Begin to write the current batch."""
        batch, self._batch, self._batched = self._batch, [], 0
        self._writing = self._staging.run(self._write_batch, batch, sync)

    async def _written(self) -> None:
        """Wait for the current write, also when cancelled: the thread continues in any case."""
        writing, self._writing = self._writing, None
        if writing is not None:
            with reporting_full_disk():
                await finished(writing)

    async def sync(self, *, last: bool = False) -> None:
        """Write and sync all bytes. After an error, at least the bytes up to `durable` are on disk."""
        await self._written()
        self._submit(sync=True)
        await self._written()

    async def abort(self) -> None:
        """Discard the current batch and wait for the current write."""
        self._batch, self._batched = [], 0
        with contextlib.suppress(OSError, StorageFull):
            await self._written()

    async def save(self) -> None:
        """Write and sync the bytes that arrived before an error, or at least those that were written."""
        try:
            await self.sync()
        except (OSError, StorageFull):
            await self.abort()
            try:
                await self.sync()
            except (OSError, StorageFull) as error:
                log.warning("cannot sync the bytes of an upload: %s", error)

    async def reject(self) -> None:
        """Truncate the file to the bytes before those of this sink."""
        await self.abort()
        self.digest = self._before
        self.keep()
        await self._staging.truncate(self._upload_id, self.begin)

    def recorded(self) -> None:
        pass

    def close(self) -> None:
        pass

    def keep(self) -> None:
        if self.digest is not None:
            self._staging.keep_digest(self._upload_id, self.digest)

    async def discard(self) -> None:
        await self.abort()

    def _write_batch(self, batch: Sequence[Bytes], sync: bool) -> None:
        """Run in a thread."""
        # A new file needs a sync of its folder too. Any chunk may be the first one.
        new = self.durable == self.begin and (self.begin == 0 or self.digest is None)
        fd = self._open()
        try:
            if self.digest is not None:
                self.digest.catch_up(self._path, self.written)
            for first in range(0, len(batch), _MAX_BUFFERS):
                buffers = list(batch[first : first + _MAX_BUFFERS])
                size = sum(map(len, buffers))
                done = os.pwritev(fd, buffers, self.written)
                if done < size:  # for example because the disk is full
                    rest = b"".join(buffers)[done:]
                    while rest:
                        count = os.pwrite(fd, rest, self.written + done)
                        done, rest = done + count, rest[count:]
                for data in buffers:
                    if self.digest is not None:
                        self.digest.update(data)
                    if self._checksum is not None:
                        self._checksum.update(data)
                self.written += size
            if sync:
                os.fdatasync(fd)
                if self.digest is not None:
                    self.digest.length = os.fstat(fd).st_size
        finally:
            os.close(fd)
        if sync:
            if new:
                sync_path(self._path.parent)
            self.durable = self.written

    def _open(self) -> int:
        flags = os.O_WRONLY | os.O_CLOEXEC
        if self.digest is None or self.begin == 0:
            return os.open(self._path, flags | os.O_CREAT, FILE_MODE)
        try:
            fd = os.open(self._path, flags)
        except FileNotFoundError:
            raise BytesLost(f"{self._path} is missing") from None
        size = os.fstat(fd).st_size
        if size < self.begin:
            # Writing behind the end would leave a hole of zeros that the digest does not cover.
            os.close(fd)
            raise BytesLost(f"{self._path} has {size} bytes, expected at least {self.begin}")
        return fd
