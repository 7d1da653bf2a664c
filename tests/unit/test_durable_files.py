"""What a power cut leaves: a name is on disk when its folder was synced after the name was made."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from bide.server.blobs.files import FileBlobs, store_file
from bide.server.blobs.local_signing import LocalSigning
from bide.server.durable_files import create, make_folders, tighten
from bide.service.data_folder import DataFolder
from bide.testing.clock import ManualClock


class Disk:
    """Below `root`, what each folder contained when it was last synced, and the size of each file then."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._folders: dict[tuple[int, int], set[str]] = {}
        self._files: dict[tuple[int, int], int] = {}

    def synced(self, fd: int) -> None:
        found = os.fstat(fd)
        key = (found.st_dev, found.st_ino)
        if stat.S_ISDIR(found.st_mode):
            self._folders[key] = set(os.listdir(fd))
        else:
            self._files[key] = found.st_size

    def has(self, path: Path) -> bool:
        """Whether the file would be there, with all of its bytes, after a power cut now."""
        found = path.stat()
        whole = self._files.get((found.st_dev, found.st_ino)) == found.st_size
        while path != self._root:
            parent = path.parent.stat()
            if path.name not in self._folders.get((parent.st_dev, parent.st_ino), ()):
                return False
            path = path.parent
        return whole


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk, fsync, fdatasync = Disk(tmp_path), os.fsync, os.fdatasync

    def recorded(sync: Callable[[int], None]) -> Callable[[int], None]:
        def record(fd: int) -> None:
            sync(fd)
            disk.synced(fd)

        return record

    monkeypatch.setattr(os, "fsync", recorded(fsync))
    monkeypatch.setattr(os, "fdatasync", recorded(fdatasync))
    return disk


def test_a_stored_file_survives_with_every_folder_above_it(tmp_path: Path, disk: Disk) -> None:
    goal = tmp_path / "data" / "blobs" / "job" / "1" / "a.bin"
    store_file(goal, b"bytes")
    assert disk.has(goal)
    store_file(goal.parent.parent / "2" / "b.bin", b"other")
    assert disk.has(goal) and disk.has(goal.parent.parent / "2" / "b.bin")


def test_an_adopted_file_survives_with_every_folder_above_it(tmp_path: Path, disk: Disk) -> None:
    source = tmp_path / "staged"
    store_file(source, b"bytes")
    blobs = FileBlobs(tmp_path / "data" / "blobs")
    asyncio.run(blobs.adopt("uploads/u1/content", source, "text/plain"))
    assert disk.has(blobs.path("uploads/u1/content"))


def test_what_was_put_with_a_signature_survives(tmp_path: Path, disk: Disk) -> None:
    async def body() -> AsyncIterator[bytes]:
        yield b"hello"

    async def put() -> None:
        await signing.receive("uploads/u1/incoming", body(), 5)
        multipart = await signing.begin("uploads/u2/content", "text/plain")
        await signing.receive_part("uploads/u2/content", multipart, 1, body(), 5)
        parts = await signing.parts("uploads/u2/content", multipart)
        await signing.finish("uploads/u2/content", multipart, parts)

    blobs = FileBlobs(tmp_path / "data" / "blobs")
    signing = LocalSigning(blobs, ManualClock())
    asyncio.run(put())
    for key in ("uploads/u1/incoming", "uploads/u2/content"):
        assert disk.has(blobs.path(key)), key


def test_the_name_of_a_replica_survives(tmp_path: Path, disk: Disk) -> None:
    folder = DataFolder(tmp_path / "data")
    folder.lock()
    assert folder.replica == folder.replica
    assert disk.has(folder.path / "replica")
    folder.unlock()


def test_a_folder_that_is_a_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(OSError):
            make_folders(path)


# --- modes


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


def test_only_the_owner_can_read_what_is_made(tmp_path: Path) -> None:
    make_folders(tmp_path / "a" / "b")
    create(tmp_path / "a" / "b" / "c").close()
    assert [mode(tmp_path / name) for name in ("a", "a/b", "a/b/c")] == [0o700, 0o700, 0o600]


def test_wider_modes_are_narrowed_where_they_are_ours(tmp_path: Path) -> None:
    data = tmp_path / "data"
    (data / "blobs").mkdir(parents=True)
    data.chmod(0o755)
    for name in ("bide.db", "bide.db-wal", "lock", "replica"):
        (data / name).touch(0o644)
    folder = DataFolder(data)
    folder.lock()
    folder.unlock()
    assert mode(data) == 0o700 and mode(data / "blobs") == 0o700
    assert {mode(data / name) for name in ("bide.db", "bide.db-wal", "lock", "replica")} == {0o600}


def test_a_folder_that_has_other_things_in_it_keeps_its_mode(tmp_path: Path) -> None:
    data = tmp_path / "shared"
    data.mkdir()
    data.chmod(0o1777)
    (data / "notes.txt").touch(0o644)
    (data / "bide.db").touch(0o644)
    DataFolder(data).tighten()
    assert (mode(data), mode(data / "notes.txt"), mode(data / "bide.db")) == (0o1777, 0o644, 0o600)


def test_what_belongs_to_somebody_else_keeps_its_mode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.touch(0o644)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    tighten(path)
    tighten(tmp_path / "none")
    assert mode(path) == 0o644


def test_a_link_and_the_folder_that_it_points_to_keep_their_modes(tmp_path: Path) -> None:
    shared, data = tmp_path / "shared", tmp_path / "data"
    data.mkdir()
    (data / "blobs").symlink_to(shared)
    DataFolder(data).tighten()  # the other replica has not created it yet
    shared.mkdir(0o750)
    shared.chmod(0o750)
    DataFolder(data).tighten()
    assert mode(shared) == 0o750
