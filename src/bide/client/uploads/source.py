"""One file that is sent: read in blocks, hashed once, and known again.

1. What is sent is the file as it was when it was opened: a change while it is read is an UploadFailed, never a mixture.
2. Each byte is hashed once, in order, however often it is sent.
3. Memory is that of a block, whatever the size.

Everything here blocks: it belongs into a thread.
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

from bide.client.ledger.outbox import Item
from bide.client.submission import Given
from bide.core.digest import render_digest
from bide.core.errors import UploadFailed

ANY_TYPE = "application/octet-stream"
HEAD = 64 * 1024  # bytes by which a file is known again, besides its size and its time
BLOCK = 1024 * 1024


class Source:
    """A path, or a seekable file object, which is sent from its beginning and stays the caller's to close."""

    def __init__(self, given: Given) -> None:
        if isinstance(given, str | os.PathLike):
            path = Path(given)
            self.path: Path | None = path.absolute()
            if not stat.S_ISREG(path.stat().st_mode):
                raise ValueError(
                    f"{path} is not a file that can be sent: it is a folder, a pipe or a device"
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
        self._lock = (
            threading.Lock()
        )  # a request that was cut off may still read when the next one begins

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._ours:
            self._file.close()

    def item(self) -> Item:
        """By what it is known again."""
        with self._lock:
            head = hashlib.sha256(self._read(0, min(HEAD, self.size))).hexdigest()
        modified = 0 if self._state is None else self._state[1]
        path = os.fsencode(self.path or "").decode("utf-8", "backslashreplace")
        return Item(path=path, size=self.size, modified=modified, head=head)

    def block(self, offset: int, most: int = BLOCK) -> bytes:
        """The bytes from `offset` on, at least one of them unless it is the end; UploadFailed when the file has changed."""
        with self._lock:
            self._catch_up(offset)
            data = self._read(offset, min(most, self.size - offset))
            self._take(offset, data)
            return data

    def catch_up(self, offset: int) -> None:
        """Hashes what somebody sent before us; of much of it that takes a while, so before anybody waits for bytes."""
        with self._lock:
            self._catch_up(offset)

    def sha256(self) -> str:
        """Of the whole file, as it still is."""
        self.check()
        with self._lock:
            self._catch_up(self.size)
            return self._hash.hexdigest()

    def digest(self) -> str:
        """The same in the words of RFC 9530."""
        return render_digest(self.sha256())

    def check(self) -> None:
        """UploadFailed when it is no longer what it was."""
        now = self._look()
        if now != self._state:
            was, is_now = self._state or (0, 0), now or (0, 0)
            what = (
                f"it had {was[0]} bytes and has {is_now[0]}"
                if was[0] != is_now[0]
                else "it was written to"
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
        """Size and time; None for what is in no file system."""
        try:
            found = os.fstat(self._file.fileno())
        except (OSError, AttributeError):  # io.UnsupportedOperation is an OSError
            return None
        return found.st_size, found.st_mtime_ns


def changed(name: str, what: str) -> UploadFailed:
    return UploadFailed(
        f"{name} has changed while it was sent: {what}. No job was made of it; send it again when nobody writes to it"
    )


def _seekable(given: Any) -> BinaryIO:
    if isinstance(given, io.TextIOBase):
        raise TypeError("a file object that is sent must be opened as bytes: open(path, 'rb')")
    if not (hasattr(given, "read") and hasattr(given, "seek")):
        raise TypeError(f"a file is a path or a file object, not {type(given).__name__}")
    if hasattr(given, "seekable") and not given.seekable():
        raise ValueError("a file object that is sent must be seekable: write it to a file first")
    found: BinaryIO = given
    return found


def _name(given: Given) -> str:
    named = given if isinstance(given, str | os.PathLike) else getattr(given, "name", None)
    name = Path(named).name if isinstance(named, str | os.PathLike) else ""
    return os.fsencode(name).decode("utf-8", "replace") or "file"
