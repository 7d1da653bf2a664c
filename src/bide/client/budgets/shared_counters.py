"""A few bytes that processes of one machine share, in a small file that all of them map into memory.

1. A process changes the bytes only while it holds the file's lock. The system releases the lock of a process that dies.
2. New bytes are written beside the old ones; then one number makes them the newest. A process that is killed or stopped
   before that leaves the old bytes valid.
3. No process waits for the lock. If the lock is taken, the caller tries again later.
4. No process can keep the lock. If it was held for longer than LOCK_TIMEOUT, the others abandon the file and continue
   with a copy. A change is valid only if the file was not abandoned before the lock was released.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import tempfile
import time
from pathlib import Path

SLOT = 16 * 1024
# Words of the header: the number of changes so far, and whether the file was abandoned.
NUMBER, ABANDONED = 0, 1
HEADER = 16
SIZE = HEADER + 2 * SLOT  # each slot: a timestamp, a length and the bytes
LARGEST = SLOT - 16
# Seconds. A change takes microseconds, but a busy machine may pause the writer for a while.
LOCK_TIMEOUT = 0.1


class SharedCounters:
    """`timestamp` is stored with the bytes and can be read without decoding them."""

    def __init__(self, path: Path, first: bytes, timestamp: float) -> None:
        self._path = path
        self._copy = 0  # how often the file was abandoned
        self._blocked: tuple[tuple[int, int], float] | None = None  # at which version, and since when
        _make(self._at(0), first, timestamp)
        self._open()
        while self._words[ABANDONED]:
            self._follow()

    @property
    def version(self) -> tuple[int, int]:
        """Differs after each change."""
        return self._copy, self._words[NUMBER]

    @property
    def timestamp(self) -> float:
        return self._doubles[self._slot() >> 3]

    def read(self) -> bytes:
        """Return the newest bytes; without the lock, another process may have changed them since."""
        while True:
            number, start = self._words[NUMBER], self._slot()
            length = min(self._words[(start >> 3) + 1], LARGEST)
            found = self._map[start + 16 : start + 16 + length]
            if self._words[NUMBER] - number < 2:  # no process has begun to write into this slot
                return found

    def lock(self) -> bool:
        """Return whether the lock was free. Call `unlock` afterwards."""
        for _ in range(3):
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if self._stuck():
                    self._words[ABANDONED] = 1
                    self._follow()
                continue
            if not self._words[ABANDONED]:
                self._blocked = None
                return True
            fcntl.flock(self._file, fcntl.LOCK_UN)
            self._follow()
        return False

    def write(self, data: bytes, timestamp: float) -> None:
        """Requires the lock."""
        number = self._words[NUMBER] + 1
        start = HEADER + (number & 1) * SLOT
        self._map[start + 16 : start + 16 + len(data)] = data
        self._words[(start >> 3) + 1] = len(data)
        self._doubles[start >> 3] = timestamp
        self._words[NUMBER] = number

    def unlock(self) -> bool:
        """Return whether the change is valid: False if the others have abandoned the file."""
        fcntl.flock(self._file, fcntl.LOCK_UN)
        return not self._words[ABANDONED]

    def close(self) -> None:
        self._words.release()
        self._doubles.release()
        self._map.close()
        os.close(self._file)

    def _slot(self) -> int:
        return HEADER + (self._words[NUMBER] & 1) * SLOT

    def _stuck(self) -> bool:
        version, now = self.version, time.monotonic()
        if self._blocked is None or self._blocked[0] != version:
            self._blocked = (version, now)
        return now - self._blocked[1] > LOCK_TIMEOUT

    def _follow(self) -> None:
        """Continue with the next copy, which the first process that needs it makes. Only the process that held the
        lock too long can still change the old file, and its change is not valid."""
        _make(self._at(self._copy + 1), self.read(), self.timestamp)
        self.close()
        self._copy += 1
        self._blocked = None
        self._open()

    def _at(self, copy: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{copy}")

    def _open(self) -> None:
        self._file = os.open(self._at(self._copy), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            self._map = mmap.mmap(self._file, SIZE)
        except BaseException:
            os.close(self._file)
            raise
        self._words = memoryview(self._map).cast("Q")
        self._doubles = memoryview(self._map).cast("d")


def _make(path: Path, data: bytes, timestamp: float) -> None:
    """Create the file atomically; an existing one stays."""
    if path.exists():
        return
    file, name = tempfile.mkstemp(dir=path.parent)
    try:
        words = memoryview(bytearray(HEADER + SLOT))
        words.cast("d")[HEADER >> 3] = timestamp
        words.cast("Q")[(HEADER >> 3) + 1] = len(data)
        words[HEADER + 16 : HEADER + 16 + len(data)] = data
        os.write(file, bytes(words) + bytes(SLOT))  # at full size, so that a full disk fails here
        os.link(name, path)
    except FileExistsError:
        pass
    finally:
        os.close(file)
        Path(name).unlink()


def boot_id() -> str:
    """Return a value that changes with each boot, as the origin of the monotonic clock does."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text()[:8]
    except OSError:
        return "0"
