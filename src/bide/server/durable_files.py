"""Files and folders that survive a power cut, and that only their owner can read.

A new file or folder is on disk only after its parent folder was synced.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import stat
from collections.abc import Awaitable, Iterator
from pathlib import Path
from typing import BinaryIO, TypeVar

T = TypeVar("T")
FOLDER_MODE = 0o700
FILE_MODE = 0o600


def sync_path(path: Path) -> None:
    """Wait until a file or folder is on disk."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def make_folders(folder: Path) -> None:
    """Create a folder and its missing parents, and wait until they are on disk."""
    missing = []
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for new in reversed(missing):
        try:
            new.mkdir(FOLDER_MODE)
        except FileExistsError:  # another process has created it, but may not have synced it yet
            if not new.is_dir():
                raise
        sync_path(new.parent)


def create(path: Path, *, buffering: int = -1) -> BinaryIO:
    """Open a new or truncated file for writing."""
    return open(path, "wb", buffering, opener=_opener)


def _opener(path: str, flags: int) -> int:
    return os.open(path, flags, FILE_MODE)


@contextlib.contextmanager
def written(goal: Path, *, replace: bool = True) -> Iterator[BinaryIO]:
    """Open a file for writing that becomes `goal` at the end, complete and on disk. After an exception nothing remains of
    it. `replace=False`: an existing `goal` stays.
    """
    make_folders(goal.parent)
    part = part_of(goal)
    try:
        with create(part) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if replace:
            part.replace(goal)
        else:
            with contextlib.suppress(FileExistsError):
                os.link(part, goal)
        sync_path(goal.parent)
    finally:
        part.unlink(missing_ok=True)


def part_of(goal: Path) -> Path:
    """A name for the incomplete file, in the same folder."""
    return goal.with_name(f".{goal.name}-{secrets.token_hex(4)}.part")


def create_once(path: Path, data: bytes) -> bytes:
    """Create a file with `data` atomically, unless it exists. Return its content."""
    if not path.exists():
        with written(path, replace=False) as file:
            file.write(data)
    return path.read_bytes()


def tighten(path: Path) -> None:
    """Remove the permissions of group and others from a file or folder that belongs to this user.

    A link stays as it is: replicas share the folder that it points to, which may not exist yet.
    """
    with contextlib.suppress(FileNotFoundError):  # another process may remove it meanwhile
        found = path.lstat()
        own = found.st_uid == os.geteuid() and not stat.S_ISLNK(found.st_mode)
        if own and found.st_mode & 0o077:
            path.chmod(found.st_mode & 0o7700)


async def finished(awaited: Awaitable[T]) -> T:
    """Wait for the result even if the caller is cancelled, then raise the cancellation.

    A thread that writes cannot be cancelled, and no other writer may get its file before it has finished.
    """
    future = asyncio.ensure_future(awaited)
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.shield(future)
        except asyncio.CancelledError as error:
            if future.done():
                break
            cancelled = error
        except BaseException:  # raised by result() below
            break
    if cancelled is not None:
        future.exception()
        raise cancelled
    return future.result()
