"""Files and folders that survive a power cut, and that only their owner can read.

A new name is on disk only after the folder that contains it was synced, and a new folder is itself such a name.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
from pathlib import Path
from typing import BinaryIO, TypeVar

T = TypeVar("T")
FOLDER_MODE = 0o700
FILE_MODE = 0o600


def sync_path(path: Path) -> None:
    """Waits until a file or a folder is on disk."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def make_folders(folder: Path) -> None:
    """Creates a folder and the missing ones above it; all of them are on disk then."""
    missing = []
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for new in reversed(missing):
        try:
            new.mkdir(FOLDER_MODE)
        except FileExistsError:  # another process was faster, and may not have synced it yet
            if not new.is_dir():
                raise
        sync_path(new.parent)


def create(path: Path, *, buffering: int = -1) -> BinaryIO:
    """Opens a new or emptied file for writing."""
    return open(path, "wb", buffering, opener=_opener)


def _opener(path: str, flags: int) -> int:
    return os.open(path, flags, FILE_MODE)


def create_once(path: Path, data: bytes) -> bytes:
    """What is in the file: `data`, unless another process has made it before. It appears with all of its bytes."""
    if not path.exists():
        make_folders(path.parent)
        new = path.with_name(f"{path.name}-{secrets.token_hex(8)}")
        try:
            with create(new) as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            with contextlib.suppress(FileExistsError):
                os.link(new, path)
        finally:
            new.unlink(missing_ok=True)
        sync_path(path.parent)
    return path.read_bytes()


def tighten(path: Path) -> None:
    """Takes the rights of others from a file or a folder that was made with wider ones, when it is ours."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    if found.st_mode & 0o077 and found.st_uid == os.geteuid():
        path.chmod(found.st_mode & 0o7700)


async def finished(future: asyncio.Future[T]) -> T:
    """Its result, even when who waits is cancelled meanwhile; that is told afterwards.

    A thread that writes goes on anyway, and must not lose its file to another one meanwhile.
    """
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.shield(future)
        except asyncio.CancelledError as error:
            if future.done():
                break
            cancelled = error
        except BaseException:  # told by result(), below
            break
    if cancelled is not None:
        future.exception()
        raise cancelled
    return future.result()
