"""The space for uploads: a quota of bytes, and the free space of the disk.

1. Bytes are charged as they arrive. Bytes that do not fit are not written.
2. A declared size is reserved until its bytes arrive, so that an upload that was accepted can finish. An upload firmly
   reserves as many bytes as it has sent. All other reservations together hold at most half of the free bytes, so that a
   caller that only declares sizes cannot block other callers.
3. The totals are read from the store every few seconds; changes in between are added here. Several replicas together
   may exceed the quota by the bytes that they accept between two reads.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import math
import shutil
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from bide.core.errors import PayloadTooLarge, StorageFull
from bide.server.config import UploadConfig
from bide.server.store import UploadBytes
from bide.server.upload_record import Upload

log = logging.getLogger("bide.uploads")
SPARE = 64 * 1024 * 1024  # free disk space that uploads leave for the database
STRIDE = 1024 * 1024  # bytes that a request is charged in advance
# Seconds between two reads of the free disk space, unless it does not suffice. The event loop reads it, and would have to
# wait for the interpreter lock after each read while threads write uploads.
DISK_INTERVAL = 0.1


class Quota:
    def __init__(self, config: UploadConfig, folder: Path | None) -> None:
        """`folder`: where uploads are on disk; None: they are in a bucket."""
        self._config = config
        self._folder = folder
        self._stored = 0
        self._reserved = 0
        self._firm = 0  # the firm part of the reserved bytes
        self._arriving = 0  # charged by requests, not in the store yet
        self._chunks: dict[str, dict[int, Charge]] = {}  # by upload id and number
        # Free bytes of the disk, without those that were requested since it was read.
        self._free = 0
        self._free_until = -math.inf  # when it must be read again

    def update(self, totals: UploadBytes) -> None:
        self._stored, self._reserved, self._firm = totals.stored, totals.reserved, totals.firm

    def check_size(self, size: int) -> None:
        if size > self._config.max_size:
            raise PayloadTooLarge(
                f"the upload has {size} bytes; this service accepts up to {self._config.max_size} (--max-upload)"
            )

    def check(self, size: int) -> None:
        """Raise StorageFull if `size` more bytes do not fit."""
        self.check_quota(size)
        self.check_disk(size)

    def check_quota(self, size: int, *, reserved: bool = False) -> int:
        """Return the available bytes, at least `size`. `reserved`: the size of these bytes was declared before."""
        quota = self._config.quota
        if quota is None:
            return size + STRIDE
        free = quota - self._stored - self._arriving
        firm = min(self._firm, self._reserved)
        available = free if reserved else max(free - self._reserved, (free - firm) // 2)
        if size > available:
            used = f"{quota - free} of {quota} bytes used, {self._reserved} reserved"
            log.warning("The upload quota is full: %d bytes requested, %s", size, used)
            # Without these numbers, because they are of all tenants.
            raise StorageFull(
                f"The upload quota is full: {size} bytes requested. Delete uploads or raise --upload-quota."
            )
        return available

    def check_disk(self, size: int) -> None:
        if self._folder is None:
            return
        if time.monotonic() < self._free_until and size + SPARE <= self._free:
            self._free -= size
            return
        try:
            free = shutil.disk_usage(self._folder).free
        except FileNotFoundError:
            return
        self._free, self._free_until = free - size, time.monotonic() + DISK_INTERVAL
        if size + SPARE > free:
            kept = f"{free} free, {SPARE} of them kept for the database"
            log.warning("The disk for uploads is full: %d bytes requested, %s", size, kept)
            raise StorageFull(
                f"the disk for uploads is full: {size} bytes requested. Delete uploads or free disk space."
            )

    def add(self, upload: Upload) -> None:
        """Count an upload that is stored now."""
        self._stored += upload.bytes
        self._reserved += upload.reserved

    def remove(self, upload: Upload) -> None:
        """Subtract an upload that was removed from the store."""
        self._stored -= upload.bytes
        self._reserved = max(0, self._reserved - upload.reserved)

    def declare(self, size: int) -> None:
        """Reserve `size` more bytes for an upload in the store."""
        self._reserved += size

    def charge_chunk(self, upload_id: str, number: int) -> Charge:
        """Return the charge of a chunk, instead of that of an earlier request. The bytes of a failed request stay on disk
        and in the quota until the chunk is sent again, or until `release`.
        """
        self.release(upload_id, number)
        charge = Charge(self, reserved=True)
        self._chunks.setdefault(upload_id, {})[number] = charge
        return charge

    def release(self, upload_id: str, number: int | None = None) -> None:
        """Release the charge of a chunk; without a number, of all chunks of the upload."""
        if number is None:
            for charge in self._chunks.pop(upload_id, {}).values():
                charge.close()
        elif (earlier := self._chunks.get(upload_id, {}).pop(number, None)) is not None:
            earlier.close()


class Charge:
    """The bytes of one request that are not in the store yet. `reserved`: its size was declared; `at`: the offset of its
    first byte. Close it at the end of the request.
    """

    __slots__ = ("_added", "_at", "_granted", "_quota", "_reserved")

    def __init__(self, quota: Quota, *, reserved: bool, at: int = 0) -> None:
        self._quota = quota
        self._reserved = reserved
        self._at = at
        self._granted = 0
        self._added = 0

    def add(self, size: int) -> None:
        """Charge `size` bytes before they are written. Raise StorageFull if they do not fit."""
        missing = self._added + size - self._granted
        if missing > 0:
            free = self._quota.check_quota(missing, reserved=self._reserved)
            self._quota.check_disk(missing)
            more = max(missing, min(STRIDE, free))
            self._granted += more
            self._quota._arriving += more
        self._added += size

    def commit(self, offset: int) -> None:
        """Move the bytes up to `offset` from the charge to the stored total."""
        size, self._at = offset - self._at, offset
        self._granted -= size
        self._added -= size
        self._quota._arriving -= size
        self._quota._stored += size
        if self._reserved:
            self._quota._reserved = max(0, self._quota._reserved - size)

    def close(self) -> None:
        """Release the rest of the charge."""
        self._quota._arriving -= self._granted
        self._granted = self._added = 0


async def charged(body: AsyncIterator[bytes], charge: Charge) -> AsyncIterator[bytes]:
    async for data in body:
        charge.add(len(data))
        yield data


@contextlib.contextmanager
def reporting_full_disk() -> Iterator[None]:
    """Raise StorageFull instead of an OSError if a write failed because the disk is full."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        raise StorageFull(
            "the disk for uploads is full, or a quota of its file system is used up; acknowledged bytes are kept"
        ) from error
