"""A job that holds its worker until all may start: so a full queue can be timed with workers that are warm."""

from __future__ import annotations

import os
import time
from pathlib import Path


def enter(folder: Path) -> None:
    (folder / f"waits-{os.getpid()}").touch()
    while not (folder / "go").exists():
        time.sleep(0.0005)


def await_all(folder: Path, workers: int, seconds: float = 60.0) -> None:
    """Until each of the workers stands at its gate."""
    end = time.monotonic() + seconds
    while len(list(folder.glob("waits-*"))) < workers:
        if time.monotonic() > end:
            raise TimeoutError(f"{workers} workers were to be at their gates")
        time.sleep(0.01)


def open_all(folder: Path) -> float:
    """Lets them go; when that was."""
    begin = time.perf_counter()
    (folder / "go").touch()
    return begin
