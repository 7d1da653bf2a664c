"""Files and folders that survive a power cut, and that only their owner can read.

A new name is on disk only after the folder that contains it was synced, and a new folder is itself such a name.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

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


def tighten(path: Path) -> None:
    """Takes the rights of others from a file or a folder that was made with wider ones, when it is ours."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    if found.st_mode & 0o077 and found.st_uid == os.geteuid():
        path.chmod(found.st_mode & 0o7700)
