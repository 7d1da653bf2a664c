"""`python -m bench.pacing.learning`: how much the client loses against the oracle, and with which jobs.

The delay of a job is its expectation, given the polls before and after its end and the true distribution, not what it
happened to be. So chance decides less than in `bench.pacing`: 24 runs show differences of 1 %.
"""

from __future__ import annotations

import argparse
import math
import random
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate

from bench.pacing.judge import Mean
from bench.pacing.trial import DEFAULT_PRICE, ORACLE, Point, at_equal
from bide.lab.scenario import Scenario, read_scenario
from bide.lab.simulated_api import SimulatedApi, SimulatedJob, SimulatedResponse
from bide.lab.simulation import poll_as_client

DRAWS = 100_000  # of the true distribution
FEWEST = 20  # draws between two polls, for an expectation
GROUPS = {3: "jobs 1 to 3", 25: "jobs 4 to 25", math.inf: "later jobs"}  # of a kind


class RecordingApi(SimulatedApi):
    """Counts the requests for each job, and keeps its age at the last two polls."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        super().__init__(scenario, seed)
        self.requests_for: dict[int, float] = defaultdict(float)
        self.polled: dict[int, tuple[float, float]] = defaultdict(lambda: (0.0, 0.0))

    def poll(self, now: float, tasks: Sequence[SimulatedJob]) -> SimulatedResponse:
        response = super().poll(now, tasks)
        for task in tasks:
            self.requests_for[id(task)] += 1.0 / len(tasks)
            if response.status == 200:
                self.polled[id(task)] = (self.polled[id(task)][1], now - task.born)
        return response


@dataclass(frozen=True)
class Run:
    """Requests and expected delay of each job, by its number in its kind."""

    jobs: list[tuple[int, float, float]]

    @property
    def point(self) -> Point:
        requests, delay = (math.fsum(job[i] for job in self.jobs) / len(self.jobs) for i in (1, 2))
        return Point(requests, delay, 0.0, 0, 0.0, 0.0)


def run(name: str, policy: str, seed: int, price: float = DEFAULT_PRICE) -> Run:
    scenario = read_scenario(name)
    api = RecordingApi(scenario, seed)
    poll_as_client(api, scenario, policy, seed, price)
    numbers: dict[str, int] = defaultdict(int)
    jobs = []
    for task in api.tasks:
        low, high = api.polled[id(task)]
        delay = _expected(name, task.kind, low, high)
        jobs.append((numbers[task.kind], api.requests_for[id(task)], delay or high - task.duration))
        numbers[task.kind] += 1
    return Run(jobs)


def _expected(name: str, kind: str, low: float, high: float) -> float | None:
    """The expected delay at a poll at age `high` that finds a job ended which was live at age `low`."""
    durations, sums = _truth(name, kind)
    a, b = bisect_right(durations, low), bisect_right(durations, high)
    return high - (sums[b] - sums[a]) / (b - a) if b - a >= FEWEST else None


@cache
def _truth(name: str, kind: str) -> tuple[list[float], list[float]]:
    groups = [group for group in read_scenario(name).groups if group.kind == kind]
    if len(groups) != 1 or groups[0].drift != 1.0 or groups[0].progress != "none":
        raise SystemExit(
            f"{name}: durations must have one fixed distribution per kind, without progress"
        )
    rng = random.Random("truth")
    durations = sorted(groups[0].draw(rng) for _ in range(DRAWS))
    return durations, [0.0, *accumulate(durations)]


def show(name: str, seeds: Sequence[int]) -> None:
    ratios: dict[str, list[float]] = defaultdict(list)
    lost = {group: [0.0, 0.0] for group in GROUPS}
    cost = 0.0
    for seed in seeds:
        oracles = {price: run(name, "oracle", seed, price) for price in ORACLE}
        points = {price: oracle.point for price, oracle in oracles.items()}
        oracle = oracles[DEFAULT_PRICE]
        cost += math.fsum(requests + delay for _, requests, delay in oracle.jobs)
        for policy in ("adaptive", "oracle-first"):
            found = run(name, policy, seed)
            ratios[policy].append(found.point.mean / at_equal(points, found.point.requests).mean)
            if policy == "adaptive":
                for ours, theirs in zip(found.jobs, oracle.jobs, strict=True):
                    row = lost[next(group for group in GROUPS if ours[0] < group)]
                    row[0] += ours[1] - theirs[1]
                    row[1] += ours[2] - theirs[2]
    print(f"{name}: delay beside the oracle's at equal requests: {Mean.of(ratios['adaptive'])}")
    print(f"  an oracle that polls first jobs as often: {Mean.of(ratios['oracle-first'])}")
    for group, losses in lost.items():
        requests, delay = (100.0 * loss / cost for loss in losses)
        print(
            f"  {GROUPS[group]} of a kind: {requests:+.1f} % of its cost in requests, {delay:+.1f} % in delay"
        )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.pacing.learning", description=__doc__)
    parser.add_argument("--only", default="documents,internal-tool", help="scenarios")
    parser.add_argument("--seeds", type=int, default=24)
    parser.add_argument("--first", type=int, default=5000, help="the first seed")
    arguments = parser.parse_args()
    for name in arguments.only.split(","):
        show(name, range(arguments.first, arguments.first + arguments.seeds))


if __name__ == "__main__":
    main()
