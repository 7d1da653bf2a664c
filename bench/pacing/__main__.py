"""`python -m bench.pacing`: prints each figure with its limit; exits with 0 only if every figure is within its limit."""

from __future__ import annotations

import math
import multiprocessing
import sys
from functools import partial

from bench.pacing import first_look, speed
from bench.pacing.judge import lines
from bench.pacing.trial import trial
from bench.runner import Benchmark
from bench.service.table import Line
from bide.lab.scenario import read_scenario, shipped

CONSTANT = {"constant": 60.0}
FEWEST_SEEDS, FEWEST_JOBS = 20, 6000  # with fewer jobs in all, chance decides close lines


def scenario(name: str, seeds: int | None, first: int, processes: int) -> list[Line]:
    read = read_scenario(name)
    jobs = sum(group.count for group in read.groups)
    count = seeds or max(FEWEST_SEEDS, math.ceil(FEWEST_JOBS / jobs))
    runs = [(name, seed) for seed in range(first, first + count)]
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        trials = pool.starmap(trial, runs, chunksize=1)
    return lines(name, trials, advertised=read.limit.advertised, constant=CONSTANT.get(name))


def main() -> int:
    benchmark = Benchmark("bench.pacing", __doc__)
    benchmark.parser.add_argument(
        "--seeds", type=int, help=f"runs of each scenario; else {FEWEST_SEEDS}, more where jobs are few"
    )
    benchmark.parser.add_argument(
        "--first",
        default=100,
        type=int,
        help="the first seed; none of these was looked at to choose a constant",
    )
    benchmark.parser.add_argument("--processes", default=2, type=int)
    scenarios = {name: partial(scenario, name) for name in shipped()}
    return benchmark.run({**scenarios, "first-look": first_look.measure, "speed": speed.measure})


if __name__ == "__main__":
    sys.exit(main())
