"""Starts and stops the measured servers: bide, Redis and the peers, each in its own process group on loopback.

Each server is stopped by its process id when its `with` block ends, also after a failure.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from tests.servers.ports import free_port
from tests.servers.redis import RedisServer

from bench.usage import memory

ROOT = Path(__file__).resolve().parents[2]
HOST = "127.0.0.1"
IDLE = 2.0  # seconds after which a connection is not reused, because uvicorn closes it after five


class Unready(Exception):
    """A program that the benchmark needs is missing; the message says what to do."""


def peer_python() -> str:
    named = os.environ.get("BIDE_BENCH_PYTHON")
    python = Path(named) if named else ROOT / ".venv-bench" / "bin" / "python"
    if not python.exists():
        raise Unready(f"{python} is missing: run scripts/setup-bench, or name one in BIDE_BENCH_PYTHON")
    return str(python)


def require(*programs: str) -> None:
    missing = [name for name in programs if shutil.which(name) is None]
    if missing:
        raise Unready(f"{' and '.join(missing)} missing: run scripts/setup-bench")


@contextlib.contextmanager
def running(
    command: Sequence[str], log: Path, env: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process. Afterwards terminate its group, and kill it after ten seconds."""
    with log.open("ab") as out:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            cwd=ROOT,
            env={**os.environ, **(env or {})},
            start_new_session=True,
        )
    try:
        yield process
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)
    with contextlib.suppress(ProcessLookupError):  # children that outlived it
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def await_port(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + 30
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection((HOST, port), 1):
            return
        time.sleep(0.02)
    raise Unready(f"{process.args!r} did not start: {log.read_text()[-2000:]}")


@dataclass
class Site:
    """An HTTP server."""

    port: int
    pid: int
    data: Path = Path()

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def __post_init__(self) -> None:
        self._connection = http.client.HTTPConnection(HOST, self.port, timeout=120)
        self._used = time.monotonic()

    def ask(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> Reply:
        if time.monotonic() - self._used > IDLE:
            self._connection.close()
        sent = None if body is None else json.dumps(body).encode()
        self._connection.request(
            method, path, sent, {"Content-Type": "application/json", **(headers or {})}
        )
        answer = self._connection.getresponse()
        reply = Reply(answer.status, dict(answer.getheaders()), answer.read())
        self._used = time.monotonic()
        if reply.status >= 400:
            raise RuntimeError(f"{method} {path}: {reply.status} {reply.body[:500]!r}")
        return reply

    def finish(self, job_id: str) -> Any:
        """Wait for the end of a job and return it."""
        while True:
            job = self.ask("GET", f"/jobs/{job_id}", headers={"Prefer": "wait=30"}).json()
            if job["status"] not in ("PENDING", "PROCESSING"):
                return job

    def run(self, kind: str, **given: Any) -> Any:
        job = self.ask("POST", "/jobs", {"kind": kind, "input": given}).json()
        return self.finish(job["jobId"])

    def cpu(self) -> float:
        """CPU seconds of the thread that responds."""
        return int(Path(f"/proc/{self.pid}/schedstat").read_text().split()[0]) / 1e9

    def memory(self) -> float:
        """Resident, in MB."""
        return memory(self.pid) / 1024**2


@dataclass
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    def header(self, name: str) -> str:
        return next(value for key, value in self.headers.items() if key.lower() == name.lower())


@contextlib.contextmanager
def bide(
    folder: Path,
    *,
    workers: int = 2,
    options: Sequence[str] = (),
    app: str = "bench.service.app:app",
    env: Mapping[str, str] | None = None,
) -> Iterator[Site]:
    """`bide serve` with its default settings."""
    folder.mkdir(parents=True, exist_ok=True)
    port, log = free_port(), folder / "serve.log"
    command = [sys.executable, "-m", "bide", "serve", app]
    command += ["--port", str(port), "--data", str(folder / "data"), "--workers", str(workers)]
    command += ["--drain", "1", "--log-level", "WARNING", *options]
    with running(command, log, env) as process:
        await_port(port, process, log)
        yield Site(port, process.pid, folder / "data")


@contextlib.contextmanager
def redis_server(folder: Path) -> Iterator[str]:
    """A Redis without persistence; returns its URL."""
    require("redis-server")
    server = RedisServer(str(folder))
    try:
        yield server.url
    finally:
        server.end()


@contextlib.contextmanager
def python_site(
    python: str,
    module: str,
    folder: Path,
    *args: str,
    env: Mapping[str, str] | None = None,
    package: str = "bench.service.peers",
) -> Iterator[Site]:
    """A module that serves HTTP on the port that is its first argument."""
    port, log = free_port(), folder / f"{module}.log"
    command = [python, "-m", f"{package}.{module}", str(port), *args]
    with running(command, log, env) as process:
        await_port(port, process, log)
        yield Site(port, process.pid)


@contextlib.contextmanager
def celery_worker(folder: Path, env: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """Two prefork children. `env` is that of `celery_on`."""
    command = [peer_python(), "-m", "celery", "-A", "bench.service.peers.celery_app", "worker"]
    command += ["--concurrency", "2", "--loglevel", "WARNING"]
    with running(command, folder / "celery.log", {**env, "C_FORCE_ROOT": "1"}) as process:
        yield process


def celery_on(broker: str, results: str, *, late: bool = False) -> dict[str, str]:
    """The settings of `bench.service.peers.celery_app`. `late`: it acknowledges late."""
    return {"BENCH_BROKER": broker, "BENCH_RESULTS": results, "BENCH_LATE": "1" if late else ""}


@contextlib.contextmanager
def huey_consumer(folder: Path, database: Path) -> Iterator[subprocess.Popen[bytes]]:
    consumer = Path(peer_python()).parent / "huey_consumer"
    command = [str(consumer), "bench.service.peers.huey_app.huey", "-k", "process", "-w", "2", "-q"]
    env = {"BENCH_HUEY": str(database), "PYTHONPATH": str(ROOT)}
    with running(command, folder / "huey.log", env) as process:
        yield process


@contextlib.contextmanager
def driver(
    module: str,
    folder: Path,
    *args: str,
    env: Mapping[str, str],
    package: str = "bench.service.peers",
) -> Iterator[IO[str]]:
    """A program of a peer that prints lines."""
    command = [peer_python(), "-m", f"{package}.{module}", *args]
    log = folder / f"{module}.log"
    with (
        log.open("ab") as errors,
        subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            cwd=ROOT,
            env={**os.environ, **env},
        ) as process,
    ):
        try:
            assert process.stdout is not None
            yield process.stdout
        except RuntimeError as error:
            raise RuntimeError(f"{error}\n{log.read_text()[-2000:]}") from error
        finally:
            if process.poll() is None:
                process.kill()
