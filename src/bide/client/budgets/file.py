"""Budgets that processes of one machine share exactly: the state in a small file that all of them map.

1. Whoever changes the state holds the file's lock, which the system takes from a process that dies.
2. The state is written beside the one before, with a checksum, and then made the newest: a process that is killed
   in the middle of it leaves the one before.
3. Nobody waits for the lock: who does not get it tries again a millisecond later, and what was heard is kept till then.
4. A caller in a hurry is granted several at once, to be sent within a moment; what is not sent by then is void. So
   the lock is not taken for each request, and the sum stays exact: the moment is shorter than the jitter that a
   documented limit is spent with anyway.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import random
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path

import msgspec

from bide.core.budget import Budget, Limit, State
from bide.core.errors import SetupError
from bide.core.limits import telling

SLOT = 16 * 1024
HEAD = struct.Struct("<QdII")  # number, ready from, length, checksum
SIZE = 2 * SLOT
MOMENT = 0.02  # within which what was granted is sent
MOST = 64  # granted at once
TRY_AGAIN = 0.001
FEW, MOST_PENDING = 16, 256  # answers kept back when there is nothing to take, and in any case
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(State).decode


class FileBudgets:
    """All in one folder, which belongs to this user alone."""

    def __init__(self, folder: Path, rng: random.Random | None = None) -> None:
        self._folder = folder
        self._rng = rng or random.Random()
        self._purses: dict[str, FilePurse] = {}
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise SetupError(
                f"the folder {folder} for shared budgets cannot be made: {error.strerror}"
            ) from error

    def open(self, name: str, limit: Limit | None = None) -> FilePurse:
        purse = self._purses.get(name)
        if purse is None:
            if not (name.isascii() and name.isalnum()):
                raise ValueError(f"{name!r} cannot name a budget: letters and digits only")
            path = self._folder / f"{name}.budget"
            purse = self._purses[name] = FilePurse(path, limit, self._rng)
        return purse

    def close(self) -> None:
        for purse in self._purses.values():
            purse.close()
        self._purses.clear()


class FilePurse:
    """This process's access to one shared budget."""

    def __init__(self, path: Path, limit: Limit | None, rng: random.Random) -> None:
        self._budget = Budget(limit, rng=rng)
        self._moment = min(MOMENT, limit.per / 100) if limit and limit.requests < 1e9 else MOMENT
        self._number = 0  # of the state that self._budget has
        self._granted = 0
        self._void_from = 0.0
        self._hurry = 1  # how many to be granted at once
        self._changed = False  # by this process, in the transaction that it is in
        self._pending: list[tuple[float, int, Mapping[str, str], float]] = []
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                self._map = self._prepare()
            except BaseException:
                os.close(self._file)
                raise
        except OSError as error:
            raise SetupError(f"the shared budget {path} cannot be used: {error.strerror}") from error

    def ready(self, now: float, cost: float = 1.0) -> float:
        if self._granted and now < self._void_from:
            return now
        newest: tuple[int, float, int, int] = max(
            HEAD.unpack_from(self._map, 0), HEAD.unpack_from(self._map, SLOT)
        )
        return newest[1]

    def take(self, now: float, cost: float = 1.0) -> float:
        if self._granted and now < self._void_from and cost == 1.0:
            self._granted -= 1
            return now
        if len(self._pending) < FEW and not self._granted and (at := self.ready(now)) > now:
            return at
        if self._granted == 0 and now < self._void_from:
            self._hurry = min(2 * self._hurry, MOST)
        else:
            self._hurry = max(1, self._hurry // 4)
        return self._draw(now, cost)

    def _draw(self, now: float, cost: float) -> float:
        if not self._lock():
            return now + TRY_AGAIN
        try:
            budget = self._load()
            self._settle()
            at = budget.take(now, cost)
            if at > now and not self._changed:
                return at
            if at <= now and cost == 1.0:
                more = min(self._hurry, self._bearable(now)) - 1
                while more > 0 and budget.take(now) <= now:
                    more -= 1
                    self._granted += 1
                self._void_from = now + self._moment
            self._store()
            return at
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def _bearable(self, now: float) -> int:
        """At most what the rate gives in that moment anyway, so that others get their share."""
        rate = self._budget.rate(now)
        return MOST if rate is None else int(rate * self._moment)

    def heard(self, now: float, status: int, headers: Mapping[str, str], wall: float) -> None:
        told = telling(headers)
        self._pending.append((now, status, told or {}, wall))
        urgent = told is not None or status in (0, 429, 503) or len(self._pending) >= MOST_PENDING
        if urgent and self._lock():
            try:
                self._load()
                self._settle()
                self._store()
            finally:
                fcntl.flock(self._file, fcntl.LOCK_UN)

    def rate(self, now: float) -> float | None:
        self._load()
        return self._budget.rate(now)

    def close(self) -> None:
        if self._pending or self._granted:
            for _ in range(100):
                if self._lock():
                    self._load()
                    self._settle()
                    self._store()
                    break
        self._map.close()
        os.close(self._file)

    def _settle(self) -> None:
        """Tells the budget what this process knows: what was granted and not sent, and what was heard."""
        self._changed = bool(self._granted or self._pending)
        if self._granted:
            self._budget.unspend(self._granted)
            self._granted = 0
        for heard in self._pending:
            self._budget.heard(*heard)
        self._pending.clear()

    def _lock(self) -> bool:
        for _ in range(3):
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            except BlockingIOError:
                continue
        return False

    def _load(self) -> Budget:
        """The newest whole state."""
        first, second = HEAD.unpack_from(self._map, 0), HEAD.unpack_from(self._map, SLOT)
        for number, _, length, checksum in sorted((first, second), reverse=True):
            if number == self._number:
                break
            start = (number & 1) * SLOT + HEAD.size
            body = self._map[start : start + min(length, SLOT)]
            if zlib.crc32(body) == checksum and body:
                self._budget.state = _decode(body)
                self._number = number
                break
        return self._budget

    def _store(self) -> None:
        body = _encode(self._budget.state)
        self._number += 1
        start = (self._number & 1) * SLOT
        self._map[start + HEAD.size : start + HEAD.size + len(body)] = body
        # The number comes last: until then the other slot is the newest.
        HEAD.pack_into(
            self._map, start, self._number, self._budget.state.next, len(body), zlib.crc32(body)
        )

    def _prepare(self) -> mmap.mmap:
        """Makes a state when the file is new, or from before the machine started anew, with another clock."""
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            if os.fstat(self._file).st_size < SIZE:
                os.pwrite(self._file, bytes(SIZE), 0)  # written, so that a full disk is found out now
            self._map = mmap.mmap(self._file, SIZE)
            first = boot_number()
            numbers = [HEAD.unpack_from(self._map, at)[0] for at in (0, SLOT)]
            if not any(first < number < first + (1 << 32) for number in numbers):
                self._map[:] = bytes(SIZE)
                self._number = first
                self._store()
            return self._map
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)


def boot_number() -> int:
    """Where the numbers of this start of the machine begin."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_bytes()
    except OSError:
        return 0
    return zlib.crc32(boot) << 32
