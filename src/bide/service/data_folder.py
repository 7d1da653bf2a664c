"""The data folder of a service: created if missing, on a local disk, locked while the service runs.

Only its owner can read it: the folder has mode 0700, its files 0600. Wider modes of an earlier version are narrowed.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
from pathlib import Path

from bide.core.errors import SetupError
from bide.server.durable_files import FILE_MODE, create_once, make_folders, tighten

# File system types in mountinfo. On a network file system, locks may not work across machines or at all, and SQLite's
# write-ahead log needs shared memory between all processes that open it.
# fmt: off
NETWORK = frozenset({
    "9p", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "gfs", "gfs2", "glusterfs", "gpfs", "lustre", "ncpfs",
    "nfs", "nfs4", "ocfs2", "orangefs", "pvfs2", "smb3", "smbfs", "fuse.ceph", "fuse.davfs", "fuse.gcsfuse",
    "fuse.glusterfs", "fuse.juicefs", "fuse.rclone", "fuse.s3fs", "fuse.sshfs",
})
# fmt: on


class FolderInUse(SetupError):
    """Another process has locked the folder. `holder`: its id. `sibling`: it is another worker of the same server."""

    def __init__(self, path: Path, holder: str, sibling: bool) -> None:
        super().__init__(
            f"another service (process {holder}) uses the data folder {path}: "
            "stop it, or choose another folder with --data"
        )
        self.path = path
        self.holder = holder
        self.sibling = sibling


class DataFolder:
    """The files of a service."""

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        self.database = self.path / "bide.db"
        self.blobs = self.path / "blobs"
        self.work = self.path / "work"
        self.uploads = self.path / "uploads"
        self._lock: int | None = None

    @property
    def _own(self) -> set[Path]:
        """All paths that bide creates in it."""
        database = [self.database.with_name(self.database.name + end) for end in ("", "-wal", "-shm")]
        others = [self.path / name for name in ("lock", "replica", "workers", "events.mark")]
        return {*database, *others, self.blobs, self.work, self.uploads}

    @property
    def replica(self) -> str:
        """The name of the service of this folder, stable over restarts. Its lease owners begin with it."""
        new = f"{os.uname().nodename}.{secrets.token_hex(3)}"
        return create_once(self.path / "replica", new.encode()).decode().strip()

    @property
    def owner(self) -> str:
        """The name under which this process claims jobs."""
        return f"{self.replica}:{os.getpid()}"

    def lock(self, *, required: bool = True) -> bool:
        """Lock the folder. If another process holds the lock, raise FolderInUse, or return False if not `required`."""
        self.reject_network()
        try:
            make_folders(self.path)
            self.tighten()
            fd = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        except OSError as error:
            raise self._unwritable(error) from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.pread(fd, 50, 0).decode(errors="replace").strip()
            os.close(fd)
            if not required:
                return False
            raise FolderInUse(self.path, holder or "unknown", _is_sibling(holder)) from None
        try:
            os.ftruncate(fd, 0)
            # The process id and nothing else: users type `kill $(cat bide-data/lock)`.
            os.pwrite(fd, f"{os.getpid()}".encode(), 0)
        except OSError as error:
            os.close(fd)
            raise self._unwritable(error) from error
        self._lock = fd
        return True

    def tighten(self) -> None:
        """Narrow wider modes of an earlier version.

        The mode of the folder itself changes only if bide created all of its files, because other programs may use it.
        """
        own = self._own
        if all(path in own for path in self.path.iterdir()):
            tighten(self.path)
        for path in own:
            tighten(path)

    def unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _unwritable(self, error: OSError) -> SetupError:
        advice = (
            "Free disk space"
            if error.errno in (errno.ENOSPC, errno.EDQUOT)
            else "Give this user write permission, mount the disk writable"
        )
        return SetupError(
            f"cannot write to the data folder {self.path}: {error.strerror}. "
            f"{advice}, or choose another folder with --data"
        )

    def reject_network(self) -> None:
        """Raise SetupError if the folder is on a network file system."""
        try:
            mounts = Path("/proc/self/mountinfo").read_text(errors="surrogateescape")
        except OSError:  # not Linux
            return
        kind = filesystem(self.path, mounts)
        if kind in NETWORK:
            raise SetupError(
                f"the data folder {self.path} is on a network file system ({kind}), where database locks are "
                "not reliable: choose a folder on a local disk with --data"
            )


def _is_sibling(holder: str) -> bool:
    """Whether the holder of the lock and this process are workers of one server: they have the same parent and the same
    session. Services that an init system starts have the same parent too, but each has its own session.
    """
    try:
        pid = int(holder)
        # The parent is the second field after the name of the program, which is in parentheses.
        parent = int(Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[1])
        return parent == os.getppid() and pid != os.getpid() and os.getsid(pid) == os.getsid(0)
    except (ValueError, IndexError, OSError):  # not Linux, or the holder has ended
        return False


def filesystem(path: Path, mounts: str) -> str | None:
    """Return the type of the file system of `path`, from the text of mountinfo."""
    found, depth = None, 0
    for line in mounts.splitlines():
        mount, _, source = line.partition(" - ")
        fields, kinds = mount.split(" "), source.split(" ")
        if len(fields) < 5 or not source:
            continue
        point = Path(re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), fields[4]))
        # A later mount on the same point hides an earlier one.
        if path.is_relative_to(point) and len(point.parts) >= depth:
            found, depth = kinds[0], len(point.parts)
    return found
