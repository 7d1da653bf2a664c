"""The bytes of uploads until they are whole: one file each, written and hashed in threads while more arrives.

1. What `Sink.settle` has returned for is on disk: file, size and name.
2. The loop never waits for a disk, and an upload never has more than two batches in memory.
3. Bytes beyond what the record has as received are nothing: they are overwritten, or cut off at the end.
4. No file is open between two batches, so uploads under way cost no descriptors.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from bide.core.media import HEAD
from bide.server.durable_files import FILE_MODE, finished, make_folders, sync_path
from bide.server.uploads.hands import Hands

T = TypeVar("T")
Bytes = bytes | memoryview
BATCH = 512 * 1024
CHECKPOINT = 64 * 1024 * 1024  # bytes after which a long request is made durable in between
MOST_HASHES = 20_000
QUICK = 2  # threads for what is over in a moment
_VECTOR = 512  # buffers in one system call; the system takes up to 1,024


class BytesLost(OSError):
    """What had been put away before is not there any more: somebody has removed it."""


class Hash(Protocol):
    def update(self, data: Bytes, /) -> None: ...

    def hexdigest(self) -> str: ...


class Digest:
    """A SHA-256 on its way through a file."""

    __slots__ = ("at", "head", "length", "sha256")

    def __init__(self) -> None:
        self.at = 0
        self.head = b""
        self.length: int | None = None  # of the file, when it was last made durable
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
        """From the file, for what did not come by: after a restart, or out of order."""
        if self.at >= goal:
            return
        with path.open("rb", buffering=0) as file:
            file.seek(self.at)
            while self.at < goal:
                data = file.read(min(BATCH, goal - self.at))
                if not data:
                    raise OSError(f"{path} ends at {self.at}, before {goal}")
                self.update(data)


class Staging:
    """The folder, the threads, and the digests of uploads that are under way."""

    def __init__(self, root: Path, threads: int | None = None) -> None:
        self.root = root
        # Not in the loop's own pool: uploads must not stand in the way of lists and downloads.
        self._hands = Hands(threads or min(8, (os.cpu_count() or 1) + 2), "bide-upload")
        self._quick = Hands(QUICK, "bide-upload-soon")
        self._digests: OrderedDict[str, Digest] = OrderedDict()

    def prepare(self) -> None:
        make_folders(self.root)

    def close(self) -> None:
        self._hands.close()
        self._quick.close()

    def path(self, upload_id: str) -> Path:
        return self.root / upload_id

    def run(self, work: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        return self._hands.run(work, *args)

    def run_soon(self, work: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        """What is over in a moment does not stand behind what is not."""
        return self._quick.run(work, *args)

    def take_digest(self, upload_id: str, at_most: int) -> Digest:
        """One that is further is of bytes that were put away and never noted, and that come again."""
        known = self._digests.pop(upload_id, None)
        return known if known is not None and known.at <= at_most else Digest()

    def has_digest(self, upload_id: str, at: int) -> bool:
        """Whether these bytes were put away by this very process."""
        digest = self._digests.get(upload_id)
        return digest is not None and digest.at == at

    def keep_digest(self, upload_id: str, digest: Digest) -> None:
        self._digests[upload_id] = digest
        while len(self._digests) > MOST_HASHES:
            self._digests.popitem(last=False)

    async def head(self, upload_id: str) -> bytes:
        """Its first bytes."""
        known = self._digests.get(upload_id)
        if known is not None and len(known.head) == HEAD:
            return known.head
        return await self.run(_head, self.path(upload_id))

    async def remove(self, upload_id: str) -> None:
        self._digests.pop(upload_id, None)
        await self.run(_unlink, self.path(upload_id))

    async def cut(self, upload_id: str, size: int) -> None:
        """Removes the bytes after the first `size`."""
        await self.run(_cut, self.path(upload_id), size)

    def old(self, before: float) -> list[str]:
        """Names of files that were last written before this instant."""
        if not self.root.is_dir():
            return []
        with os.scandir(self.root) as entries:
            return [entry.name for entry in entries if _age(entry) < before]


def _age(entry: os.DirEntry[str]) -> float:
    try:
        return entry.stat().st_mtime
    except FileNotFoundError:
        return float("inf")


def _head(path: Path) -> bytes:
    with path.open("rb", buffering=0) as file:
        return file.read(HEAD)


def _cut(path: Path, size: int) -> None:
    with contextlib.suppress(
        OSError
    ):  # gone, or a disk that fails: then it is found out with the next bytes
        if path.stat().st_size > size:
            os.truncate(path, size)


def _unlink(path: Path) -> None:
    path.unlink(missing_ok=True)


class Sink:
    """Takes one stretch of an upload's bytes, in order from `offset`. `digest` goes along when it is given; `checksum`
    is of this stretch alone.
    """

    def __init__(
        self,
        staging: Staging,
        path: Path,
        offset: int,
        digest: Digest | None,
        checksum: Hash | None = None,
    ) -> None:
        self._staging = staging
        self._path = path
        self._digest = digest
        self._checksum = checksum
        self._batch: list[Bytes] = []
        self._gathered = 0
        self._writing: asyncio.Future[None] | None = None
        self._unsynced = 0
        self.begin = offset
        self.taken = offset  # where the next byte goes
        self.written = offset  # where the file is good to
        self.durable = offset  # where it is on disk to

    async def write(self, data: Bytes) -> None:
        """OSError when an earlier batch could not be written."""
        self._batch.append(data)
        self._gathered += len(data)
        self.taken += len(data)
        if self._gathered >= BATCH:
            await self._hand_over()

    async def _hand_over(self, sync: bool = False) -> None:
        small = self.small
        await self._written()
        batch, self._batch, self._gathered = self._batch, [], 0
        if batch or sync:
            run = self._staging.run_soon if sync and small else self._staging.run
            self._writing = run(self._put, batch, sync or self._due())

    @property
    def small(self) -> bool:
        """Whether there is so little to make durable that it is over in a moment."""
        return self.taken - self.durable <= BATCH

    def _due(self) -> bool:
        return self.written - self.durable >= CHECKPOINT

    async def _written(self) -> None:
        """Not to be cut short: a thread that writes goes on anyway."""
        writing, self._writing = self._writing, None
        if writing is not None:
            await finished(writing)

    async def settle(self) -> None:
        """All that was taken is on disk after this. On an OSError as much as `durable` tells, at least."""
        await self._hand_over(sync=True)
        await self._written()

    async def give_up(self) -> None:
        """Waits until nothing is written any more; what was not made durable is forgotten."""
        self._batch, self._gathered = [], 0
        if self._writing is not None:
            try:
                await self._written()
            except OSError:
                return

    def _put(self, batch: Sequence[Bytes], sync: bool) -> None:
        """In a thread."""
        # Its name, too; of chunks any may be the first.
        new = self.durable == self.begin and (self.begin == 0 or self._digest is None)
        fd = self._open()
        try:
            self._write(fd, batch)
            if sync:
                os.fdatasync(fd)
                if self._digest is not None:
                    self._digest.length = os.fstat(fd).st_size
        finally:
            os.close(fd)
        if sync:
            if new:
                sync_path(self._path.parent)
            self.durable = self.written

    def _open(self) -> int:
        flags = os.O_WRONLY | os.O_CLOEXEC
        if self._digest is None or self.begin == 0:
            return os.open(self._path, flags | os.O_CREAT, FILE_MODE)
        try:
            fd = os.open(self._path, flags)
        except FileNotFoundError:
            raise BytesLost(f"{self._path} is gone") from None
        if (
            os.fstat(fd).st_size < self.begin
        ):  # a hole would be filled with zeros, under a checksum of something else
            os.close(fd)
            raise BytesLost(f"{self._path} was cut")
        return fd

    def _write(self, fd: int, batch: Sequence[Bytes]) -> None:
        if self._digest is not None:
            self._digest.catch_up(self._path, self.written)
        for first in range(0, len(batch), _VECTOR):
            buffers = list(batch[first : first + _VECTOR])
            size = sum(map(len, buffers))
            done = os.pwritev(fd, buffers, self.written)
            if done < size:  # as when the disk becomes full in the middle
                rest = b"".join(buffers)[done:]
                while rest:
                    count = os.pwrite(fd, rest, self.written + done)
                    done, rest = done + count, rest[count:]
            for data in buffers:
                if self._digest is not None:
                    self._digest.update(data)
                if self._checksum is not None:
                    self._checksum.update(data)
            self.written += size
