"""A job that blocks its worker until all workers are released, so that a full queue is measured with warm workers."""

from __future__ import annotations

import os
import time
from pathlib import Path


def enter(folder: Path) -> None:
    (folder / f"waits-{os.getpid()}").touch()
    while not (folder / "go").exists():
        time.sleep(0.0005)


def await_all(folder: Path, workers: int, seconds: float = 60.0) -> None:
    """Wait until every worker runs such a job."""
    end = time.monotonic() + seconds
    while len(list(folder.glob("waits-*"))) < workers:
        if time.monotonic() > end:
            raise TimeoutError(f"{workers} workers did not reach the gate")
        time.sleep(0.01)


def open_all(folder: Path) -> float:
    """Release the workers. Return the time."""
    begin = time.perf_counter()
    (folder / "go").touch()
    return begin
