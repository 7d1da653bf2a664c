"""A file to upload: read in blocks, hashed once, and recognised when an upload is resumed.

1. The client sends the file as it was when it was opened. If it changes during the upload, UploadFailed is raised.
2. Each byte is hashed once, in order, however often it is sent.
3. Memory use is one block, whatever the size.

Everything here blocks: call it in a thread.
"""

from __future__ import annotations

import hashlib
import io
import mimetypes
import os
import stat
import threading
from pathlib import Path
from typing import Any, BinaryIO, Self

from bide.client.ledger.outbox import PendingFile
from bide.client.submission import Given
from bide.core.errors import UploadFailed
from bide.core.wire.digest import render_digest

ANY_TYPE = "application/octet-stream"
HEAD = 64 * 1024  # first bytes that identify a file, with its size and modification time
BLOCK = 1024 * 1024


class Source:
    """A path, or a seekable file object, which is sent from its start and which the caller closes."""

    def __init__(self, given: Given) -> None:
        if isinstance(given, str | os.PathLike):
            path = Path(given)
            self.path: Path | None = path.absolute()
            if not stat.S_ISREG(path.stat().st_mode):
                raise ValueError(
                    f"{path} cannot be uploaded: it is a folder, a pipe or a device, not a regular file"
                )
            self._file: BinaryIO = path.open("rb")
            self._ours = True
        else:
            self.path = None
            self._file = _seekable(given)
            self._ours = False
        self.name = _name(given)
        self.content_type = mimetypes.guess_type(self.name)[0] or ANY_TYPE
        self.size = self._file.seek(0, os.SEEK_END)
        self._state = self._look()
        self._hash = hashlib.sha256()
        self._hashed = 0
        # An aborted request may still read when the next one starts.
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._ours:
            self._file.close()

    def pending_file(self) -> PendingFile:
        """Return what identifies the file in the ledger."""
        with self._lock:
            head = hashlib.sha256(self._read(0, min(HEAD, self.size))).hexdigest()
        modified = 0 if self._state is None else self._state[1]
        path = os.fsencode(self.path or "").decode("utf-8", "backslashreplace")
        return PendingFile(path=path, size=self.size, modified=modified, head=head)

    def block(self, offset: int, most: int = BLOCK) -> bytes:
        """Return bytes from `offset`, at least one unless it is the end; UploadFailed if the file has changed."""
        with self._lock:
            self._catch_up(offset)
            data = self._read(offset, min(most, self.size - offset))
            self._take(offset, data)
            return data

    def catch_up(self, offset: int) -> None:
        """Hash the bytes that an earlier process sent. That can take long, so call it before the request starts."""
        with self._lock:
            self._catch_up(offset)

    def sha256(self) -> str:
        """Return the SHA-256 of the whole file; UploadFailed if it has changed."""
        self.check()
        with self._lock:
            self._catch_up(self.size)
            return self._hash.hexdigest()

    def digest(self) -> str:
        """Return the SHA-256 as a Content-Digest (RFC 9530)."""
        return render_digest(self.sha256())

    def check(self) -> None:
        """Raise UploadFailed if the file has changed."""
        now = self._look()
        if now != self._state:
            was, is_now = self._state or (0, 0), now or (0, 0)
            what = (
                f"it had {was[0]} bytes and now has {is_now[0]}"
                if was[0] != is_now[0]
                else "its modification time changed"
            )
            raise changed(self.name, what)

    def _catch_up(self, offset: int) -> None:
        while self._hashed < offset:
            self._take(self._hashed, self._read(self._hashed, min(BLOCK, offset - self._hashed)))

    def _take(self, offset: int, data: bytes) -> None:
        new = offset + len(data) - self._hashed
        if new > 0:
            self._hash.update(data if new == len(data) else memoryview(data)[-new:])
            self._hashed += new

    def _read(self, offset: int, size: int) -> bytes:
        self._file.seek(offset)
        data = self._file.read(size)
        while len(data) < size:
            more = self._file.read(size - len(data))
            if not more:
                raise changed(self.name, f"it had {self.size} bytes and ends after {offset + len(data)}")
            data += more
        self.check()
        return data

    def _look(self) -> tuple[int, int] | None:
        """Return size and modification time; None for an object without a file descriptor."""
        try:
            found = os.fstat(self._file.fileno())
        except (OSError, AttributeError):  # io.UnsupportedOperation is an OSError
            return None
        return found.st_size, found.st_mtime_ns


def changed(name: str, what: str) -> UploadFailed:
    return UploadFailed(
        f"{name} changed during the upload: {what}. No job was created. Send it again when no process writes to it."
    )


def _seekable(given: Any) -> BinaryIO:
    if isinstance(given, io.TextIOBase):
        raise TypeError("Open the file object in binary mode: open(path, 'rb')")
    if not (hasattr(given, "read") and hasattr(given, "seek")):
        raise TypeError(f"A file must be a path or a file object, not {type(given).__name__}")
    if hasattr(given, "seekable") and not given.seekable():
        raise ValueError("The file object is not seekable. Write it to a file first.")
    found: BinaryIO = given
    return found


def _name(given: Given) -> str:
    named = given if isinstance(given, str | os.PathLike) else getattr(given, "name", None)
    name = Path(named).name if isinstance(named, str | os.PathLike) else ""
    return os.fsencode(name).decode("utf-8", "replace") or "file"
