"""`python -m bench.before --base REV`: compares the CPU time per operation and the latency of one job with REV. The exit
code is 0 only if every figure is within its limit.

A round starts one process for each tree and alternates between them in short slices, so that both see the same machine. A
figure is the median of the rounds' ratios.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections import Counter, defaultdict
from functools import cache, partial
from pathlib import Path
from statistics import median

from bench.before.trees import Tree, trees
from bench.before.workloads import LATENCY, PARTS
from bench.runner import Benchmark
from bench.service.table import Line

BAR = 1.05
Found = dict[str, list[tuple[float, float]]]  # by operation: of base and new, one pair per round


def main() -> int:
    benchmark = Benchmark("bench.before", __doc__, rounds=9)
    benchmark.parser.add_argument(
        "--base", required=True, metavar="REV", help="the revision to compare with"
    )
    return benchmark.run({name: partial(_part, name) for name in PARTS})


def _part(name: str, base: str, folder: Path, rounds: int) -> list[Line]:
    found = _measure(name, *_trees(base, folder.parent / "trees"), folder, rounds)
    return [_line(what, pairs) for what, pairs in found.items()]


@cache
def _trees(base: str, folder: Path) -> tuple[Tree, Tree]:
    before, new = trees(base, folder)
    print(f"{new.name} : {before.name}; load {os.getloadavg()[0]:.1f}", flush=True)
    return before, new


def _measure(name: str, base: Tree, new: Tree, folder: Path, rounds: int) -> Found:
    workload, slices = PARTS[name]
    found: Found = {}
    for number in range(rounds):
        here = folder / f"{name}-{number}"
        seconds: tuple[defaultdict[str, float], ...] = (defaultdict(float), defaultdict(float))
        operations: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
        with workload(base, here / "base") as of_base, workload(new, here / "new") as of_new:
            for part in range(slices):
                for which in (0, 1) if (number + part) % 2 == 0 else (1, 0):
                    for what, (used, done) in (of_base, of_new)[which]().items():
                        seconds[which][what] += used
                        operations[which][what] += done
        shutil.rmtree(here)
        for what in seconds[0]:
            before, now = (seconds[which][what] / operations[which][what] for which in (0, 1))
            found.setdefault(what, []).append((before, now))
    return found


def _line(what: str, pairs: list[tuple[float, float]]) -> Line:
    ratios = sorted(new / base for base, new in pairs)
    before, now = (1e6 * median(values) for values in zip(*pairs, strict=True))
    spread = f"rounds {ratios[0]:.3f} to {ratios[-1]:.3f}"
    detail = f"{now:.1f} : {before:.1f} µs; {spread}"
    unit = "time" if what == LATENCY else "CPU time"
    return Line(f"{unit} of {what}, beside before", median(ratios), "≤", BAR, detail=detail)


sys.exit(main())
