"""bide on simulated machines: PostgreSQL, a broker, two replicas of the service, two workers, and callers that retry.

Every connection goes over a wire that can be cut. The broker keeps nothing on disk.
Faults in addition to those of `WorkerGroup`:

- database: SIGKILL of PostgreSQL, and its recovery;
- replica: SIGKILL of a service and its start;
- pool: all connections that PostgreSQL has left are in use, while many callers send requests.
"""

from __future__ import annotations

import contextlib
import http.client
import random
import sys
import threading
import time
import urllib.error
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
from tests.servers.postgres import Postgres
from tests.servers.relay import Relay
from tests.servers.service import ServiceProcess

from bench.chaos import marks
from bench.chaos.hosts import Host
from bench.chaos.judge import Wanted
from bench.chaos.workers import Broker, Fault, Injected, WorkerGroup

TARGET = "bench.chaos.app:app"
CONNECTIONS = 3  # few connections for the reads of a replica
CALLERS = 40
SETTINGS = ("max_connections=40",)
# No response, or an incomplete one.
CUT_OFF = (urllib.error.URLError, http.client.HTTPException, OSError, ValueError)
KINDS = ("fenced", "work", "fenced", "family", "fenced")


class Fleet:
    def __init__(
        self, folder: Path, server: Postgres, broker: Broker, lease: float, rng: random.Random
    ) -> None:
        self.place = folder / "marks"
        self.tail = marks.Tail(self.place)
        self._server = server
        self._rng = rng
        self._wires = [Relay(server.port), Relay(broker.port)]
        self.to_database = self._wires[0]
        store, hints = server.url, broker.url
        store = store.replace(f":{server.port}", f":{self._wires[0].port}")
        hints = hints.replace(f":{broker.port}", f":{self._wires[1].port}")
        env = {marks.PLACE: str(self.place)}
        common = ("--store", store, "--broker", hints, "--lease", str(lease))
        options = ("--engine", "celery", "--connections", str(CONNECTIONS), *common)
        self.replicas = []
        for name in ("one", "two"):
            (folder / name).mkdir()
            self.replicas.append(ServiceProcess(folder / name, TARGET, env=env, options=options))
        worker = [sys.executable, "-m", "bide", "worker", TARGET, "--concurrency", "2"]
        worker += ["--drain", "5", "--log-level", "WARNING", *common]
        hosts = []
        for n in (1, 2):
            home = folder / f"worker-{n}"
            hosts.append(Host(home, [*worker, "--data", str(home / "data")], env, own_clock=n == 2))
        self.workers = WorkerGroup(hosts, broker, self._wires, self.tail, rng, frozen=1.5 * lease)

    @property
    def faults(self) -> dict[str, Fault]:
        return {
            **self.workers.faults,
            "database": self._database,
            "replica": self._replica,
            "pool": self._pool,
        }

    def start(self) -> None:
        for replica in self.replicas:
            replica.start_again()
        self.workers.start()

    def stop(self) -> None:
        self.workers.stop()
        for replica in self.replicas:
            replica.stop()
        for wire in self._wires:
            wire.end()

    def insist(self, method: str, path: str, body: Any = None, headers: Any = None) -> Any:
        """Send a request to the replicas in turn until one of them responds."""
        end = time.monotonic() + 120
        while True:
            replica = self._rng.choice(self.replicas)
            try:
                return replica.ask(method, path, body, headers)
            except CUT_OFF:
                if time.monotonic() > end:
                    raise
                time.sleep(0.05)

    def _database(self) -> Injected:
        self._server.kill()
        time.sleep(self._rng.uniform(0.0, 0.5))
        self._server.start()
        return Injected(back=time.monotonic())

    def _replica(self) -> Injected:
        replica = self._rng.choice(self.replicas)
        replica.kill(alone=False)
        time.sleep(self._rng.uniform(0.0, 0.5))
        replica.start_again()
        return Injected(back=time.monotonic())

    def _pool(self) -> Injected:
        taken = []
        with ThreadPoolExecutor(CALLERS) as callers:
            with contextlib.suppress(psycopg.OperationalError):
                while True:
                    taken.append(psycopg.connect(self._server.url, connect_timeout=2))
            for _ in callers.map(self._look, range(4 * CALLERS)):
                pass
            time.sleep(0.5)
        for connection in taken:
            connection.close()
        return Injected(back=time.monotonic())

    def _look(self, number: int) -> None:
        """Ignore the response: only the effect on other callers' jobs matters."""
        with contextlib.suppress(*CUT_OFF):
            self.replicas[number % 2].ask("GET", f"/jobs?status=DONE&kind={KINDS[number % len(KINDS)]}")


class Callers(threading.Thread):
    """Keep the queue filled until enough jobs were acknowledged and all faults are injected."""

    def __init__(self, fleet: Fleet, jobs: int, backlog: int) -> None:
        super().__init__(daemon=True)  # a trial that fails does not wait for it
        self._fleet = fleet
        self._jobs = jobs
        self._backlog = backlog
        self.acknowledged: list[Wanted] = []
        self.error: Exception | None = None
        self.over = threading.Event()

    def share(self) -> float:
        return len(self.acknowledged) / self._jobs

    def _done(self) -> int:
        self._fleet.tail.grow()
        return sum(wanted.job_id in self._fleet.tail.finished for wanted in self.acknowledged)

    def run(self) -> None:
        try:
            while len(self.acknowledged) < self._jobs or not self.over.is_set():
                while len(self.acknowledged) - self._done() > self._backlog:
                    time.sleep(0.05)
                number = len(self.acknowledged)
                self._submit(range(number, number + 10))
        except Exception as error:
            self.error = error

    def _submit(self, numbers: range) -> None:
        kinds = [KINDS[n % len(KINDS)] for n in numbers]
        wanted = [{"kind": kind, "input": {"number": n}} for kind, n in zip(kinds, numbers, strict=True)]
        key = {"Idempotency-Key": str(uuid.uuid4())}
        answer: Any = {"jobs": [{}]}
        # Some requests may have to be sent again.
        while not all("jobId" in job for job in answer["jobs"]):
            answer = self._fleet.insist("POST", "/jobs/batch", {"jobs": wanted}, key)
        for kind, n, job in zip(kinds, numbers, answer["jobs"], strict=True):
            self.acknowledged.append(Wanted(job["jobId"], 2 * n + 1 if kind == "family" else n))
