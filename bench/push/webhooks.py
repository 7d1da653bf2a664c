"""10,000 webhook deliveries to a receiver that does nothing, against a bare aiohttp loop that posts to it, one by one."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import aiohttp

from bench.push.sites import push_site, run
from bench.service import servers
from bench.service.load import Samples
from bench.service.table import Line, not_run

DELIVERIES = 10_000
BATCH = 1000
BODY = json.dumps({"type": "job.status", "timestamp": "", "data": {"job": {}, "x": "x" * 300}})
TIMEOUT = 300.0
WHAT = f"{DELIVERIES} webhook deliveries : bare aiohttp loop"


def measure(folder: Path, rounds: int) -> list[Line]:
    with push_site(folder / "look") as site:
        if "/webhooks" not in site.ask("GET", "/openapi.json").json()["paths"]:
            return [not_run(WHAT, "this service has no webhooks")]
    samples = Samples()
    with servers.python_site(sys.executable, "receiver", folder, package="bench.push") as receiver:
        for number in range(rounds):
            here = folder / f"round-{number}"
            with push_site(here, "--webhooks-allow-private") as site:
                samples.add("bide", DELIVERIES / _deliver(site, receiver))
            samples.add("bare", DELIVERIES / run(_post(receiver)))
    detail = f"{samples['bide']:.0f} : {samples['bare']:.0f} per second"
    return [Line(WHAT, samples.ratio("bide", "bare"), "≥", 0.3, detail=detail)]


def _deliver(site: servers.Site, receiver: servers.Site) -> float:
    """Seconds from the first submission until the receiver has an event of each job."""
    site.ask("POST", "/webhooks", {"url": f"{receiver.url}/hook", "events": ["status"]})
    wanted = _count(receiver) + DELIVERIES
    begin = time.perf_counter()
    for start in range(0, DELIVERIES, BATCH):
        jobs = [{"kind": "noop", "input": {"n": n}} for n in range(start, start + BATCH)]
        site.ask("POST", "/jobs/batch", {"jobs": jobs})
    while (count := _count(receiver)) < wanted:
        if time.perf_counter() - begin > TIMEOUT:
            raise RuntimeError(f"{wanted - count} of {DELIVERIES} deliveries are missing")
        time.sleep(0.02)
    return time.perf_counter() - begin


def _count(receiver: servers.Site) -> int:
    return int(receiver.ask("GET", "/").body)


async def _post(receiver: servers.Site) -> float:
    begin = time.perf_counter()
    headers = {"Content-Type": "application/json"}
    async with aiohttp.ClientSession(headers=headers) as session:
        for _ in range(DELIVERIES):
            async with session.post(f"{receiver.url}/hook", data=BODY) as answer:
                await answer.read()
    return time.perf_counter() - begin
