"""The data folder: its lock, and the type of its file system."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bide.core.errors import SetupError
from bide.service.data_folder import DataFolder, FolderInUse, filesystem

MOUNTS = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard
23 22 0:22 / /proc rw,relatime - proc proc rw
40 22 0:50 / /srv rw,relatime shared:9 - nfs4 files.example:/srv rw,vers=4.2
41 40 254:3 / /srv/local rw,relatime master:3 - xfs /dev/vdb rw
42 22 0:51 / /home/ann\\040and\\040bob rw,relatime - cifs //files/home rw
43 22 0:52 / /twice rw - ext4 /dev/vdc rw
44 43 0:53 / /twice rw - fuse.sshfs ann@files: rw
garbage
45 22 0:54 / /short rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/lib/bide", "ext4"),
        ("/srv", "nfs4"),
        ("/srv/bide", "nfs4"),
        ("/srvother", "ext4"),
        ("/srv/local/bide", "xfs"),
        ("/home/ann and bob/data", "cifs"),
        ("/twice/x", "fuse.sshfs"),
        ("/short/x", "ext4"),
    ],
)
def test_the_longest_mount_counts_and_the_last_of_two(path: str, kind: str) -> None:
    assert filesystem(Path(path), MOUNTS) == kind


def test_nothing_is_made_of_no_mounts() -> None:
    assert filesystem(Path("/x"), "") is None


def test_a_folder_is_locked_to_one_and_free_again(tmp_path: Path) -> None:
    first, second = DataFolder(tmp_path / "data"), DataFolder(tmp_path / "data")
    first.lock()
    with pytest.raises(SetupError, match="another service"):
        second.lock()
    first.unlock()
    second.lock()
    second.unlock()


HOLD = """
import sys
from pathlib import Path
from bide.service.data_folder import DataFolder, FolderInUse
try:
    DataFolder(Path(sys.argv[1])).lock()
    print("locked", flush=True)
    sys.stdin.read()
except FolderInUse as error:
    print(error.holder, error.sibling)
"""


def test_the_lock_file_has_the_process_id_alone(tmp_path: Path) -> None:
    """A guide says `kill -9 $(cat bide-data/lock)`; another number in the file would be killed, too."""
    folder = DataFolder(tmp_path)
    folder.lock()
    try:
        assert (tmp_path / "lock").read_text() == str(os.getpid())
    finally:
        folder.unlock()


@pytest.mark.parametrize(("own_session", "sibling"), [(False, True), (True, False)])
def test_a_holder_of_the_same_server_is_recognised(
    tmp_path: Path, own_session: bool, sibling: bool
) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path / "data")]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=own_session
    ) as holder:
        assert holder.stdout is not None and holder.stdin is not None
        assert holder.stdout.readline() == b"locked\n"
        other = subprocess.run(command, capture_output=True, check=True, timeout=60)
        assert other.stdout.decode().split() == [str(holder.pid), str(sibling)]
        with pytest.raises(FolderInUse) as refused:
            DataFolder(tmp_path / "data").lock()
        assert not refused.value.sibling, "it is a child of this process"
        holder.stdin.close()


def test_a_folder_below_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SetupError, match="--data"):
        DataFolder(tmp_path / "file" / "data").lock()
