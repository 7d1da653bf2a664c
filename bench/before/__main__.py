"""`python -m bench.before --base REV`: compares the CPU time per operation with REV; exits with 0 only if every
figure is within its limit.

A round starts one process for each tree and alternates between them in short slices, so that both see the same machine. A
figure is the median of the rounds' ratios.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path
from statistics import median

from bench.before.trees import Tree, trees
from bench.before.workloads import PARTS
from bench.service import servers
from bench.service.table import Line, report, show

BAR = 1.05
Found = dict[str, list[tuple[float, float]]]  # by operation: of base and new, one pair per round


def main() -> int:
    arguments = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that all started processes are stopped
    lines: list[Line] = []
    try:
        with tempfile.TemporaryDirectory(dir=arguments.folder, prefix="bide-before-") as folder:
            base, new = trees(arguments.base, Path(folder) / "trees")
            print(f"{new.name} : {base.name}; {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
            for name in arguments.only:
                begin = time.monotonic()
                found = _measure(name, base, new, Path(folder), arguments.rounds)
                part = [_line(what, pairs) for what, pairs in found.items()]
                print(f"{name} took {time.monotonic() - begin:.0f} s\n{show(part)}", flush=True)
                lines += part
    except servers.Unready as unready:
        print(f"bench: {unready}", file=sys.stderr)
        return 2
    return report(lines)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.before", description=__doc__)
    parser.add_argument("--base", required=True, metavar="REV", help="the revision to compare with")
    parser.add_argument("--only", default=list(PARTS), type=_parts, help=",".join(PARTS))
    parser.add_argument("--rounds", default=9, type=_rounds, help="rounds; each figure is their median")
    # Not /tmp, which may be in memory: there a commit would cost nothing.
    parser.add_argument("--folder", default="/var/tmp", type=Path, help="the folder for data; on a disk")
    return parser.parse_args()


def _parts(text: str) -> list[str]:
    names = text.split(",")
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        raise argparse.ArgumentTypeError(f"no such part: {', '.join(unknown)}")
    return names


def _rounds(text: str) -> int:
    rounds = int(text)
    if rounds < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return rounds


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
    return Line(f"CPU time of {what}, beside before", median(ratios), "≤", BAR, detail=detail)


sys.exit(main())
