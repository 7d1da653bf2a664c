"""The data folder: made when it is missing, locked to one service as long as that lives."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from bide.core.errors import SetupError


class DataFolder:
    """Everything that a service keeps on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        self.database = self.path / "bide.db"
        self.blobs = self.path / "blobs"
        self.work = self.path / "work"
        self._lock: int | None = None

    def lock(self) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            fd = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise SetupError(
                f"the data folder {self.path} cannot be written: {error.strerror}. "
                "Give this user the right to, or choose another one with --data"
            ) from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.pread(fd, 20, 0).decode(errors="replace").strip() or "unknown"
            os.close(fd)
            raise SetupError(
                f"another service (process {holder}) uses the data folder {self.path}: "
                "stop it, or choose another folder with --data"
            ) from None
        os.ftruncate(fd, 0)
        os.pwrite(fd, str(os.getpid()).encode(), 0)
        self._lock = fd

    def unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
