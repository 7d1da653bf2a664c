"""Polls per CPU second of two processes that share one budget, compared with one process.

1,000 jobs wait in each process, and each is always due: only the machine limits them. The CPU time is that of the
polling processes; that of the parent, which assigns jobs and receives their ends, is printed separately.

    python -m bench.poller --only spread
"""

from __future__ import annotations

import asyncio
import gc
import math
import statistics
import time
from typing import Any

from bench.poller.speed import CHEAP, Crowd
from bench.service.table import Line
from bench.usage import cpu
from bide.client.account import Account
from bide.client.apis import load
from bide.client.http.transport import Transport
from bide.client.options import ClientOptions
from bide.client.polling.processes import messages as m
from bide.client.polling.processes.poller import ProcessPoller
from bide.core.pacing.budget import Limit

JOBS = 1000  # in each process
PROCESSES = 2
SECONDS = 4.0
WARM_UP = 4.0
ROUNDS = 5


class Meter:
    """Requests and CPU time of one child, read with each of its heartbeats."""

    def __init__(self) -> None:
        self.readings: list[tuple[float, int, float]] = []
        self.requests = 0

    def read(self, pid: int) -> None:
        self.readings.append((time.perf_counter(), self.requests, cpu(pid)))

    def since(self, moment: float) -> tuple[int, float, float]:
        """Requests, CPU seconds and seconds between the first reading after a moment and the last."""
        inside = [reading for reading in self.readings if reading[0] >= moment]
        (began, requests, cpu), (ended, most, used) = inside[0], inside[-1]
        return most - requests, used - cpu, ended - began


async def one(url: str) -> float:
    """Polls per CPU second of one process."""
    account, transport = await _filled(url, 1)
    await asyncio.sleep(WARM_UP)
    polls, cpu = transport.requests, time.process_time()
    await asyncio.sleep(SECONDS)
    figure = (transport.requests - polls) / (time.process_time() - cpu)
    await account.close()
    await transport.close()
    return figure


async def several(url: str) -> tuple[float, float, float]:
    """Polls per CPU second of the children, the same with the parent's CPU time, and polls per second."""
    account, transport = await _filled(url, PROCESSES)
    spread = account._poller
    assert isinstance(spread, ProcessPoller)
    meters = _listen(spread)
    await asyncio.sleep(WARM_UP)
    began, parent = time.perf_counter(), time.process_time()
    await asyncio.sleep(SECONDS)
    parent = (time.process_time() - parent) / SECONDS
    found = [meter.since(began) for meter in meters.values()]
    await account.close()
    await transport.close()
    polls = sum(n / seconds for n, _, seconds in found)
    cpu = sum(used / seconds for _, used, seconds in found)
    return polls / cpu, polls / (cpu + parent), polls


def _listen(spread: ProcessPoller) -> dict[int, Meter]:
    meters: dict[int, Meter] = {}
    original = spread.handle

    def handle(share: Any, message: Any) -> None:
        original(share, message)
        if isinstance(message, m.JobObserved | m.PollingHeartbeat):
            meter = meters.setdefault(share.pid, Meter())
            meter.requests += message.sent
            if isinstance(message, m.PollingHeartbeat):
                meter.read(share.pid)

    spread.handle = handle  # type: ignore[assignment, method-assign]
    return meters


async def _filled(url: str, processes: int) -> tuple[Account, Transport]:
    gc.collect()
    api = load("sync.so", url)
    transport = Transport()
    terms = ClientOptions(limit=Limit(math.inf), price=CHEAP, processes=processes)
    account = Account(api, transport, api.credential("k"), terms)
    await account.open()
    Crowd(account, JOBS * processes)
    return account, transport


def measure(server_url: str) -> list[Line]:
    alone: list[float] = []
    shared: list[tuple[float, float, float]] = []
    for _ in range(ROUNDS):
        alone.append(asyncio.run(one(server_url)))
        shared.append(asyncio.run(several(server_url)))
    pairs = list(zip(shared, alone, strict=True))
    with_parent = statistics.median(b / a for (_, b, _), a in pairs)
    polls = statistics.median(polls for _, _, polls in shared)
    each = statistics.median(figure for figure, _, _ in shared)
    detail = (
        f"{each:.0f} : {statistics.median(alone):.0f} per CPU second; {polls:.0f} polls per second together; "
        f"{with_parent:.2f} with the parent's CPU time"
    )
    ratio = statistics.median(figure / a for (figure, _, _), a in pairs)
    what = f"polls per CPU second, {PROCESSES} processes : 1 process"
    return [Line(what, ratio, "≥", 0.85, "×", detail)]
