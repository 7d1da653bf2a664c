"""From a commit to the listener: 1,000 streams, each of its own job.

The client sees no commit. A service without streams responds to the same request after the commit and a round trip, so its
response minus a bare round trip is the time of the commit.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from statistics import median

from bench.push import listeners
from bench.push.sites import bare, cancel, push_site, round_trip, run, submit
from bench.service import servers
from bench.service.load import Samples
from bench.service.table import Line

STREAMS = 1000
SAMPLES = 100  # per round
PAUSE = 0.01  # between two events, so that the service is idle again


def measure(folder: Path, rounds: int) -> list[Line]:
    listeners.allow_files(STREAMS + 1000)
    with (
        push_site(folder / "streams") as site,
        push_site(folder / "idle") as idle,
        bare(folder) as plain,
    ):
        samples = run(_measure(site, idle, plain, rounds))
    trip = samples["trip"]
    commit = samples["idle"] - trip
    delay = samples["event"] - commit
    return [
        Line(
            f"commit to listener, {STREAMS} streams, above a bare round trip",
            (delay - trip) * 1000,
            "≤",
            5,
            "ms",
            f"commit to listener {delay * 1000:.2f} ms, bare round trip {trip * 1000:.2f} ms, commit {commit * 1000:.2f} ms",
        )
    ]


async def _measure(site: servers.Site, idle: servers.Site, plain: servers.Site, rounds: int) -> Samples:
    jobs = [submit(site) for _ in range(max(STREAMS, rounds * SAMPLES))]
    arrived: dict[int, asyncio.Future[float]] = {}

    def on_event(number: int, name: bytes) -> None:
        waiting = arrived.get(number)
        if name == b"status" and waiting is not None and not waiting.done():
            waiting.set_result(time.perf_counter())

    samples = Samples()
    loop = asyncio.get_running_loop()
    paths = [f"/jobs/{job}/events" for job in jobs[:STREAMS]]
    async with listeners.listening(site.port, paths, on_event):
        number = 0
        for _ in range(rounds):
            events, answers, trips = [], [], []
            for _ in range(SAMPLES):
                arrived[number] = loop.create_future()
                begin = time.perf_counter()
                # In a thread, so that this loop notices the event when it arrives.
                answered = loop.run_in_executor(None, cancel, site, jobs[number])
                events.append(await asyncio.wait_for(arrived[number], 30) - begin)
                await answered
                number += 1
                await asyncio.sleep(PAUSE)
                other = submit(idle)
                begin = time.perf_counter()
                await loop.run_in_executor(None, cancel, idle, other)
                answers.append(time.perf_counter() - begin)
                begin = time.perf_counter()
                await loop.run_in_executor(None, round_trip, plain)
                trips.append(time.perf_counter() - begin)
            samples.add("event", median(events))
            samples.add("idle", median(answers))
            samples.add("trip", median(trips))
    return samples
