"""bide with PostgreSQL, a broker, replicas and workers, for measurements, and the CPU time and memory of each part."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from tests.servers import processes
from tests.servers.postgres import Postgres
from tests.servers.rabbitmq import RabbitServer
from tests.servers.redis import RedisServer

from bench.service import servers
from bench.service.servers import Site

TARGET = "bench.service.app:app"
QUEUE = "default"
BATCH = 1000
WARM_UP = 200
TICK = os.sysconf("SC_CLK_TCK")
OPEN = "SELECT EXISTS (SELECT 1 FROM jobs WHERE status NOT IN ('DONE'))"
SEARCH = "-c search_path=bide"
Courier = RedisServer | RabbitServer


@dataclass
class Stage:
    server: Postgres
    broker: Courier
    replicas: list[Site]
    workers: list[int]

    def submit(self, jobs: int, kind: str = "noop", **given: Any) -> None:
        site = self.replicas[0]
        for start in range(0, jobs, BATCH):
            numbers = range(start, min(jobs, start + BATCH))
            batch = [{"kind": kind, "input": given or {"n": n}} for n in numbers]
            site.ask("POST", "/jobs/batch", {"jobs": batch})

    def settled(self) -> None:
        """Whether no job and no hint is left."""
        with psycopg.connect(self.server.url, autocommit=True, options=SEARCH) as connection:
            end = time.monotonic() + 300
            while True:
                found = connection.execute(OPEN).fetchone()
                if found is not None and not found[0]:
                    break
                if time.monotonic() > end:
                    raise RuntimeError("some jobs never end, so the time is meaningless")
                time.sleep(0.02)
        while self.broker.waiting(QUEUE):
            time.sleep(0.01)

    def drain(self, jobs: int, kind: str = "noop", **given: Any) -> float:
        """Seconds from the release of the workers until no job and no hint is left."""
        site = self.replicas[0]
        self.submit(WARM_UP if kind == "noop" else 2 * len(self.workers), kind, **given)
        self.settled()
        site.ask("POST", f"/queues/{QUEUE}/pause")
        self.submit(jobs, kind, **given)
        time.sleep(1.5)  # wait until the work caused by the submissions has ended
        begin = time.perf_counter()
        site.ask("POST", f"/queues/{QUEUE}/resume")
        self.settled()
        return time.perf_counter() - begin

    def cpu(self) -> dict[str, float]:
        """Seconds of processor so far, by part."""
        return {
            "PostgreSQL": _cpu(self.server.pid),
            "broker": _cpu(self.broker.pid),
            "services": sum(_cpu(site.pid) for site in self.replicas),
            "workers": sum(_cpu(pid) for pid in self.workers),
            "handlers": sum(_cpu(c) for pid in self.workers for c in processes.descendants(pid)),
        }


def _cpu(pid: int) -> float:
    """CPU seconds of this process, and of its current and former children (PostgreSQL, Erlang)."""
    try:
        if not _has_backends(pid):
            return _times(pid, slice(11, 13))
    except FileNotFoundError:  # a child that was replaced
        return 0.0
    total = _times(pid, slice(11, 15))
    for child in processes.descendants(pid):
        with contextlib.suppress(FileNotFoundError):  # it has exited, so the parent includes its time
            total += _times(child, slice(11, 13))
    return total


def _times(pid: int, which: slice) -> float:
    """User and system time; the next two fields are those of exited children."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[which])) / TICK


def _has_backends(pid: int) -> bool:
    return Path(f"/proc/{pid}/comm").read_text().strip() in ("postgres", "beam.smp")


@contextmanager
def stage(
    folder: Path, make: type[Courier], *, workers: int = 1, replicas: int = 1, concurrency: int = 2
) -> Iterator[Stage]:
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)  # PostgreSQL runs as another user
    with ExitStack() as stack:
        server = Postgres(str(folder))
        stack.callback(server.end)
        broker = make(str(folder))
        stack.callback(broker.end)
        common = ("--store", server.url, "--broker", broker.url)
        sites = [
            stack.enter_context(
                servers.bide(folder / f"replica-{n}", options=("--engine", "celery", *common))
            )
            for n in range(replicas)
        ]
        pids = []
        for n in range(workers):
            home = folder / f"worker-{n}"
            home.mkdir()
            command = [sys.executable, "-m", "bide", "worker", TARGET, "--concurrency", str(concurrency)]
            command += ["--data", str(home), "--drain", "1", "--log-level", "WARNING", *common]
            pids.append(stack.enter_context(servers.running(command, home / "log")).pid)
        found = Stage(server, broker, sites, pids)
        _await_workers(sites[0], workers * concurrency)
        yield found


def _await_workers(site: Site, children: int) -> None:
    end = time.monotonic() + 30
    while True:
        ready = site.ask("GET", "/workers").json()["workers"]
        if sum(worker["state"] != "starting" for worker in ready) >= children:
            return
        if time.monotonic() > end:
            raise servers.Unready(f"the workers did not start: {ready}")
        time.sleep(0.05)
