"""Random histories in virtual time, on both stores, from new seeds each time. The seed of a failure is printed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from bench.service.servers import ROOT
from bench.service.table import Line

SECONDS = 90


def measure(folder: Path) -> list[Line]:
    lines = []
    for store in ("sqlite", "postgres"):
        command = [sys.executable, "-m", "tests.simulation", "--seconds", str(SECONDS), "--store", store]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        found = re.search(r"(\d+) histories, (\d+) failed", done.stdout)
        if found is None:
            raise RuntimeError(f"the simulation ended with {done.returncode}: {done.stderr[-2000:]}")
        for line in done.stdout.splitlines()[:20]:
            print(f"  {line}")
        lines.append(Line(f"histories on {store}", int(found[1]), "≥", 10, ""))
        lines.append(Line(f"histories on {store} that went wrong", int(found[2]), "≤", 0, ""))
    return lines
