"""Whose children are whose, and the end of a whole family at once, as a container or systemd would end it."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path


def descendants(pid: int) -> set[int]:
    found: set[int] = set()
    waiting = [pid]
    while waiting:
        parent = waiting.pop()
        with contextlib.suppress(OSError):  # gone meanwhile
            for thread in Path(f"/proc/{parent}/task").iterdir():
                children = {int(child) for child in (thread / "children").read_text().split()}
                waiting += children - found
                found |= children
    return found


def kill(pids: set[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
