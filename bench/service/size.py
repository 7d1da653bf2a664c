"""A store with 100,000 finished and 10,000 waiting jobs against one that is nearly empty."""

from __future__ import annotations

import asyncio
import random
import shutil
import socket
import time
from pathlib import Path

from bench.service import filling, servers
from bench.service.load import Samples, asking, wrk
from bench.service.table import Line
from bide.server.store import ClaimRequest
from bide.server.store.sqlite.store import SqliteStore

FINISHED, WAITING = 100_000, 10_000
FEW = 2000  # in the nearly empty store: enough to be read and claimed
PIPELINED = 16  # requests that the service accepts at once
ASKED, CLAIMS = 5000, 300
SECONDS = 2


def measure(folder: Path, rounds: int) -> list[Line]:
    empty, full = folder / "empty", folder / "full"
    filling.fill(empty, FEW, FEW)
    filling.fill(full, FINISHED, WAITING)
    samples = Samples()
    for n in range(rounds):
        for name, source in (("empty", empty), ("full", full)):
            copy = folder / f"{name}-{n}"
            shutil.copytree(source, copy)
            figures = asyncio.run(_in_process(copy / "data" / "bide.db"))
            for what, value in figures.items():
                samples.add(f"{name} {what}", value)
            shutil.rmtree(copy)
    _over_http(folder, empty, full, rounds, samples)
    lines = [
        _times("GET /jobs/{id}, not cached, CPU time", samples, "first", "µs"),
        _times("SqliteStore.claim, with its commit", samples, "claim", "µs"),
        _times("SqliteStore.claim, CPU time", samples, "claim cpu", "µs"),
        # Responses per second: more with the empty store.
        Line(
            "GET /jobs/{id} : of an empty store",
            samples.ratio("empty http", "full http"),
            "≤",
            1.3,
            detail=f"{samples['full http']:.0f} : {samples['empty http']:.0f} answers/s",
        ),
    ]
    growth = samples["full memory"] - samples["empty memory"]
    detail = f"{samples['full memory']:.0f} - {samples['empty memory']:.0f} MB resident"
    return [*lines, Line("memory by which the service is larger", growth, "≤", 100, "MB", detail)]


def _times(what: str, samples: Samples, name: str, unit: str) -> Line:
    full, empty = f"full {name}", f"empty {name}"
    detail = f"{samples[full]:.1f} : {samples[empty]:.1f} {unit}"
    return Line(f"{what} : of an empty store", samples.ratio(full, empty), "≤", 1.3, detail=detail)


async def _in_process(database: Path) -> dict[str, float]:
    """Microseconds per call."""
    store = SqliteStore(database)
    await store.open(lambda events: None)
    try:
        await store.pause("default", False)
        want = ClaimRequest("default", ("noop",), 1)
        begin, cpu = time.perf_counter(), time.process_time()
        for _ in range(CLAIMS):
            claims = await store.claim("bench", [want], 1, 60.0)
            if len(claims) != 1:
                raise RuntimeError("there was nothing to claim")
        claim, claim_cpu = time.perf_counter() - begin, time.process_time() - cpu
    finally:
        await store.close()
    return {
        "claim": claim / CLAIMS * 1e6,
        "claim cpu": claim_cpu / CLAIMS * 1e6,
    }


def _first(site: servers.Site, ids: list[str]) -> float:
    """Microseconds of the service's CPU per status; each job is requested once.

    The requests are pipelined: waking an idle core for each of them would cost more CPU time than the status, and up to
    three times as much from one second to the next.
    """
    requests = (f"GET /jobs/{job_id} HTTP/1.1\r\nHost: localhost\r\n\r\n" for job_id in ids)
    before, received = site.cpu(), b""
    with socket.create_connection((servers.HOST, site.port)) as connection:
        connection.sendall("".join(requests).encode())
        while received.count(b"HTTP/1.1 200") < len(ids) or not received.endswith(b"}"):
            more = connection.recv(1 << 20)
            if not more:
                raise RuntimeError("a job could not be requested")
            received += more
    return (site.cpu() - before) / len(ids) * 1e6


def _over_http(folder: Path, empty: Path, full: Path, rounds: int, samples: Samples) -> None:
    with servers.bide(empty) as small, servers.bide(full) as large:
        asked = []
        for name, site, home in (("empty", small, empty), ("full", large, full)):
            ids = filling.finished_ids(home / "data" / "bide.db", FEW, random.Random(2))
            asked.append((name, site, ids, asking(folder / f"{name}.lua", ids)))
        # The speed of a virtual machine changes from second to second, so the two services alternate.
        for start in range(0, FEW - PIPELINED, PIPELINED):
            for name, site, ids, _ in asked:
                samples.add(f"{name} first", _first(site, ids[start : start + PIPELINED]))
        for _ in range(rounds):
            for name, site, _, script in asked:
                samples.add(f"{name} http", wrk(site.url, SECONDS, script=script))
        for name, site, home in (("empty", small, empty), ("full", large, full)):
            ids = filling.finished_ids(home / "data" / "bide.db", ASKED, random.Random(3))
            wrk(site.url, SECONDS, script=asking(folder / f"{name}-all.lua", ids))
            samples.add(f"{name} memory", site.memory())
