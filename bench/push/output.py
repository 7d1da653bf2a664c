"""50 asynchronous jobs that emit 100 chunks per second each: every chunk is read once, in order."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import aiohttp

from bench.push.sites import APP, run, submit
from bench.service import servers
from bench.service.table import Line

JOBS = 50
RATE = 100  # chunks per second of each job


def measure(folder: Path, seconds: int) -> list[Line]:
    with servers.bide(folder / "bide", app=APP) as site:
        found = run(_read_all(site, seconds))
    expected = list(range(seconds * RATE))
    wrong = sum(numbers != expected for numbers in found)
    chunks = sum(map(len, found))
    detail = f"{chunks} of {JOBS * len(expected)} chunks read"
    what = f"{JOBS} jobs with {RATE} chunks per second for {seconds} s: streams with a gap or a repeat"
    return [Line(what, wrong, "≤", 0, "", detail)]


async def _read_all(site: servers.Site, seconds: int) -> list[list[int]]:
    jobs = [submit(site, "talk", seconds=seconds, rate=RATE) for _ in range(JOBS)]
    timeout = aiohttp.ClientTimeout(total=3 * seconds + 60)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(site.url, timeout=timeout, connector=connector) as session:
        return list(await asyncio.gather(*(_read(session, job) for job in jobs)))


async def _read(session: aiohttp.ClientSession, job_id: str) -> list[int]:
    """The numbers that a stream returns until its end."""
    numbers: list[int] = []
    name = b""
    headers = {"Accept": "text/event-stream"}
    async with session.get(f"/jobs/{job_id}/stream", headers=headers) as answer:
        answer.raise_for_status()
        async for line in answer.content:
            if line.startswith(b"event: "):
                name = line[7:].strip()
            elif line.startswith(b"data: ") and name == b"output":
                numbers.append(json.loads(line[6:])["job"]["output"]["n"])
    if name != b"end":
        raise RuntimeError(f"the stream of job {job_id} was interrupted after {len(numbers)} chunks")
    return numbers
