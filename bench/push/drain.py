"""No-op jobs drained from a full queue, with 100 streams that each select 1 % of the jobs, against the same without."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from pathlib import Path

from bench.push import listeners
from bench.push.sites import push_site, run
from bench.service import servers
from bench.service.load import Samples
from bench.service.table import Line

STREAMS = 100
JOBS = 12_000
ROUNDS = 3  # times the rounds of the other parts, because single ratios differ by a tenth
BATCH = 1000


def measure(folder: Path, rounds: int) -> list[Line]:
    samples = Samples()
    both = [("with", STREAMS), ("without", 0)]
    for number in range(ROUNDS * rounds):
        both.reverse()
        for name, streams in both:
            with push_site(folder / f"{name}-{number}") as site:
                seconds, cpu = run(_drain(site, streams))
                samples.add(name, JOBS / seconds)
                samples.add(f"cpu {name}", cpu / JOBS * 1e6)
    return [
        Line(
            f"jobs drained with {STREAMS} streams of 1 % each : without",
            samples.ratio("with", "without"),
            "≥",
            0.9,
            detail=f"{samples['with']:.0f} : {samples['without']:.0f} jobs/s; CPU time of the service's loop "
            f"{samples['cpu with']:.0f} : {samples['cpu without']:.0f} µs per job",
        )
    ]


async def _drain(site: servers.Site, streams: int) -> tuple[float, float]:
    """Seconds, and CPU seconds of the thread that sends the events."""
    for start in range(0, JOBS, BATCH):
        jobs = [
            {"kind": "noop", "input": {"n": n}, "labels": {"part": str(n % STREAMS)}}
            for n in range(start, start + BATCH)
        ]
        site.ask("POST", "/jobs/batch", {"jobs": jobs})
    heard: Counter[int] = Counter()

    def on_event(number: int, name: bytes) -> None:
        if name == b"status":
            heard[number] += 1

    paths = [f"/events?type=status&label=part:{number}" for number in range(streams)]
    async with listeners.listening(site.port, paths, on_event):
        loop = asyncio.get_running_loop()
        begin, used = time.perf_counter(), site.cpu()
        await loop.run_in_executor(None, _run_all, site)
        seconds, used = time.perf_counter() - begin, site.cpu() - used
        end = loop.time() + 30
        # Each job has an event for its start and one for its end.
        while any(heard[number] < 2 * JOBS // STREAMS for number in range(streams)):
            if loop.time() > end:
                raise RuntimeError(f"the streams received {sum(heard.values())} of {2 * JOBS} events")
            await asyncio.sleep(0.01)
    return seconds, used


def _run_all(site: servers.Site) -> None:
    site.ask("POST", "/queues/default/resume")
    while True:
        (queue,) = site.ask("GET", "/queues").json()["queues"]
        if queue["backlog"] + queue["running"] == 0:
            return
        time.sleep(0.01)
