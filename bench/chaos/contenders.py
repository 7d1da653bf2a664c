"""The systems that run the same jobs with the same faults: bide, and peers configured as their documentation recommends.

A worker is killed with all its children, as a container or systemd would end it. The peers' Redis gets no faults.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from tests.servers import processes
from tests.servers.service import ServiceProcess

from bench.chaos import marks
from bench.chaos.kills import Target
from bench.chaos.peers.submission import GAP
from bench.service import servers


class Contender(Target, Protocol):
    quiet: float  # seconds without a mark after which the run ends

    def submit(self, jobs: int) -> Iterator[str]:
        """The names, in the marks, of jobs as they are acknowledged."""

    def stop(self) -> None: ...


class Bide(ServiceProcess):
    quiet = 60.0  # a lease, twice

    def kill(self, *, alone: bool = False) -> None:
        super().kill(alone=alone)

    def submit(self, jobs: int) -> Iterator[str]:
        for number in range(jobs):
            body = {"kind": "work", "input": {"number": number}}
            answer = self.insist("POST", "/jobs", body, {"Idempotency-Key": str(uuid.uuid4())})
            yield str(answer["jobId"])
            time.sleep(GAP)


class Peer:
    """Commands that run workers, and a module that submits."""

    def __init__(
        self,
        folder: Path,
        module: str,
        commands: Sequence[Sequence[str]],
        env: Mapping[str, str],
        quiet: float,
    ) -> None:
        self.quiet = quiet
        self._log = folder / "peer.log"
        self._module = module
        self._commands = commands
        self._env = {**os.environ, **env, "PYTHONPATH": str(servers.ROOT)}
        self._workers: list[subprocess.Popen[bytes]] = []

    @property
    def pids(self) -> set[int]:
        return {worker.pid for worker in self._workers}

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._workers = [
                subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd=servers.ROOT,
                    env=self._env,
                )
                for command in self._commands
            ]

    def kill(self, *, alone: bool = False) -> None:
        children = set() if alone else {c for pid in self.pids for c in processes.descendants(pid)}
        for worker in self._workers:
            worker.kill()
        processes.kill(children)
        for worker in self._workers:
            worker.wait()
        self._workers = []

    stop = kill

    def submit(self, jobs: int) -> Iterator[str]:
        command = [servers.peer_python(), "-m", "bench.chaos.peers.submission", self._module, str(jobs)]
        with (
            self._log.open("ab") as log,
            subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, text=True, cwd=servers.ROOT, env=self._env
            ) as process,
        ):
            assert process.stdout is not None
            for line in process.stdout:
                yield line.strip()
        if process.returncode:
            raise RuntimeError(f"{self._module} failed: {self._log.read_text()[-2000:]}")


@contextlib.contextmanager
def bide(folder: Path, place: Path) -> Iterator[Contender]:
    yield Bide(folder, "bench.chaos.app:app", env={marks.PLACE: str(place)})


@contextlib.contextmanager
def celery(folder: Path, place: Path) -> Iterator[Contender]:
    command = [servers.peer_python(), "-m", "celery", "-A", "bench.chaos.peers.celery_app", "worker"]
    command += ["--concurrency", "2", "--loglevel", "WARNING"]
    with servers.redis_server(folder) as redis:
        env = {marks.PLACE: str(place), **servers.celery_on(redis, redis), "C_FORCE_ROOT": "1"}
        yield Peer(folder, "celery_app", [command], env, quiet=30)  # thrice its visibility timeout


@contextlib.contextmanager
def rq(folder: Path, place: Path) -> Iterator[Contender]:
    """Two workers. Their maintenance detects a lost worker one minute after its last heartbeat, between two jobs."""
    with servers.redis_server(folder) as redis:
        command = [_program("rq"), "worker", "--url", redis, "--quiet"]
        command += [
            "--maintenance-interval",
            "5",
            "--job-monitoring-interval",
            "5",
            "--worker-ttl",
            "20",
        ]
        env = {marks.PLACE: str(place), "BENCH_REDIS": redis}
        yield Peer(folder, "rq_app", [command, command], env, quiet=90)


@contextlib.contextmanager
def huey(folder: Path, place: Path) -> Iterator[Contender]:
    command = [_program("huey_consumer"), "bench.chaos.peers.huey_app.huey"]
    command += ["-k", "process", "-w", "2", "-q", "--health-check-interval", "1"]
    env = {marks.PLACE: str(place), "BENCH_HUEY": str(folder / "huey.db")}
    yield Peer(folder, "huey_app", [command], env, quiet=20)  # twice as long as it sleeps at most


def _program(name: str) -> str:
    return str(Path(servers.peer_python()).parent / name)


Making = Callable[[Path, Path], contextlib.AbstractContextManager[Contender]]

CONTENDERS: dict[str, Making] = {
    "bide": bide,
    "Celery on Redis": celery,
    "RQ on Redis": rq,
    "Huey on SQLite": huey,
}
