"""Durable submit and drain with rollups and search indexes, beside a revision without them: the ratio of the CPU time."""

from __future__ import annotations

import shutil
from collections import Counter, defaultdict
from pathlib import Path
from statistics import median

from bench.before.trees import trees
from bench.before.workloads import PARTS
from bench.service.table import Line

BAR = 0.9
BEFORE = "84cd73c^"  # the last revision without search
SLICES = 4


def measure(folder: Path, rounds: int, base: str | None = None) -> list[Line]:
    before, new = trees(base or BEFORE, folder / "trees")
    lines = []
    for name in ("submit", "drain"):
        workload, _ = PARTS[name]
        ratios: list[float] = []
        for number in range(rounds):
            here = folder / f"{name}-{number}"
            used: tuple[defaultdict[str, float], ...] = (defaultdict(float), defaultdict(float))
            done: tuple[Counter[str], ...] = (Counter(), Counter())
            with workload(before, here / "base") as of_base, workload(new, here / "new") as of_new:
                for part in range(SLICES):
                    for which in (0, 1) if part % 2 == 0 else (1, 0):
                        for what, (seconds, operations) in (of_base, of_new)[which]().items():
                            used[which][what] += seconds
                            done[which][what] += operations
            shutil.rmtree(here)
            (what,) = used[0]
            ratios.append((used[0][what] / done[0][what]) / (used[1][what] / done[1][what]))
        detail = f"rounds {min(ratios):.3f} to {max(ratios):.3f}; CPU time without : with"
        lines.append(
            Line(f"{name}, with rollups and search : without", median(ratios), "≥", BAR, detail=detail)
        )
    return lines
