"""A dependency fails while handlers call it through a breaker, and services and children are killed with kill -9.

On SQLite one service runs the jobs, on PostgreSQL two replicas do. The dependency fails while a file exists. Meanwhile the
first service is killed three times, and a child of it after each restart. Then the dependency works again, and every job
must end as DONE, with at most one failed attempt.
"""

from __future__ import annotations

import json
import os
import signal
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.servers.postgres import postgres
from tests.servers.service import ServiceProcess

from bench.service.table import Line
from bide import App, Context

app = App()
app.breaker("vendor", open_for=1.0, open_cap=4.0)
TARGET = "bench.chaos.dependency:app"
JOBS, KILLS = 100, 3
DOWN = 30.0  # seconds
PATIENCE = 120.0


@app.job(retries=1, backoff=0.2)
def calls(ctx: Context, down: str, log: str) -> None:
    with ctx.breaker("vendor"):
        time.sleep(0.02)
        if Path(down).exists():
            with Path(log).open("a") as file:
                file.write(f"{ctx.job_id}\n")
            raise ConnectionError("the vendor is down")


@dataclass
class DependencyReport:
    ended: int = 0  # as DONE
    errors: int = 0
    attempts: int = 0  # the most failed attempts of a job
    made: int = 0  # calls while the dependency failed
    closed: float = 0.0  # seconds from its return until all jobs had ended


def measure(folder: Path) -> list[Line]:
    with postgres(str(folder)) as server:
        shared = ["--store", server.url]
        reports = {
            "SQLite": trial(folder / "sqlite", 1, []),
            "PostgreSQL, 2 replicas": trial(folder / "postgres", 2, shared),
        }
    lines = []
    for name, found in reports.items():
        # Five calls open the breaker; each child may have one in progress, again after each kill; then probes.
        most = 5 + 4 * (KILLS + 1) + DOWN / 2 + 2 * KILLS
        lines += [
            Line(f"dependency, {name}: jobs that ended as ERROR", found.errors, "≤", 0, ""),
            Line(f"dependency, {name}: jobs that did not end", JOBS - found.ended, "≤", 0, ""),
            Line(f"dependency, {name}: failed attempts of a job", found.attempts, "≤", 1, ""),
            Line(f"dependency, {name}: calls while it failed", found.made, "≤", most, ""),
            Line(f"dependency, {name}: until all jobs had ended", found.closed, "≤", 60, "s"),
        ]
    return lines


def trial(folder: Path, replicas: int, options: list[str], seconds: float = DOWN) -> DependencyReport:
    folder.mkdir()
    down, log = folder / "down", folder / "calls"
    down.touch()
    log.touch()
    services = []
    for number in range(replicas):
        own = folder / str(number)
        own.mkdir()
        services.append(ServiceProcess(own, TARGET, env={"TMPDIR": str(own)}, options=options))
    try:
        for service in services:
            service.start()
            service.until_ready()
        last = services[-1]
        body = {"kind": "calls", "input": {"down": str(down), "log": str(log)}}
        sent = _ask(last.url, "/jobs/batch", {"jobs": [body] * JOBS})
        assert len(sent["jobs"]) == JOBS
        for _ in range(KILLS):
            time.sleep(seconds / KILLS / 2)
            services[0].kill()
            services[0].start()
            time.sleep(seconds / KILLS / 2)
            _kill_child(services[0])
        report = DependencyReport(made=len(log.read_text().split()))
        down.unlink()
        back = time.monotonic()
        _until(lambda: not _jobs(services[-1], "PENDING", "PROCESSING", "RETRYING"))
        report.closed = time.monotonic() - back
        jobs = _jobs(services[-1], "DONE", "ERROR", "CANCELLED")
        report.ended = sum(job["status"] == "DONE" for job in jobs)
        report.errors = sum(job["status"] == "ERROR" for job in jobs)
        report.attempts = max(job["attempt"] for job in jobs) - 1
        return report
    finally:
        for service in services:
            service.stop()


def _kill_child(service: ServiceProcess) -> None:
    workers = _ask(service.url, "/workers")["workers"]
    if workers:
        os.kill(workers[0]["pid"], signal.SIGKILL)


def _jobs(service: ServiceProcess, *statuses: str) -> list[dict[str, Any]]:
    query = "&".join(f"status={status}" for status in statuses)
    found: list[dict[str, Any]] = _ask(service.url, f"/jobs?limit=100&{query}")["jobs"]
    return found


def _ask(url: str, path: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as response:
        return json.load(response)


def _until(met: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not met() and time.monotonic() < end:
        time.sleep(0.1)
