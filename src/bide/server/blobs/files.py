"""Blobs in a folder: ROOT/{job id}/{fence}/{name}."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import io
import os
import shutil
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import BinaryIO

from bide.core.errors import JobError
from bide.core.record import FileInfo
from bide.server.blobs import check_name

_CHUNK = 1024 * 1024
_FULL = "{name} cannot be stored: the disk with the data folder is full, or a quota is used up; make room on it"


class FileBlobs:
    """`Blobs` on a local disk."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def put(
        self, job_id: str, fence: int, name: str, source: Path | bytes, content_type: str
    ) -> FileInfo:
        key = f"{job_id}/{fence}/{check_name(name)}"
        try:
            size, digest = _store(self.root / key, source)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise JobError("DISK_FULL", _FULL.format(name=name)) from error
            raise
        return FileInfo(name, content_type, size, digest, key)

    def path(self, blob: str) -> Path:
        return self.root / blob

    async def open(
        self, blob: str, first: int = 0, last: int | None = None
    ) -> AsyncGenerator[bytes, None]:
        file = await asyncio.to_thread(self.path(blob).open, "rb")
        return _read(file, first, None if last is None else last - first + 1)

    async def adopt(self, key: str, source: Path, content_type: str) -> None:
        await asyncio.to_thread(_move, source, self.path(key))

    def remove(self, job_id: str) -> None:
        shutil.rmtree(self.root / job_id, ignore_errors=True)

    def jobs(self, older_than: float) -> Iterator[str]:
        if not self.root.is_dir():
            return
        with os.scandir(self.root) as entries:
            for entry in entries:
                if entry.is_dir() and entry.stat().st_mtime < older_than:
                    yield entry.name


def _store(goal: Path, source: Path | bytes) -> tuple[int, str]:
    """Size and checksum of what is on disk under its name then, or not at all."""
    goal.parent.mkdir(parents=True, exist_ok=True)
    part = goal.with_name(goal.name + ".part")
    try:
        with _open(source) as incoming, part.open("wb") as outgoing:
            size, digest = _copy(incoming, outgoing)
            outgoing.flush()
            os.fsync(outgoing.fileno())
        part.replace(goal)
        _sync_folder(goal.parent)
    except BaseException:
        part.unlink(missing_ok=True)  # half a file is of use to nobody, and takes room
        raise
    return size, digest


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


async def _read(file: BinaryIO, first: int, left: int | None) -> AsyncGenerator[bytes, None]:
    try:
        await asyncio.to_thread(file.seek, first)
        while left is None or left > 0:
            chunk = await asyncio.to_thread(file.read, _CHUNK if left is None else min(_CHUNK, left))
            if not chunk:
                return
            if left is not None:
                left -= len(chunk)
            yield chunk
    finally:
        file.close()


def _move(source: Path, goal: Path) -> None:
    """What it holds is on disk before its name is."""
    goal.parent.mkdir(parents=True, exist_ok=True)
    source.replace(goal)
    _sync_folder(goal.parent)
    _sync_folder(goal.parent.parent)
