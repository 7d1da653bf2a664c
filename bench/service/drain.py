"""No-op jobs drained from a full queue by two warm workers: bide, Celery on Redis, Huey on SQLite without fsync.

Each stores the results of all jobs. The time is from the start signal until the last result is stored.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from bench.service import servers
from bench.service.load import Samples
from bench.service.table import Line

WARM_UP = 200
BIDE, CELERY, HUEY = 6000, 2000, 6000  # jobs; each takes a few seconds
BATCH = 1000


def measure(folder: Path, rounds: int) -> list[Line]:
    samples = Samples()
    for n in range(rounds):
        here = folder / f"round-{n}"
        here.mkdir()
        samples.add("bide", BIDE / drain_bide(here))
        with servers.redis_server(here) as redis:
            samples.add("celery", CELERY / drain_celery(here, servers.celery_on(redis, redis), CELERY))
        samples.add("huey", HUEY / drain_huey(here))
    return [
        _line("jobs drained : Celery on Redis, 2 children", samples, "celery", 5),
        _line("jobs drained : Huey on SQLite, no fsync", samples, "huey", 0.5),
    ]


def _line(what: str, samples: Samples, peer: str, bar: float) -> Line:
    detail = f"{samples['bide']:.0f} : {samples[peer]:.0f} jobs/s"
    return Line(what, samples.ratio("bide", peer), "≥", bar, detail=detail)


def drain_bide(folder: Path, jobs: int = BIDE) -> float:
    with servers.bide(folder / "bide") as site:
        _submit(site, WARM_UP)
        _settled(site)
        site.ask("POST", "/queues/default/pause")
        _submit(site, jobs - 1)
        last = site.ask("POST", "/jobs", {"kind": "noop", "input": {"n": 0}, "priority": -9}).json()
        begin = time.perf_counter()
        site.ask("POST", "/queues/default/resume")
        site.finish(last["jobId"])
        _settled(site)  # the other child may still run some
        seconds = time.perf_counter() - begin
        with closing(sqlite3.connect(folder / "bide" / "data" / "bide.db")) as database:
            count = "SELECT count(*) FROM jobs WHERE status = 'DONE' AND result IS NOT NULL"
            if database.execute(count).fetchone()[0] != WARM_UP + jobs:
                raise RuntimeError("some jobs have not ended, so the time is meaningless")
        return seconds


def _submit(site: servers.Site, jobs: int) -> None:
    for start in range(0, jobs, BATCH):
        numbers = range(start, min(jobs, start + BATCH))
        batch = [{"kind": "noop", "input": {"n": n}} for n in numbers]
        site.ask("POST", "/jobs/batch", {"jobs": batch})


def _settled(site: servers.Site) -> None:
    while True:
        (queue,) = site.ask("GET", "/queues").json()["queues"]
        if queue["backlog"] + queue["running"] == 0:
            return
        time.sleep(0.002)


def drain_celery(folder: Path, env: Mapping[str, str], jobs: int) -> float:
    """`env` is that of `servers.celery_on`."""
    gates = folder / "celery-gates"
    gates.mkdir()
    with servers.driver("celery_drain", folder, str(jobs), str(gates), env=env) as lines:
        _expect(lines.readline(), "filled")
        with servers.celery_worker(folder, env):
            return _seconds(lines.readline())


def drain_huey(folder: Path, jobs: int = HUEY) -> float:
    gates, database = folder / "huey-gates", folder / "huey.db"
    gates.mkdir()
    env = {"BENCH_HUEY": str(database)}
    with servers.driver("huey_drain", folder, str(jobs), str(gates), env=env) as lines:
        _expect(lines.readline(), "filled")
        with servers.huey_consumer(folder, database):
            return _seconds(lines.readline())


def _expect(line: str, wanted: str) -> None:
    if line.strip() != wanted:
        raise RuntimeError(f"the peer's driver said {line!r} instead of {wanted!r}")


def _seconds(line: str) -> float:
    if not line:
        raise RuntimeError("the peer's driver ended without a figure")
    return float(line)
