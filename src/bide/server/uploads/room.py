"""How much all uploads may take: a quota of bytes, and what the disk has.

1. Bytes are charged as they arrive. None is written that does not fit.
2. A declared size is reserved until its bytes arrive, so that an upload that was accepted can finish. An upload firmly
   reserves as many bytes as it has sent. All other reservations together hold at most half of what is free: a caller
   that only declares sizes keeps no other caller from uploading.
3. The sums are the store's, read every few seconds; what changes in between is added here. With several replicas the
   quota may be exceeded by what they take between two reads.
"""

from __future__ import annotations

import errno
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from types import TracebackType

from bide.core.errors import PayloadTooLarge, Problem, StorageFull
from bide.core.upload import Upload
from bide.server.config import UploadConfig
from bide.server.store import UploadBytes

SPARE = 64 * 1024 * 1024  # of the disk: the record must be writable, too
STRIDE = 1024 * 1024  # bytes that a request is charged ahead


class Room:
    def __init__(self, config: UploadConfig, folder: Path) -> None:
        self._config = config
        self._folder = folder
        self._stored = 0
        self._reserved = 0
        self._firm = 0  # of what is reserved
        self._arriving = 0  # in requests, and not in the store yet

    def known(self, sums: UploadBytes) -> None:
        self._stored, self._reserved, self._firm = sums.stored, sums.reserved, sums.firm

    def check_size(self, size: int) -> None:
        if size > self._config.max_size:
            raise PayloadTooLarge(
                f"the upload has {size} bytes; this service takes up to {self._config.max_size} (max_upload)"
            )

    def check(self, size: int) -> None:
        """Problem when there is no room for so many bytes more."""
        self.check_quota(size)
        self.check_disk(size)

    def check_quota(self, size: int, *, reserved: bool = False) -> int:
        """How many bytes there is room for, at least `size`. `reserved`: for bytes whose size was declared before."""
        quota = self._config.quota
        if quota is None:
            return size + STRIDE
        free = quota - self._stored - self._arriving
        firm = min(self._firm, self._reserved)
        room = free if reserved else max(free - self._reserved, (free - firm) // 2)
        if size > room:
            raise StorageFull(
                f"The upload quota is full: {size} bytes requested, {quota - free} of {quota} used, "
                f"{self._reserved} reserved. Delete uploads or raise --upload-quota."
            )
        return room

    def check_disk(self, size: int) -> None:
        try:
            free = shutil.disk_usage(self._folder).free
        except FileNotFoundError:
            return
        if size + SPARE > free:
            raise StorageFull(
                f"the disk for uploads is full: it has {free} bytes left for the {size} bytes that are still to come"
            )

    def add(self, upload: Upload) -> None:
        """It is in the store now."""
        self._stored += upload.bytes
        self._reserved += upload.reserved

    def remove(self, upload: Upload) -> None:
        """It was in the store like this."""
        self._stored -= upload.bytes
        self._reserved = max(0, self._reserved - upload.reserved)

    def declare(self, size: int) -> None:
        """So many bytes more of an upload that is in the store are to come."""
        self._reserved += size

    def charge(self, *, reserved: bool, at: int = 0) -> Charge:
        """For one request. `reserved`: its bytes were declared; `at`: the offset of its first byte."""
        return Charge(self, reserved, at)


class Charge:
    """What one request takes until it is in the store, or gone: `with room.charge(…) as charge`."""

    __slots__ = ("_at", "_granted", "_reserved", "_room", "_taken")

    def __init__(self, room: Room, reserved: bool, at: int) -> None:
        self._room = room
        self._reserved = reserved
        self._at = at
        self._granted = 0
        self._taken = 0

    def __enter__(self) -> Charge:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def take(self, size: int) -> None:
        """Before so many bytes are written; a Problem when they do not fit."""
        missing = self._taken + size - self._granted
        if missing > 0:
            free = self._room.check_quota(missing, reserved=self._reserved)
            self._room.check_disk(missing)
            more = max(missing, min(STRIDE, free))
            self._granted += more
            self._room._arriving += more
        self._taken += size

    def keep(self, to: int) -> None:
        """The bytes up to this offset are in the store now."""
        size, self._at = to - self._at, to
        self._granted -= size
        self._taken -= size
        self._room._arriving -= size
        self._room._stored += size
        if self._reserved:
            self._room._reserved = max(0, self._room._reserved - size)

    def close(self) -> None:
        """The rest is neither written nor to be."""
        self._room._arriving -= self._granted
        self._granted = self._taken = 0


async def charged(body: AsyncIterator[bytes], charge: Charge) -> AsyncIterator[bytes]:
    async for data in body:
        charge.take(len(data))
        yield data


def told(error: OSError) -> Problem | None:
    """What a sender is told when a write failed; None for what is no matter of room."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return StorageFull(
            "the disk for uploads is full, or a quota of its file system is used up; what was acknowledged is kept"
        )
    return None
