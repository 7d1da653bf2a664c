"""From `POST` to the handler's first line on an idle service: bide against FastAPI + Celery on Redis.

The handler sends its start time to a socket of the benchmark, so there is no polling.
"""

from __future__ import annotations

import socket
import time
from pathlib import Path
from statistics import median

from bench.service import servers
from bench.service.load import Samples
from bench.service.table import Line

# The speed of a virtual machine changes from second to second, so a round alternates between the systems.
SLICES = 5
SAMPLES = 20  # jobs per slice
PAUSE = 0.02  # pause between two jobs, so that the service is idle again


def measure(folder: Path, rounds: int) -> list[Line]:
    with (
        servers.bide(folder / "bide") as site,
        servers.redis_server(folder) as redis,
        servers.python_site(
            servers.peer_python(), "celery_api", folder, env=servers.celery_on(redis, redis)
        ) as api,
        servers.celery_worker(folder, servers.celery_on(redis, redis)),
    ):
        for warm in (site, api):
            _starts(warm, "/jobs", 10)
        samples = Samples()
        for _ in range(rounds * SLICES):
            samples.add("bide", _starts(site, "/jobs", SAMPLES))
            samples.add("threads", _starts(api, "/jobs", SAMPLES))
            samples.add("loop", _starts(api, "/jobs/inline", SAMPLES))
    return [
        Line(
            "POST to handler start : Celery on Redis",
            samples.ratio("bide", "threads"),
            "≤",
            0.5,
            detail=f"{samples['bide']:.2f} : {samples['threads']:.2f} ms "
            f"(with .delay() in the event loop {samples['loop']:.2f})",
        )
    ]


def _starts(site: servers.Site, path: str, count: int) -> float:
    """Milliseconds: the median of `count` jobs, one at a time."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind((servers.HOST, 0))
        receiver.settimeout(30)
        port = receiver.getsockname()[1]
        delays = []
        for _ in range(count):
            before = time.time()
            site.ask("POST", path, {"kind": "stamp", "input": {"port": port}})
            delays.append(float(receiver.recv(100)) - before)
            time.sleep(PAUSE)
    return median(delays) * 1000
