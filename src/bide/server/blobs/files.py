"""Blobs in a folder: ROOT/{job id}/{fence}/{name}."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from bide.core.record import FileInfo
from bide.server.blobs import check_name

_CHUNK = 1024 * 1024


class FileBlobs:
    """`Blobs` on a local disk."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def put(
        self, job_id: str, fence: int, name: str, source: Path | bytes, content_type: str
    ) -> FileInfo:
        key = f"{job_id}/{fence}/{check_name(name)}"
        goal = self.root / key
        goal.parent.mkdir(parents=True, exist_ok=True)
        part = goal.with_name(goal.name + ".part")
        with _open(source) as incoming, part.open("wb") as outgoing:
            size, digest = _copy(incoming, outgoing)
            outgoing.flush()
            os.fsync(outgoing.fileno())
        part.replace(goal)
        _sync_folder(goal.parent)
        return FileInfo(name, content_type, size, digest, key)

    def path(self, blob: str) -> Path:
        return self.root / blob

    def remove(self, job_id: str) -> None:
        shutil.rmtree(self.root / job_id, ignore_errors=True)

    def jobs(self, older_than: float) -> Iterator[str]:
        if not self.root.is_dir():
            return
        with os.scandir(self.root) as entries:
            for entry in entries:
                if entry.is_dir() and entry.stat().st_mtime < older_than:
                    yield entry.name


def _open(source: Path | bytes) -> BinaryIO:
    return io.BytesIO(source) if isinstance(source, bytes) else source.open("rb")


def _copy(incoming: BinaryIO, outgoing: BinaryIO) -> tuple[int, str]:
    size, digest = 0, hashlib.sha256()
    while chunk := incoming.read(_CHUNK):
        digest.update(chunk)
        outgoing.write(chunk)
        size += len(chunk)
    return size, digest.hexdigest()


def _sync_folder(folder: Path) -> None:
    """A new name is only on disk when its folder is."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
