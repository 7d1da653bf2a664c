"""A few bytes that processes of one machine share and change one at a time, in a small file that all of them map.

1. Whoever changes the bytes holds the file's lock, which the system takes from a process that dies.
2. They are written beside the ones before, and one number makes them the newest: a process that is killed or stopped in
   the middle of it leaves the ones before.
3. Nobody waits for the lock: who does not get it does something else and tries again.
4. Nobody can keep the lock: when it was held for longer than HELD, the others leave the file to whoever stands still,
   and go on with a copy. A change is true only when the file had not been left by the time that the lock was given back.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import tempfile
import time
from pathlib import Path

SLOT = 16 * 1024
NUMBER, LEFT = 0, 1  # words: of changes so far; whether the others have left
HEAD = 16
SIZE = HEAD + 2 * SLOT  # each slot: a moment, a length and the bytes
LARGEST = SLOT - 16
HELD = 0.1  # seconds; a change takes microseconds, but a busy machine may put its writer off for a while


class Board:
    """`moment` is a number that goes with the bytes and can be read in no time."""

    def __init__(self, path: Path, first: bytes, moment: float) -> None:
        self._path = path
        self._copy = 0  # of the file: how often it was left
        self._blocked: tuple[tuple[int, int], float] | None = None  # at what version, and since when
        _make(self._at(0), first, moment)
        self._open()
        while self._words[LEFT]:
            self._follow()

    @property
    def version(self) -> tuple[int, int]:
        """Another one with each change."""
        return self._copy, self._words[NUMBER]

    @property
    def moment(self) -> float:
        return self._doubles[self._slot() >> 3]

    def read(self) -> bytes:
        """The newest; without the lock, it may be the ones before by now."""
        while True:
            number, start = self._words[NUMBER], self._slot()
            length = min(self._words[(start >> 3) + 1], LARGEST)
            found = self._map[start + 16 : start + 16 + length]
            if self._words[NUMBER] - number < 2:  # so nobody has begun to write there
                return found

    def lock(self) -> bool:
        """Whether it was free. `unlock` must follow."""
        for _ in range(3):
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if self._stuck():
                    self._words[LEFT] = 1
                    self._follow()
                continue
            if not self._words[LEFT]:
                self._blocked = None
                return True
            fcntl.flock(self._file, fcntl.LOCK_UN)
            self._follow()
        return False

    def write(self, data: bytes, moment: float) -> None:
        """With the lock."""
        number = self._words[NUMBER] + 1
        start = HEAD + (number & 1) * SLOT
        self._map[start + 16 : start + 16 + len(data)] = data
        self._words[(start >> 3) + 1] = len(data)
        self._doubles[start >> 3] = moment
        self._words[NUMBER] = number

    def unlock(self) -> bool:
        """Whether what was written is true: False when the others have gone on without it."""
        fcntl.flock(self._file, fcntl.LOCK_UN)
        return not self._words[LEFT]

    def close(self) -> None:
        self._words.release()
        self._doubles.release()
        self._map.close()
        os.close(self._file)

    def _slot(self) -> int:
        return HEAD + (self._words[NUMBER] & 1) * SLOT

    def _stuck(self) -> bool:
        version, now = self.version, time.monotonic()
        if self._blocked is None or self._blocked[0] != version:
            self._blocked = (version, now)
        return now - self._blocked[1] > HELD

    def _follow(self) -> None:
        """Goes on with the next copy, which the first who wants it makes. Nothing that is read here changes any more
        but by the one who stood still, and that is not true."""
        _make(self._at(self._copy + 1), self.read(), self.moment)
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


def _make(path: Path, data: bytes, moment: float) -> None:
    """Whole, or not at all; the one that is there already stays."""
    if path.exists():
        return
    file, name = tempfile.mkstemp(dir=path.parent)
    try:
        words = memoryview(bytearray(HEAD + SLOT))
        words.cast("d")[HEAD >> 3] = moment
        words.cast("Q")[(HEAD >> 3) + 1] = len(data)
        words[HEAD + 16 : HEAD + 16 + len(data)] = data
        os.write(file, bytes(words) + bytes(SLOT))  # all of it, so that a full disk is found out now
        os.link(name, path)
    except FileExistsError:
        pass
    finally:
        os.close(file)
        Path(name).unlink()


def this_boot() -> str:
    """Another one with each start of the machine, as its monotonic clock is."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text()[:8]
    except OSError:
        return "0"
