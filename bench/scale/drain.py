"""Through Celery: no-op jobs drained from a full queue by two warm children, against bare Celery on the same broker.

Bare Celery acknowledges late and keeps results in Redis. bide keeps full records and events in PostgreSQL, on disk. The
clock stops when the last result is stored and the broker's queue is empty.
"""

from __future__ import annotations

from pathlib import Path

from tests.servers.rabbitmq import RabbitServer
from tests.servers.redis import RedisServer

from bench.scale.stage import Courier, stage
from bench.service import servers
from bench.service.drain import drain_celery
from bench.service.load import Samples
from bench.service.table import Line

BIDE, CELERY = 6000, 2000  # jobs; each takes some seconds
BARS: dict[type[Courier], tuple[str, float]] = {
    RedisServer: ("Redis", 1.5),
    RabbitServer: ("RabbitMQ", 1.0),
}
NAPS, NAP = 160, 0.1


def measure(folder: Path, rounds: int) -> list[Line]:
    samples = Samples()
    for n in range(rounds):
        for make, (name, _) in BARS.items():
            here = folder / f"{name}-{n}"
            with stage(here / "bide", make) as found:
                samples.add(f"bide {name}", BIDE / found.drain(BIDE))
            samples.add(f"Celery {name}", CELERY / _drain_celery(here / "celery", make))
        for workers in (1, 2):
            with stage(folder / f"naps-{n}-{workers}", RedisServer, workers=workers) as found:
                samples.add(f"naps {workers}", NAPS / found.drain(NAPS, "nap", seconds=NAP))
    lines = []
    for name, bar in BARS.values():
        ours, theirs = f"bide {name}", f"Celery {name}"
        detail = f"{samples[ours]:.0f} : {samples[theirs]:.0f} jobs/s"
        what = f"no-op jobs drained through {name} : bare Celery"
        lines.append(Line(what, samples.ratio(ours, theirs), "≥", bar, detail=detail))
    detail = f"{samples['naps 2']:.1f} : {samples['naps 1']:.1f} jobs/s of {NAP} s"
    ratio = samples.ratio("naps 2", "naps 1")
    return [*lines, Line("handlers that sleep: two workers : one", ratio, "≥", 1.8, detail=detail)]


def _drain_celery(folder: Path, make: type[Courier]) -> float:
    folder.mkdir(parents=True)
    redis = RedisServer(str(folder))
    broker: Courier = redis
    try:
        if make is not RedisServer:
            broker = make(str(folder))
        return drain_celery(folder, servers.celery_on(broker.url, redis.url, late=True), CELERY)
    finally:
        broker.end()
        redis.end()
