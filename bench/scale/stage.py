"""bide with PostgreSQL, a broker and workers, for measurements."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from tests.servers.postgres import Postgres
from tests.servers.rabbitmq import RabbitServer
from tests.servers.redis import RedisServer

from bench.service import servers
from bench.service.servers import Site

TARGET = "bench.service.app:app"
QUEUE = "default"
BATCH = 1000
WARM_UP = 200
OPEN = "SELECT EXISTS (SELECT 1 FROM jobs WHERE status NOT IN ('DONE'))"
SEARCH = "-c search_path=bide"
Courier = RedisServer | RabbitServer


@dataclass
class Stage:
    server: Postgres
    broker: Courier
    site: Site
    workers: int

    def submit(self, jobs: int, kind: str = "noop", **given: Any) -> None:
        for start in range(0, jobs, BATCH):
            numbers = range(start, min(jobs, start + BATCH))
            batch = [{"kind": kind, "input": given or {"n": n}} for n in numbers]
            self.site.ask("POST", "/jobs/batch", {"jobs": batch})

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
        self.submit(WARM_UP if kind == "noop" else 2 * self.workers, kind, **given)
        self.settled()
        self.site.ask("POST", f"/queues/{QUEUE}/pause")
        self.submit(jobs, kind, **given)
        time.sleep(1.5)  # wait until the work caused by the submissions has ended
        begin = time.perf_counter()
        self.site.ask("POST", f"/queues/{QUEUE}/resume")
        self.settled()
        return time.perf_counter() - begin


@contextmanager
def stage(
    folder: Path, make: type[Courier], *, workers: int = 1, concurrency: int = 2
) -> Iterator[Stage]:
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)  # PostgreSQL runs as another user
    with ExitStack() as stack:
        server = Postgres(str(folder))
        stack.callback(server.end)
        broker = make(str(folder))
        stack.callback(broker.end)
        common = ("--store", server.url, "--broker", broker.url)
        options = ("--engine", "celery", *common)
        site = stack.enter_context(servers.bide(folder / "service", options=options))
        for n in range(workers):
            home = folder / f"worker-{n}"
            home.mkdir()
            command = [sys.executable, "-m", "bide", "worker", TARGET, "--concurrency", str(concurrency)]
            command += ["--data", str(home), "--drain", "1", "--log-level", "WARNING", *common]
            stack.enter_context(servers.running(command, home / "log"))
        _await_workers(site, workers * concurrency)
        yield Stage(server, broker, site, workers)


def _await_workers(site: Site, children: int) -> None:
    end = time.monotonic() + 30
    while True:
        ready = site.ask("GET", "/workers").json()["workers"]
        if sum(worker["state"] != "starting" for worker in ready) >= children:
            return
        if time.monotonic() > end:
            raise servers.Unready(f"the workers did not start: {ready}")
        time.sleep(0.05)
