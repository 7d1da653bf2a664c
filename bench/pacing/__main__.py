"""`python -m bench.pacing`: prints each figure with its limit; exits with 0 only if every figure is within its limit."""

from __future__ import annotations

import argparse
import math
import multiprocessing
import sys
import time

from bench.pacing import first_look, speed
from bench.pacing.judge import lines
from bench.pacing.trial import Trial, trial
from bench.service.table import Line, show
from bide.lab.scenario import read_scenario, shipped

OTHERS = {"first-look": first_look.measure, "speed": speed.measure}
CONSTANT = {"constant": 60.0}
FEWEST_SEEDS, FEWEST_JOBS = 20, 6000  # with fewer jobs in all, chance decides close lines


def main() -> int:
    arguments = _arguments()
    found: list[Line] = []
    with multiprocessing.get_context("spawn").Pool(arguments.processes) as pool:
        for name in arguments.only:
            if name in OTHERS:
                continue
            began = time.monotonic()
            jobs = sum(group.count for group in read_scenario(name).groups)
            count = arguments.seeds or max(FEWEST_SEEDS, math.ceil(FEWEST_JOBS / jobs))
            seeds = range(arguments.first, arguments.first + count)
            trials: list[Trial] = pool.starmap(trial, [(name, seed) for seed in seeds], chunksize=1)
            limit = read_scenario(name).limit
            of_scenario = lines(name, trials, advertised=limit.advertised, constant=CONSTANT.get(name))
            print(f"{show(of_scenario)}\n  ({time.monotonic() - began:.0f} s)", flush=True)
            found += of_scenario
    for name, measure in OTHERS.items():
        if name in arguments.only:
            others = measure()
            print(show(others), flush=True)
            found += others
    failed = [line for line in found if not line.holds]
    if failed:
        print(f"\n{show(failed)}")
    print(f"\n{len(found) - len(failed)} of {len(found)} lines hold")
    return 1 if failed else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.pacing", description=__doc__)
    every = [*shipped(), *OTHERS]
    parser.add_argument("--only", default=every, type=lambda text: text.split(","), help=",".join(every))
    parser.add_argument(
        "--seeds", type=int, help=f"runs of each scenario; else {FEWEST_SEEDS}, more where jobs are few"
    )
    parser.add_argument(
        "--first",
        default=100,
        type=int,
        help="the first seed; none of these was looked at to choose a constant",
    )
    parser.add_argument("--processes", default=2, type=int)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
