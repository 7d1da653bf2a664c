"""Durable submit and drain with rollups and search indexes, beside a copy of this tree without them: the ratio of the CPU
time.
"""

from __future__ import annotations

import re
import shutil
from collections import Counter, defaultdict
from pathlib import Path
from statistics import median

from bench.before.trees import Tree, trees
from bench.before.workloads import PARTS
from bench.service.table import Line

BAR = 0.9
BEFORE = "84cd73c^"  # the last revision without search
SLICES = 4
# What the copy leaves out: the counts of jobs, and the indexes of lists. It keeps the indexes that these have replaced.
COUNTS = ("submitted", "started", "ended", "step_ended")
INDEXES = ("CREATE INDEX jobs_", "DROP INDEX jobs_")


def measure(folder: Path, rounds: int, base: str | None = None) -> list[Line]:
    before, new = trees(base or "HEAD", folder / "trees")
    if base is None:
        before = _without(new, folder / "trees" / "without")
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
        detail = f"rounds {min(ratios):.3f} to {max(ratios):.3f}; CPU time of {before.name} : with"
        lines.append(
            Line(f"{name}, with rollups and search : without", median(ratios), "≥", BAR, detail=detail)
        )
    return lines


def _without(tree: Tree, folder: Path) -> Tree:
    shutil.copytree(tree.source, folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
    store = folder / "src" / "bide" / "server" / "store"
    rollups = store / "rollups.py"
    text = rollups.read_text()
    for name in COUNTS:
        text, found = re.subn(rf"(    def {name}\(self[^\n]*:\n)", r"\1        return\n", text)
        if found != 1:
            raise RuntimeError(f"{rollups} has no method {name}: correct COUNTS of this file")
    rollups.write_text(text)
    reads = store / "sqlite" / "transaction.py"  # what the service reads when it starts
    reads.write_text(reads.read_text().replace(" INDEXED BY jobs_facets", ""))
    (search,) = store.glob("migrations/sqlite/*_search.sql")
    lines = search.read_text().splitlines()
    kept = [line for line in lines if not line.startswith(INDEXES)]
    if len(lines) - len(kept) != 5:
        raise RuntimeError(f"{search} has other indexes: correct INDEXES of this file")
    search.write_text("\n".join(kept))
    without = Tree("without", folder / "src")
    without.check()
    return without
