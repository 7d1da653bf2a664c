"""`GET /jobs/{id}` beside 1,000 open streams, against a service without streams."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from bench.push import listeners
from bench.push.sites import push_site, run, submit
from bench.service import servers
from bench.service.load import Samples
from bench.service.table import Line

STREAMS = 1000
REQUESTS = 2000  # per round, one after the other


def measure(folder: Path, rounds: int) -> list[Line]:
    listeners.allow_files(STREAMS + 1000)
    with push_site(folder / "streams") as site, push_site(folder / "idle") as idle:
        samples = run(_measure(site, idle, rounds))
    return [
        Line(
            f"status p99 with {STREAMS} open streams : without",
            samples.ratio("streams", "idle"),
            "≤",
            1.5,
            detail=f"{samples['streams'] * 1e6:.0f} : {samples['idle'] * 1e6:.0f} µs",
        )
    ]


async def _measure(site: servers.Site, idle: servers.Site, rounds: int) -> Samples:
    samples = Samples()
    jobs = {site.port: submit(site), idle.port: submit(idle)}
    paths = [f"/jobs/{submit(site)}/events" for _ in range(STREAMS)]
    async with listeners.listening(site.port, paths, lambda *_: None):
        loop = asyncio.get_running_loop()
        for _ in range(rounds):
            for name, one in (("streams", site), ("idle", idle)):
                path = f"/jobs/{jobs[one.port]}"
                samples.add(name, await loop.run_in_executor(None, _p99, one, path))
    return samples


def _p99(site: servers.Site, path: str) -> float:
    """Seconds."""
    seconds = []
    for _ in range(REQUESTS):
        begin = time.perf_counter()
        site.ask("GET", path)
        seconds.append(time.perf_counter() - begin)
    return sorted(seconds)[int(REQUESTS * 0.99)]
