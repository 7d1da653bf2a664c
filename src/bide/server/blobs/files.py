"""Blobs in a folder: ROOT/{job id}/{fence}.{process}/{name}, ROOT/uploads/{upload id}/content."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import io
import os
import secrets
import shutil
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from bide.core.clock import Clock
from bide.core.errors import JobError, SetupError, StorageUnavailable
from bide.core.jobs.record import FileInfo
from bide.server.blobs import (
    CHUNK,
    QUARANTINE,
    STORE_ID,
    BlobMissing,
    PartStorage,
    Signing,
    file_gone,
    job_key,
)
from bide.server.durable_files import FILE_MODE, create_once, make_folders, sync_path, written

_COPY_SIZE = 1024 * 1024
CONCURRENT_MOVES = 2  # more would wait for the same disk
_FULL = (
    "cannot store {name}: the disk of the data folder is full, or a quota is used up; free disk space"
)


class FileBlobs:
    """`Blobs` on a local disk."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._moving = asyncio.Semaphore(CONCURRENT_MOVES)

    def put(
        self, job_id: str, fence: int, name: str, source: Path | bytes, content_type: str
    ) -> FileInfo:
        key = job_key(job_id, fence, name)
        try:
            size, digest = store_file(self.root / key, source)
        except OSError as error:
            if is_full(error):
                raise JobError("DISK_FULL", _FULL.format(name=name)) from error
            raise
        return FileInfo(name, content_type, size, digest, key)

    def path(self, blob: str) -> Path:
        return self.root / blob

    def fetch(self, file: FileInfo, folder: Path) -> Path:
        path = self.path(file.blob)
        if not path.exists():
            raise file_gone(file.name)
        return path

    async def open(
        self, blob: str, first: int = 0, last: int | None = None
    ) -> AsyncGenerator[bytes, None]:
        pieces = _read(self.path(blob), first, None if last is None else last - first + 1)
        try:
            await anext(pieces)  # opens the file
        except (FileNotFoundError, NotADirectoryError):
            raise BlobMissing(f"blob {blob} does not exist") from None
        return pieces

    async def adopt(self, key: str, source: Path, content_type: str) -> None:
        async with self._moving:
            await asyncio.to_thread(_move, source, self.path(key))

    async def remove(self, owner: str) -> None:
        await asyncio.to_thread(shutil.rmtree, self.root / owner, ignore_errors=True)

    async def owners(self, space: str, older_than: float) -> Sequence[str]:
        return await asyncio.to_thread(_older, self.root / space, older_than)

    @property
    def shown(self) -> str:
        return str(self.root)

    async def claim(self, store_id: str) -> str:
        found = await asyncio.to_thread(create_once, self.root / STORE_ID, store_id.encode())
        return found.decode().strip()

    async def store_id(self) -> str | None:
        try:
            return (await asyncio.to_thread((self.root / STORE_ID).read_text)).strip()
        except (FileNotFoundError, NotADirectoryError):
            return None

    async def quarantine(self, owner: str) -> None:
        await asyncio.to_thread(_mark, self.root / QUARANTINE / owner)

    async def release(self, owner: str) -> None:
        await asyncio.to_thread((self.root / QUARANTINE / owner).unlink, missing_ok=True)

    async def quarantined(self, space: str) -> Mapping[str, float]:
        return await asyncio.to_thread(_marks, self.root / QUARANTINE / space)

    def signing(self, clock: Clock) -> Signing:
        from bide.server.blobs.local_signing import LocalSigning

        return LocalSigning(self, clock)

    def part_storage(self) -> PartStorage | None:
        return None

    async def check(self) -> str:
        probe = self.root / f".probe-{secrets.token_hex(8)}"
        try:
            await asyncio.to_thread(_probe, probe)
        except OSError as error:
            raise SetupError(
                f"cannot store files in {self.root}: {error.strerror}. Free disk space, give this user write permission, "
                "or choose another location with --blobs"
            ) from None
        return f"{self.root}: written, read and removed"

    async def close(self) -> None:
        pass


def store_file(goal: Path, source: Path | bytes) -> tuple[int, str]:
    """Store a file atomically and durably; return its size and checksum."""
    with _open(source) as reader, written(goal) as writer:
        return _copy(reader, writer)


def _open(source: Path | bytes) -> BinaryIO:
    return io.BytesIO(source) if isinstance(source, bytes) else source.open("rb")


def _copy(reader: BinaryIO, writer: BinaryIO) -> tuple[int, str]:
    size, digest = 0, hashlib.sha256()
    while chunk := reader.read(_COPY_SIZE):
        digest.update(chunk)
        writer.write(chunk)
        size += len(chunk)
    return size, digest.hexdigest()


def is_full(error: OSError) -> bool:
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def _move(source: Path, goal: Path) -> None:
    """Rename the file, or copy it to another disk."""
    make_folders(goal.parent)
    try:
        source.replace(goal)
        sync_path(goal.parent)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        store_file(goal, source)
        source.unlink()


async def _read(path: Path, first: int, left: int | None) -> AsyncGenerator[bytes, None]:
    """Yield an empty piece when the file is open: a generator that has started can be closed."""
    try:
        # Not in a thread: if the task is cancelled meanwhile, the file stays open.
        with path.open("rb", buffering=0) as file:
            file.seek(first)
            yield b""
            while left is None or left > 0:
                wanted = CHUNK if left is None else min(CHUNK, left)
                chunk = await asyncio.to_thread(file.read, wanted)
                if not chunk:
                    return
                if left is not None:
                    left -= len(chunk)
                yield chunk
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError as error:
        raise _unreadable(error) from error


def _unreadable(error: OSError) -> StorageUnavailable:
    return StorageUnavailable(
        f"cannot read the file: {error.strerror}. The disk of the data folder may be failing"
    )


def _older(folder: Path, older_than: float) -> list[str]:
    if not folder.is_dir():
        return []
    with os.scandir(folder) as entries:
        # Each attempt creates a folder in it, which updates its modification time.
        return [e.name for e in entries if e.is_dir() and e.stat().st_mtime < older_than]


def _mark(path: Path) -> None:
    make_folders(path.parent)
    path.touch(FILE_MODE)


def _marks(folder: Path) -> dict[str, float]:
    if not folder.is_dir():
        return {}
    with os.scandir(folder) as entries:
        return {entry.name: entry.stat().st_mtime for entry in entries if entry.is_file()}


def _probe(path: Path) -> None:
    try:
        store_file(path, b"bide")
        if path.read_bytes() != b"bide":
            raise OSError(errno.EIO, "the bytes read differ from the bytes written")
    finally:
        path.unlink(missing_ok=True)
