"""The processes that a process has started, and signals to all of them."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable
from pathlib import Path


def descendants(pid: int) -> set[int]:
    found: set[int] = set()
    waiting = [pid]
    while waiting:
        parent = waiting.pop()
        with contextlib.suppress(OSError):  # it has ended meanwhile
            for thread in Path(f"/proc/{parent}/task").iterdir():
                children = {int(child) for child in (thread / "children").read_text().split()}
                waiting += children - found
                found |= children
    return found


def send(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def kill(pids: Iterable[int]) -> None:
    send(pids, signal.SIGKILL)
