"""A service with back-pressure that gets ten times as many jobs as it can run.

Two handler children sleep for 0.1 s per job: 20 jobs per second. Another process submits 200 jobs per second and does not
wait for responses. Every accepted job must end as DONE, memory must stay bounded, status requests must stay fast, and the
service must recover: a new job is accepted and runs at once.

`python -m bench.chaos.overload URL SECONDS FILE` is the process that submits. It writes the ids of accepted jobs.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from tests.servers.service import ServiceProcess

from bench.service.table import Line
from bide import App, Context

app = App()

TARGET = "bench.chaos.overload:app"
SLEEP, CHILDREN = 0.1, 2
CAPACITY = CHILDREN / SLEEP  # jobs per second
LOAD = 10 * CAPACITY
WAIT = 4.0  # seconds: the bound of the predicted wait
SECONDS = 300.0
PROBE = 0.02  # seconds between two status requests
SETTINGS = f"[admission]\nwait = {WAIT}\nbacklog = 1000\nlag = 0.5\n"


@app.job()
def nap(ctx: Context) -> None:
    time.sleep(SLEEP)


@dataclass
class Report:
    idle: list[float] = field(default_factory=list)  # seconds of status requests
    loaded: list[float] = field(default_factory=list)
    accepted: int = 0
    refused: int = 0
    other: int = 0  # responses that are neither
    unfinished: int = 0
    growth: float = 0.0  # MiB
    recovery: float = 0.0  # seconds
    promised: float = 0.0  # seconds of Retry-After at the end of the load
    real: float = 0.0  # seconds until a job was accepted again


def p99(seconds: list[float]) -> float:
    return statistics.quantiles(seconds, n=100)[98]


def measure(folder: Path) -> list[Line]:
    found = asyncio.run(trial(folder, SECONDS))
    ratio = p99(found.loaded) / p99(found.idle)
    shown = f"{p99(found.loaded) * 1000:.2f} ms, idle {p99(found.idle) * 1000:.2f} ms"
    sent = found.accepted + found.refused
    off = max(found.promised, found.real) / max(1.0, min(found.promised, found.real))
    return [
        Line(
            "overload: accepted jobs that did not end",
            found.unfinished,
            "≤",
            0,
            "",
            f"{found.accepted} of {sent}",
        ),
        Line("overload: refused, of all submitted jobs", found.refused / sent, "≥", 0.8, ""),
        Line("overload: other responses", found.other, "≤", 0, ""),
        Line("overload: p99 of status, of idle", ratio, "≤", 3, "×", shown),
        Line("overload: memory above idle", found.growth, "≤", 100, "MiB"),
        Line("overload: until a new job has run", found.recovery, "≤", 10, "s"),
        Line(
            "overload: Retry-After, of the real wait",
            off,
            "≤",
            2,
            "×",
            f"{found.promised:g} s, {found.real:.1f} s",
        ),
    ]


async def trial(folder: Path, seconds: float) -> Report:
    settings = folder / "bide.toml"
    settings.write_text(SETTINGS, encoding="utf-8")
    env = {"BIDE_CONFIG": str(settings), "TMPDIR": str(folder)}
    service = ServiceProcess(folder, TARGET, workers=CHILDREN, env=env)
    service.start()
    try:
        service.until_ready()
        async with aiohttp.ClientSession(service.url) as session:
            return await _overload(service, session, folder / "accepted", seconds)
    finally:
        service.stop()


async def _overload(
    service: ServiceProcess, session: aiohttp.ClientSession, ids: Path, seconds: float
) -> Report:
    report = Report()
    for _ in range(10):  # so that the duration is known
        _, job = await _submit(session, wait=10)
    status = job["links"]["self"]
    await _probe(session, status, [], 1.0)
    await _probe(session, status, report.idle, max(3.0, seconds / 20))
    quiet = _memory(service)
    load = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.chaos.overload", service.url, str(seconds), str(ids)),
        stdout=asyncio.subprocess.PIPE,
    )
    highest = quiet
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        await _probe(session, status, report.loaded, 1.0)
        highest = max(highest, _memory(service))
    output, _ = await load.communicate()
    over = time.monotonic()
    report.growth = (highest - quiet) / 2**20
    report.__dict__.update(json.loads(output))
    await _recover(session, report, over)
    accepted = ids.read_text(encoding="utf-8").split()
    report.accepted = len(accepted)
    report.unfinished = await _unfinished(session, accepted)
    return report


async def _recover(session: aiohttp.ClientSession, report: Report, over: float) -> None:
    # A high priority is accepted for longer, so that a low one is refused for a known time.
    while (await _submit(session, priority=1))[0] == 202:
        pass
    begun = time.monotonic()
    while True:
        code, body = await _submit(session, priority=-1)
        if code == 202:
            break
        report.promised = report.promised or float(body["retryAfter"])
        await asyncio.sleep(0.05)
    report.real = time.monotonic() - begun
    while True:  # until a job starts at once
        sent = time.monotonic()
        code, body = await _submit(session, wait=10)
        if code == 200 and time.monotonic() - sent < 1.0:
            break
        await asyncio.sleep(0.1)
    report.recovery = time.monotonic() - over


async def _unfinished(session: aiohttp.ClientSession, accepted: list[str]) -> int:
    left = 0
    for begin in range(0, len(accepted), 100):
        some = accepted[begin : begin + 100]
        async with session.get("/jobs", params=[("id", one) for one in some]) as answer:
            jobs = (await answer.json())["jobs"]
        left += len(some) - sum(job["status"] == "DONE" for job in jobs)
    return left


async def _probe(
    session: aiohttp.ClientSession, status: str, taken: list[float], seconds: float
) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        begun = time.perf_counter()
        async with session.get(status) as answer:
            assert answer.status == 200
            await answer.read()
        taken.append(time.perf_counter() - begun)
        await asyncio.sleep(PROBE)


async def _submit(
    session: aiohttp.ClientSession, wait: int = 0, priority: int = 0
) -> tuple[int, dict[str, Any]]:
    headers = {"Prefer": f"wait={wait}"} if wait else {}
    body = {"kind": "nap", "priority": priority}
    async with session.post("/jobs", json=body, headers=headers) as answer:
        return answer.status, await answer.json()


def _memory(service: ServiceProcess) -> int:
    """Bytes of the service without its children."""
    (pid,) = service.pids
    for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0


async def _load(url: str, seconds: float, ids: Path) -> None:
    counts = {"refused": 0, "other": 0}
    accepted: list[str] = []

    async def send(session: aiohttp.ClientSession) -> None:
        status, body = await _submit(session)
        if status == 202:
            accepted.append(body["jobId"])
        elif status == 503 and body["code"] == "overloaded":
            counts["refused"] += 1
        else:
            counts["other"] += 1

    async with aiohttp.ClientSession(url) as session, asyncio.TaskGroup() as group:
        begun = time.monotonic()
        for number in range(int(seconds * LOAD)):
            await asyncio.sleep(max(0.0, begun + number / LOAD - time.monotonic()))
            group.create_task(send(session))
    ids.write_text("\n".join(accepted), encoding="utf-8")
    print(json.dumps(counts))


if __name__ == "__main__":
    asyncio.run(_load(sys.argv[1], float(sys.argv[2]), Path(sys.argv[3])))
