"""Marks that jobs write to a file, so that repetitions, losses and recoveries can be observed from outside.

1. A mark is one line, written with one call: complete or absent, whatever is killed.
2. Its time is CLOCK_MONOTONIC, which all processes of the machine share.
3. An attempt starts with BEGIN; one that was not killed ends with END, or with UNWOUND after an exception.

Peers import this module too: it needs nothing but the standard library.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

BEGIN, END, UNWOUND = "begin", "end", "unwound"
STEPS = ("first", "second", "third")
PLACE = "BIDE_CHAOS_MARKS"  # the environment variable that names the file


class Mark(NamedTuple):
    job: str
    step: str
    fence: int
    pid: int
    at: float

    @classmethod
    def read(cls, line: str) -> Mark:
        job, step, fence, pid, at = line.split()
        return cls(job, step, int(fence), int(pid), float(at))


def leave(job: str, step: str, fence: int = 0) -> None:
    line = f"{job} {step} {fence} {os.getpid()} {time.monotonic():.6f}\n"
    fd = os.open(os.environ[PLACE], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(fd, line.encode())
    finally:
        os.close(fd)


@contextmanager
def attempt(job: str, fence: int = 0) -> Iterator[None]:
    leave(job, BEGIN, fence)
    try:
        yield
    except BaseException:
        leave(job, UNWOUND, fence)
        raise
    leave(job, END, fence)


def pause() -> None:
    """The work of a step."""
    time.sleep(random.uniform(0.001, 0.02))


def work(number: int) -> int:
    """The job of every contender that has no steps."""
    with attempt(str(number)):
        for step in STEPS:
            leave(str(number), step)
            pause()
    return number


def read(path: Path) -> list[Mark]:
    """The complete marks; a running handler may be writing another."""
    return [Mark.read(line) for line in _complete(path.read_text())] if path.exists() else []


def _complete(text: str) -> list[str]:
    """Its lines. Each is written with one call, but a line across the end of a page may be visible only in part."""
    return text[: text.rfind("\n") + 1].splitlines()


class Tail:
    """Follows the marks while they are written; thread-safe."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._offset = 0
        self.open: dict[int, str] = {}  # pid → the job that it has started and not ended
        self.last: Mark | None = None
        self.finished: set[str] = set()

    def grow(self) -> list[Mark]:
        """Read the new marks."""
        with self._lock:
            return self._grow()

    def _grow(self) -> list[Mark]:
        try:
            if self._path.stat().st_size == self._offset:
                return []
        except FileNotFoundError:
            return []
        with self._path.open() as file:
            file.seek(self._offset)
            text = file.read()
        lines = _complete(text)
        self._offset += sum(len(line) + 1 for line in lines)  # ASCII
        found = [Mark.read(line) for line in lines]
        for mark in found:
            if mark.step in (END, UNWOUND):
                self.open.pop(mark.pid, None)
            else:
                self.open[mark.pid] = mark.job
            if mark.step == END:
                self.finished.add(mark.job)
            self.last = mark
        return found
