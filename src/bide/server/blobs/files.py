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

from bide.core.errors import JobError, SetupError, StorageUnavailable
from bide.core.record import FileInfo
from bide.server.blobs import CHUNK, QUARANTINE, STORE_ID, BlobMissing, file_gone, job_key
from bide.server.durable_files import FILE_MODE, create, create_once, make_folders, sync_path

_COPIED = 1024 * 1024
MOVED = 2  # files at once: more would only wait for the same disk
_FULL = "{name} cannot be stored: the disk with the data folder is full, or a quota is used up; make room on it"


class FileBlobs:
    """`Blobs` on a local disk."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._moving = asyncio.Semaphore(MOVED)

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
            await anext(pieces)  # which opens it
        except (FileNotFoundError, NotADirectoryError):
            raise BlobMissing(f"there is no blob {blob}") from None
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

    async def check(self) -> str:
        probe = self.root / f".probe-{secrets.token_hex(8)}"
        try:
            await asyncio.to_thread(_probe, probe)
        except OSError as error:
            raise SetupError(
                f"files cannot be kept in {self.root}: {error.strerror}. Make room, give this user the right to "
                "write there, or keep them elsewhere with --blobs"
            ) from None
        return f"{self.root}: written, read and removed"

    async def close(self) -> None:
        pass


def store_file(goal: Path, source: Path | bytes) -> tuple[int, str]:
    """Size and checksum of what is on disk under its name then, or not at all."""
    make_folders(goal.parent)
    part = goal.with_name(goal.name + ".part")
    try:
        with _open(source) as incoming, create(part) as outgoing:
            size, digest = _copy(incoming, outgoing)
            outgoing.flush()
            os.fsync(outgoing.fileno())
        part.replace(goal)
        sync_path(goal.parent)
    except BaseException:
        part.unlink(missing_ok=True)  # half a file is of use to nobody, and takes room
        raise
    return size, digest


def _open(source: Path | bytes) -> BinaryIO:
    return io.BytesIO(source) if isinstance(source, bytes) else source.open("rb")


def _copy(incoming: BinaryIO, outgoing: BinaryIO) -> tuple[int, str]:
    size, digest = 0, hashlib.sha256()
    while chunk := incoming.read(_COPIED):
        digest.update(chunk)
        outgoing.write(chunk)
        size += len(chunk)
    return size, digest.hexdigest()


def is_full(error: OSError) -> bool:
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def _move(source: Path, goal: Path) -> None:
    """By its name alone, where both are on one disk."""
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
    """First an empty piece, when it is open: what has begun can be closed."""
    try:
        # Here, not in a thread: a task that ends meanwhile would leave it open.
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
        f"the file cannot be read: {error.strerror}. The disk with the data folder may be failing"
    )


def _older(folder: Path, older_than: float) -> list[str]:
    if not folder.is_dir():
        return []
    with os.scandir(folder) as entries:
        # Each attempt makes a folder of its own in there, which is what touches it.
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
            raise OSError(errno.EIO, "what was written is not what is read")
    finally:
        path.unlink(missing_ok=True)
