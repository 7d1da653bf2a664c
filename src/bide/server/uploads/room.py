"""How much all uploads may take: a quota of bytes, and what the disk has.

The sum is the store's, asked for now and then; what has been promised since is added here. With several replicas it may be
exceeded by what they promise between two questions.
"""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

from bide.core.errors import PayloadTooLarge, Problem, StorageFull
from bide.server.config import UploadConfig

SPARE = 64 * 1024 * 1024  # of the disk: the record must be writable, too


class Room:
    def __init__(self, config: UploadConfig, folder: Path) -> None:
        self._config = config
        self._folder = folder
        self._stored = 0
        self._since = 0  # promised or given back since the store was asked
        self.incoming = 0  # of uploads that are not in the store yet

    def known(self, stored: int) -> None:
        self._stored, self._since = stored, 0

    def check_size(self, size: int) -> None:
        if size > self._config.max_size:
            raise PayloadTooLarge(
                f"the upload has {size} bytes; this service takes up to {self._config.max_size} (max_upload)"
            )

    def check(self, size: int) -> None:
        """Problem when there is no room for so many bytes more."""
        self.check_quota(size)
        self._check_disk(size)

    def check_quota(self, size: int) -> None:
        quota = self._config.quota
        used = self._stored + self._since + self.incoming
        if quota is not None and used + size > quota:
            raise StorageFull(
                f"uploads may take {quota} bytes together and take {used}: remove some, or raise the quota (upload_quota)"
            )

    def _check_disk(self, size: int) -> None:
        try:
            free = shutil.disk_usage(self._folder).free
        except FileNotFoundError:
            return
        if size + SPARE > free:
            raise StorageFull(f"the disk for uploads has {free} bytes left, and {size} more are to come")

    def promise(self, size: int) -> None:
        self._since += size

    def give_back(self, size: int) -> None:
        self._since -= size


def told(error: OSError) -> Problem | None:
    """What a sender is told when a write failed; None for what is no matter of room."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return StorageFull(
            "the disk for uploads is full, or a quota of its file system is used up; what was acknowledged is kept"
        )
    return None
