"""`python -m bench.pipeline`: prints each figure with its limit; exits with 0 only if every figure is within its limit."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.pipeline import exports
from bench.pipeline.data import write
from bench.service.table import Line, report

MOST_MEMORY = 300.0  # MB
FLAT = 1.25  # by which memory may grow for a file of four times the size


@dataclass(frozen=True)
class Run:
    seconds: float
    cpu: float
    rows: int
    memory: float


PARTS = {
    "csv": ("bare-csv", "normalized", "deduplicated", "deduplicated-by-text", "hashed"),
    "json": ("bare-ijson", "bare-own", "normalized", "deduplicated"),
}
EXPORTS = "exports"


def main() -> int:
    arguments = _arguments()
    lines: list[Line] = []
    with tempfile.TemporaryDirectory(dir=arguments.folder, prefix="bide-bench-") as name:
        folder = Path(name)
        for part in arguments.only:
            if part == EXPORTS:
                lines += exports.measure()
            else:
                lines += _measured(part, folder, arguments.mb, arguments.rounds)
    return report(lines)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.pipeline", description=__doc__)
    parser.add_argument(
        "--only",
        default=[*PARTS, EXPORTS],
        type=lambda text: text.split(","),
        help=",".join([*PARTS, EXPORTS]),
    )
    parser.add_argument("--mb", default=1000, type=int, help="the size of a file")
    parser.add_argument("--rounds", default=3, type=int, help="rounds; each figure is their median")
    # Not /tmp, which may be in memory.
    parser.add_argument("--folder", default="/var/tmp", type=Path, help="the folder for data; on a disk")
    return parser.parse_args()


def _measured(part: str, folder: Path, mb: int, rounds: int) -> list[Line]:
    large, small = folder / f"large.{part}", folder / f"small.{part}"
    write(large, part, mb * 1_000_000)
    write(small, part, mb * 250_000)
    ways = PARTS[part]
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
