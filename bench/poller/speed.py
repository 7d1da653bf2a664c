"""Polls per second of the poller, with 1,000 and with 100,000 waiting jobs, compared with a bare aiohttp loop.

Both have the same number of connections, the same event loop and the same server. The price is so low that every job is
always due: only the machine limits either of them. Each ended job is replaced.
"""

from __future__ import annotations

import asyncio
import gc
import math
import statistics
import time
import tracemalloc

import aiohttp

from bench.service.table import Line
from bide.client.account import Account
from bide.client.apis import load
from bide.client.http.transport import Transport
from bide.client.job_state import JobState
from bide.client.options import ClientOptions
from bide.client.polling.poller import CONNECTIONS
from bide.core.pacing.budget import Limit

SECONDS = 3.0
WARM_UP = 5.0
ROUNDS = 5
MANY = 100_000
CHEAP = 1e-7


class Crowd:
    """A constant number of jobs: each ended job is replaced."""

    wants_changes = False

    def __init__(self, account: Account, jobs: int) -> None:
        self._account = account
        self._number = 0
        for _ in range(jobs):
            self._add()

    def _add(self) -> None:
        job = self._account.job(f"job-{self._number}")
        job.submitted_at = time.time()
        self._number += 1
        self._account.watch([job], self)

    def changed(self, job: JobState) -> None:
        pass

    def ended(self, job: JobState) -> None:
        self._add()


async def bare(url: str, jobs: int) -> tuple[float, float]:
    """Polls per second, and CPU microseconds per poll."""
    urls = [f"{url}/v2/generate/job-{i}" for i in range(jobs)]
    polls = 0
    end = time.perf_counter() + SECONDS

    async def work(first: int) -> None:
        nonlocal polls
        i = first
        while time.perf_counter() < end:
            async with session.get(urls[i % jobs], headers=headers) as response:
                await response.read()
            polls += 1
            i += CONNECTIONS

    headers = {"Accept": "application/json", "x-api-key": "k"}
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:
        began, cpu = time.perf_counter(), time.process_time()
        await asyncio.gather(*(work(i) for i in range(CONNECTIONS)))
        return _figures(polls, time.perf_counter() - began, time.process_time() - cpu)


async def ours(url: str, jobs: int) -> tuple[float, float]:
    account, transport = await _filled(url, jobs)
    while transport.requests < jobs:  # until every job was polled once
        await asyncio.sleep(0.5)
    await asyncio.sleep(WARM_UP)  # until the learned durations are stable
    began, cpu, polls = time.perf_counter(), time.process_time(), transport.requests
    await asyncio.sleep(SECONDS)
    figures = _figures(
        transport.requests - polls, time.perf_counter() - began, time.process_time() - cpu
    )
    await account.close()
    await transport.close()
    gc.unfreeze()
    return figures


async def _filled(url: str, jobs: int) -> tuple[Account, Transport]:
    api = load("sync.so", url)
    transport = Transport()
    terms = ClientOptions(limit=Limit(math.inf), price=CHEAP)
    account = Account(api, transport, api.credential("k"), terms)
    await account.open()
    Crowd(account, jobs)
    gc.freeze()  # as `bide wait` does
    return account, transport


def _figures(polls: int, seconds: float, cpu: float) -> tuple[float, float]:
    return polls / seconds, 1e6 * cpu / max(1, polls)


async def measure(url: str) -> list[Line]:
    rounds: dict[str, list[tuple[float, float]]] = {"bare": [], "few": [], "many": []}
    for _ in range(ROUNDS):
        for name, run, jobs in (("bare", bare, 1000), ("few", ours, 1000), ("many", ours, MANY)):
            gc.collect()
            rounds[name].append(await run(url, jobs))
    speed = {name: statistics.median(s for s, _ in found) for name, found in rounds.items()}
    cpu = {name: statistics.median(c for _, c in found) for name, found in rounds.items()}
    ratios = {
        name: statistics.median(a / b for (a, _), (b, _) in zip(found, rounds["bare"], strict=True))
        for name, found in rounds.items()
    }
    told = f"{cpu['bare']:.0f} µs of CPU per bare request"
    return [
        Line(
            f"polls/s : bare aiohttp, {jobs} waiting",
            ratios[name],
            "≥",
            bar,
            "×",
            f"{speed[name]:.0f} : {speed['bare']:.0f} per second; {cpu[name]:.0f} µs of CPU per poll, {told}",
        )
        for name, jobs, bar in (("few", "1,000", 0.8), ("many", "100,000", 0.65))
    ]


async def weight(url: str) -> Line:
    """The memory of a waiting job: its record, its entry in the schedule and its address."""
    jobs = 20_000
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    account, transport = await _filled(url, jobs)
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    await account.close()
    await transport.close()
    return Line("memory of a waiting job, client and all", grown / jobs, "≤", 1024, "bytes")
