"""CPU time and memory of processes."""

from __future__ import annotations

import contextlib
import os
import re
import time
from pathlib import Path

from tests.servers import processes

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu(pid: int) -> float:
    """Seconds, in user and system mode."""
    return time.clock_gettime(~pid << 3 | 2)  # what clock_getcpuclockid(3) returns


def cpu_of_all(pid: int) -> float:
    """Seconds of the process, its descendants, and those of them that it has waited for."""
    total = 0.0
    for one in (pid, *processes.descendants(pid)):
        with contextlib.suppress(OSError):  # it has exited meanwhile
            total += cpu(one) + _of_exited_children(one)
    return total


def _of_exited_children(pid: int) -> float:
    found = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, found[13:15])) / _TICKS


def memory(pid: int) -> int:
    """Resident bytes."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024
