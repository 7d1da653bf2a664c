"""Whether real figures match the simulation: scenarios over real sockets, against a vendor that enforces its limit.

The vendor's clock and the client's run twenty times as fast as real time, so that hours take minutes. Delay is measured by
the vendor's own clock, and compared with the simulation of the same jobs.
"""

from __future__ import annotations

import asyncio
import math
import statistics
from dataclasses import replace

from bench.service.table import Line
from bide.client.account import Account
from bide.client.apis import load
from bide.client.http.transport import Transport
from bide.client.job_state import JobState
from bide.client.options import ClientOptions
from bide.client.timing import Timing
from bide.lab.scenario import Scenario, read_scenario
from bide.lab.simulated_api import SimulatedApi
from bide.lab.simulation import simulate
from bide.lab.vendor import Vendor

SPEED = 20.0
LONGEST = 180.0  # seconds of real time
SEED = 1
THROWS = 20  # of the simulation's dice, on the very same jobs
# Name, and the number of jobs that fit into the time.
SCENARIOS = {
    "lipsync-burst": 100,
    "fixed-window": 200,
    "concurrency": 100,
    "hidden-limit": 120,
    "two-modes": 45,
}
WITHIN = 0.15


class Waiter:
    """Submits each job at its time, and counts those that ended."""

    wants_changes = False

    def __init__(self, account: Account, timing: Timing, vendor: Vendor) -> None:
        self._account = account
        self._timing = timing
        self._vendor = vendor
        self._left = len(vendor.world.tasks)
        self._done = asyncio.Event()

    async def run(self) -> None:
        await self._account.open()
        for i, task in enumerate(self._vendor.world.tasks):
            wait = task.born - self._vendor.now()
            if wait > 0:
                await self._timing.sleep(wait)
            job = self._account.job(f"job-{i}", task.kind)
            job.submitted_at = self._timing.wall()
            self._account.watch([job], self)
        await self._done.wait()

    def changed(self, job: JobState) -> None:
        pass

    def ended(self, job: JobState) -> None:
        self._left -= 1
        if not self._left:
            self._done.set()


async def live(scenario: Scenario, seed: int) -> tuple[float, float, int]:
    """Mean delay, requests per job and refusals, as the vendor counts them."""
    with Vendor(world=SimulatedApi(scenario, seed), speed=SPEED) as vendor:
        api = load("sync.so", vendor.url)
        transport, timing = Transport(), Timing(SPEED)
        account = Account(api, transport, api.credential("k"), ClientOptions(), timing=timing)
        account.limit = None  # the limit of this vendor, not that of the description
        try:
            async with asyncio.timeout(LONGEST):
                await Waiter(account, timing, vendor).run()
        finally:
            await account.close()
            await transport.close()
        return statistics.fmean(vendor.delays()), vendor.requests / len(vendor.jobs), vendor.refused


def measure() -> list[Line]:
    return [line(name, jobs) for name, jobs in SCENARIOS.items()]


def line(name: str, jobs: int) -> Line:
    scenario = _cut(read_scenario(name), jobs)
    runs = [simulate(scenario, "adaptive", SEED, dice=throw) for throw in range(THROWS)]
    expected = statistics.fmean(run.mean for run in runs)
    found, asked, refused = asyncio.run(live(scenario, SEED))
    detail = (
        f"{found:.3g} : {expected:.3g} s; requests per job {asked:.3g} : "
        f"{statistics.fmean(run.per_job for run in runs):.3g}; refused {refused}"
    )
    off = abs(found / expected - 1.0)
    return Line(f"{name}: delay over sockets : simulated, off by", off, "≤", WITHIN, "", detail)


def _cut(scenario: Scenario, jobs: int) -> Scenario:
    share = jobs / sum(group.count for group in scenario.groups)
    groups = tuple(
        replace(group, count=max(1, math.floor(group.count * share + 0.5))) for group in scenario.groups
    )
    return replace(scenario, groups=groups)
