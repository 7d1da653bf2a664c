"""Bare Celery, with faults of its workers, its broker and its connections."""

from __future__ import annotations

import os
import random
import subprocess
import threading
import time
from pathlib import Path

from tests.servers.relay import Relay

from bench.chaos import marks
from bench.chaos.hosts import Host
from bench.chaos.workers import Broker, Fault, WorkerGroup
from bench.service import servers

APP, COURIER = "bench.chaos.peers.celery_app", "bench.chaos.peers.celery_courier"


class Bare:
    def __init__(
        self, folder: Path, broker: Broker, results: str | None, frozen: float, rng: random.Random
    ) -> None:
        """`results` is the Redis that stores them; by default that of the broker."""
        self.place = folder / "marks"
        self.tail = marks.Tail(self.place)
        self._folder = folder
        self._wire = Relay(broker.port)
        url = broker.url.replace(f":{broker.port}", f":{self._wire.port}")
        self._env = {
            marks.PLACE: str(self.place),
            **servers.celery_on(url, results or url),
            "C_FORCE_ROOT": "1",
            "PYTHONPATH": str(servers.ROOT),
        }
        hosts = []
        for n in (1, 2):
            command = [servers.peer_python(), "-m", "celery", "-A", APP, "worker", "-n", f"w{n}@%h"]
            command += ["--concurrency", "2", "--loglevel", "WARNING"]
            hosts.append(Host(folder / f"worker-{n}", command, self._env, own_clock=n == 2))
        self.workers = WorkerGroup(hosts, broker, [self._wire], self.tail, rng, frozen)

    @property
    def faults(self) -> dict[str, Fault]:
        return self.workers.faults

    def start(self) -> None:
        self.workers.start()

    def stop(self) -> None:
        self.workers.stop()
        self._wire.end()

    def submission(self, jobs: int, backlog: int) -> Submission:
        return Submission(self, jobs, backlog, self._folder / "submission.log", self._env)


class Submission(threading.Thread):
    """A separate process with Celery that submits jobs, and its output."""

    def __init__(self, bare: Bare, jobs: int, backlog: int, log: Path, env: dict[str, str]) -> None:
        super().__init__(daemon=True)
        self._bare = bare
        self._jobs = jobs
        self._over = log.with_name("over")
        self._command = [servers.peer_python(), "-m", COURIER, str(jobs), str(backlog), str(self._over)]
        self._log = log
        self._env = {**os.environ, **env}
        self._process: subprocess.Popen[str] | None = None
        self.acknowledged: list[str] = []

    def share(self) -> float:
        return len(self.acknowledged) / self._jobs

    def run(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=servers.ROOT,
                env=self._env,
            )
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.acknowledged.append(line.strip())
        self._process.wait()

    def over(self) -> None:
        """Announce that all faults are injected."""
        self._over.touch()

    def settle(self, quiet: float, longest: float) -> None:
        """Wait until every job has run, or no job has run for `quiet` seconds."""
        end, last = time.monotonic() + longest, time.monotonic()
        while time.monotonic() < min(end, last + quiet):
            if self._bare.tail.grow():
                last = time.monotonic()
            elif not self.is_alive() and self._bare.tail.finished.issuperset(self.acknowledged):
                return
            time.sleep(0.05)

    def end(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
        self.join(10)
