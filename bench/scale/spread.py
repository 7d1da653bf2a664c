"""Jobs per second by number of workers and replicas, and CPU time and memory of each part, as tables without limits.

Everything runs on one machine. The CPU columns show where the machine is the limit.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.servers.redis import RedisServer

from bench.scale.stage import Stage, stage
from bench.service.load import Samples, posting, wrk
from bench.service.table import Line

WORKERS, REPLICAS = (1, 2, 4), (1, 2)
JOBS, NAPS, NAP = 6000, 160, 0.1
SECONDS = 5
CALLERS = 4000
PARTS = ("PostgreSQL", "services", "workers", "handlers", "broker")


def measure(folder: Path, rounds: int) -> list[Line]:
    samples = Samples()
    for n in range(rounds):
        for workers in WORKERS:
            with stage(folder / f"{n}-workers-{workers}", RedisServer, workers=workers) as found:
                _noops(samples, found, workers)
                samples.add(
                    f"naps {workers}", NAPS * workers / found.drain(NAPS * workers, "nap", seconds=NAP)
                )
        for replicas in REPLICAS:
            with stage(folder / f"{n}-replicas-{replicas}", RedisServer, replicas=replicas) as found:
                _submissions(samples, found, folder, replicas)
                if replicas == 1:
                    samples.add("caller", _callers(found))
    _show(samples)
    return []


def _noops(samples: Samples, found: Stage, workers: int) -> None:
    found.drain(500)  # all workers are warm
    before = found.cpu()
    samples.add(f"no-op {workers}", JOBS / found.drain(JOBS))
    after = found.cpu()
    for part in PARTS:
        samples.add(f"{part} {workers}", (after[part] - before[part]) / JOBS * 1e6)


def _submissions(samples: Samples, found: Stage, folder: Path, replicas: int) -> None:
    """Durable submissions, one per request, which one worker runs immediately."""
    script = posting(folder / "post.lua", '{"kind": "noop", "input": {"n": 1}}')
    before = found.cpu()
    with ThreadPoolExecutor(replicas) as pool:
        rates = pool.map(lambda site: wrk(f"{site.url}/jobs", SECONDS, script=script), found.replicas)
    rate = sum(rates)
    found.settled()
    after = found.cpu()
    samples.add(f"submitted {replicas}", rate)
    for part in PARTS:
        samples.add(
            f"submitted {part} {replicas}", (after[part] - before[part]) / (rate * SECONDS) * 1e6
        )


def _callers(found: Stage) -> float:
    """KB of a service's memory per client that waits for the end of a job, each on its own connection."""
    site = found.replicas[0]
    site.ask("POST", "/queues/default/pause")
    job = site.ask("POST", "/jobs", {"kind": "noop", "input": {"n": 1}}).json()
    request = f"GET /jobs/{job['jobId']} HTTP/1.1\r\nHost: localhost\r\nPrefer: wait=60\r\n\r\n".encode()

    async def wait() -> float:
        writers = []
        before = site.memory()
        for _ in range(CALLERS):
            _, writer = await asyncio.open_connection("127.0.0.1", site.port)
            writer.write(request)
            writers.append(writer)
        await asyncio.sleep(3)
        taken = site.memory() - before
        for writer in writers:
            writer.close()
        return taken * 1024 / CALLERS

    taken = asyncio.run(wait())
    site.ask("POST", "/queues/default/resume")
    return taken


def _show(samples: Samples) -> None:
    print("\ndrained, jobs/s; and µs of CPU per job")
    print(f"{'workers of 2':<14} {'no-op':>7} {'0.1 s':>7} " + " ".join(f"{part:>11}" for part in PARTS))
    for n in WORKERS:
        parts = " ".join(f"{samples[f'{part} {n}']:>11.0f}" for part in PARTS)
        print(f"{n:<14} {samples[f'no-op {n}']:>7.0f} {samples[f'naps {n}']:>7.1f} {parts}")
    print("\nsubmitted one per request and run, jobs/s; and µs of CPU per job")
    for n in REPLICAS:
        parts = " ".join(f"{samples[f'submitted {part} {n}']:>11.0f}" for part in PARTS)
        print(f"{f'{n} replicas':<14} {samples[f'submitted {n}']:>7.0f} {'':>7} {parts}")
    print(f"\na waiting client: {samples['caller']:.0f} KB of a service's memory")
