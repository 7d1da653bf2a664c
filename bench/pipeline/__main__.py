"""`python -m bench.pipeline`: prints each figure with its limit; exits with 0 only if every figure is within its limit."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

from bench.pipeline import exports
from bench.pipeline.data import write
from bench.runner import Benchmark
from bench.service.table import Line

MOST_MEMORY = 300.0  # MB
FLAT = 1.25  # by which memory may grow for a file of four times the size


@dataclass(frozen=True)
class Run:
    seconds: float
    cpu: float
    rows: int
    memory: float


WAYS = {
    "csv": ("bare-csv", "normalized", "deduplicated", "deduplicated-by-text", "hashed"),
    "json": ("bare-ijson", "bare-own", "normalized", "deduplicated"),
}


def main() -> int:
    benchmark = Benchmark("bench.pipeline", __doc__, rounds=3)
    benchmark.parser.add_argument("--mb", default=1000, type=int, help="the size of a file")
    formats = {name: partial(_measured, name) for name in WAYS}
    return benchmark.run({**formats, "exports": exports.measure})


def _measured(part: str, folder: Path, mb: int, rounds: int) -> list[Line]:
    large, small = folder / f"large.{part}", folder / f"small.{part}"
    write(large, part, mb * 1_000_000)
    write(small, part, mb * 250_000)
    ways = WAYS[part]
    found: dict[str, list[Run]] = {way: [] for way in ways}
    for number in range(rounds):
        for way in ways:  # interleaved, so that other load affects all of them
            found[way].append(run := _run(way, large, folder))
            print(
                f"{part} {way}, round {number + 1}: {run.seconds:.1f} s ({run.cpu:.1f} of CPU), {run.memory:.0f} MB",
                flush=True,
            )
    speed = {way: mb / median(run.seconds for run in runs) for way, runs in found.items()}
    lines = _speeds(part, mb, speed)
    for way in ways:
        if way.startswith("bare"):
            continue
        most = max(run.memory for run in found[way])
        quarter = _run(way, small, folder).memory
        what = f"{part}, {way}: memory"
        lines.append(Line(what, most, "≤", MOST_MEMORY, "MB", f"of {mb} MB"))
        lines.append(
            Line(f"{what} : of a quarter of it", most / quarter, "≤", FLAT, "×", f"{quarter:.0f} MB")
        )
    for file in (large, small):
        file.unlink()
    return lines


def _speeds(part: str, mb: int, speed: dict[str, float]) -> list[Line]:
    peer = "bare-csv" if part == "csv" else "bare-ijson"
    named = "pyarrow.csv.open_csv" if part == "csv" else "ijson (yajl2_c)"

    def line(way: str, bar: float) -> Line:
        detail = f"{speed[way]:.0f} : {speed[peer]:.0f} MB/s"
        return Line(
            f"{part} to Parquet, {way} : {named}", speed[way] / speed[peer], "≥", bar, "×", detail
        )

    lines = [line("normalized", 0.5 if part == "csv" else 0.7), line("deduplicated", 0.15)]
    if part == "csv":
        return [*lines, line("deduplicated-by-text", 0.15), line("hashed", 0.15)]
    ratio = speed["normalized"] / speed["bare-own"]
    print(f"json: {ratio:.2f} × bide's own parser, bare, which decodes {speed['bare-own']:.0f} MB/s")
    return lines


def _run(way: str, file: Path, folder: Path) -> Run:
    command = [sys.executable, "-m", "bench.pipeline.one", way, str(file), str(folder)]
    return Run(**json.loads(subprocess.check_output(command)))


if __name__ == "__main__":
    sys.exit(main())
