"""Measures what each part of the duration model (`bide.core.pacing.fit`) is worth, on the shipped scenarios.

    python -m bench.ablation --seeds 12

The cost of a run is mean delay + price × requests per job. Each figure is the cost without one part, summed over all
seeds and divided by the same sum of the full model, ± half the 95 % interval over the seeds. Above 1 the part lowers the
cost. CPU is the ratio of the CPU times. stderr gets every figure, stdout a table in Markdown.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import Any, NamedTuple
from unittest import mock

from bide.core.pacing import fit, hazard
from bide.core.pacing.intervals import PRICE
from bide.lab.scenario import read_scenario, shipped
from bide.lab.simulation import simulate

FULL = "full model"
corrections, shapes = fit._corrections, fit.shapes


def _prior_only(ended: Any, watched: Any, intervals: Any, prior: Sequence[float], span: float) -> Any:
    return list(prior)


def _in_sample(curve: Any, seen: Any, ended: Any, watched: Any) -> Any:
    found = corrections(curve, seen, ended, watched)
    return [(fit._likelihood(seen, [c[i] for i, _ in seen], watched, c), c) for _, c in found]


def _without_previous(ended: Any, watched: Any, intervals: Any, prior: Any, span: float, _: Any) -> Any:
    return shapes(ended, watched, intervals, prior, span)


# What to replace in which module to switch a part off.
PARTS: dict[str, tuple[ModuleType, dict[str, Any]]] = {
    FULL: (fit, {}),
    "both families": (fit, {"_average": _prior_only}),
    "log-normal curves": (fit, {"LOGNORMAL": ()}),
    "Weibull curves": (fit, {"WEIBULL": ()}),
    "two modes": (fit, {"_gap": lambda *_: None}),
    "correction by what was observed": (fit, {"_corrections": lambda *a: corrections(*a)[:1]}),
    "choice of the neighbourhood": (fit, {"_corrections": lambda *a: corrections(*a)[-1:]}),
    "ends left out for that choice": (fit, {"_corrections": _in_sample}),
    "intervals kept as such": (hazard, {"NARROW": hazard.BINS + 1}),
    "intervals distributed by the previous curve": (hazard, {"shapes": _without_previous}),
    "second pass over the intervals": (fit, {"PASSES": 1}),
    "jobs that differ from all seen": (fit, {"PRIOR_ENDS": 1e-9}),
}


class Cost(NamedTuple):
    part: str
    scenario: str
    costs: list[float]  # by seed
    cpu: float


@contextmanager
def _switched_off(part: str) -> Iterator[None]:
    module, replacements = PARTS[part]
    fit._families.cache_clear()
    with ExitStack() as stack:
        stack.callback(fit._families.cache_clear)
        for name, value in replacements.items():
            stack.enter_context(mock.patch.object(module, name, value))
        yield


def measure(part: str, name: str, seeds: Sequence[int]) -> Cost:
    scenario = read_scenario(name)
    with _switched_off(part):
        began = time.process_time()
        runs = [simulate(scenario, "adaptive", seed, PRICE) for seed in seeds]
        cpu = time.process_time() - began
    return Cost(part, name, [run.mean + PRICE * run.per_job for run in runs], cpu)


def ratio(costs: Sequence[float], full: Sequence[float]) -> tuple[float, float]:
    """Return the ratio of the sums, and half its 95 % interval."""
    n, mean = len(full), math.fsum(full) / len(full)
    found = math.fsum(costs) / math.fsum(full)
    rest = math.fsum((a - found * b) ** 2 for a, b in zip(costs, full, strict=True))
    return found, 1.96 * math.sqrt(rest / max(1, n - 1) / n) / mean


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.ablation", description=__doc__)
    parser.add_argument("--only", default=shipped(), type=lambda text: text.split(","))
    parser.add_argument("--seeds", default=12, type=int, help="runs per scenario and part")
    parser.add_argument("--first", default=300, type=int, help="the first seed")
    parser.add_argument("--processes", default=2, type=int)
    arguments = parser.parse_args()
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    tasks = [(part, name, seeds) for part in PARTS for name in arguments.only]
    with multiprocessing.get_context("spawn").Pool(arguments.processes) as pool:
        found = pool.starmap(measure, tasks, chunksize=1)
    full = {cost.scenario: cost.costs for cost in found if cost.part == FULL}
    cpu = {part: sum(cost.cpu for cost in found if cost.part == part) for part in PARTS}
    print("| without | mean | highest | lowest | CPU |\n| --- | --- | --- | --- | --- |")
    for part in list(PARTS)[1:]:
        ratios = {c.scenario: ratio(c.costs, full[c.scenario]) for c in found if c.part == part}
        for name, (value, half) in ratios.items():
            print(f"{part}: {name} {value:.3f} ± {half:.3f}", file=sys.stderr)
        ends = (max(ratios.items(), key=_value), min(ratios.items(), key=_value))
        shown = " | ".join(f"{value:.2f} ± {half:.2f} `{name}`" for name, (value, half) in ends)
        mean = sum(value for value, _ in ratios.values()) / len(ratios)
        print(f"| {part} | {mean:.3f} | {shown} | {cpu[part] / cpu[FULL]:.2f} |", flush=True)
    return 0


def _value(item: tuple[str, tuple[float, float]]) -> float:
    return item[1][0]


if __name__ == "__main__":
    sys.exit(main())
