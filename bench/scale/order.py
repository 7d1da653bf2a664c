"""The cost of event numbers in commit order: processes that each commit one job at a time, with the lock of the event log,
without it, and without its notifications too. And the gain of several jobs per commit.
"""

from __future__ import annotations

import asyncio
import os
import time
from multiprocessing import get_context
from pathlib import Path

from tests.servers.postgres import postgres

from bench.service.load import Samples
from bench.service.table import Line
from bide.core.jobs.record import Job
from bide.core.wire.http import job_id
from bide.server.store import NewJob
from bide.server.store.postgres import transaction
from bide.server.store.postgres.store import PostgresStore

SECONDS = 3.0
WRITERS = (1, 4, 8)
AT_ONCE = 20
WAYS = ("as it is", "no lock", "no lock, no word")


def measure(folder: Path, rounds: int) -> list[Line]:
    samples = Samples()
    with postgres(str(folder)) as server:
        asyncio.run(_write(server.url, 0.1, WAYS[0], 1))
        for _ in range(rounds):
            for writers in WRITERS:
                for way in WAYS:
                    samples.add(f"{way} {writers}", _together(server.url, writers, way, 1))
            samples.add("many", _together(server.url, WRITERS[-1], WAYS[0], AT_ONCE))
    lines = []
    for n in WRITERS:
        ratio = samples.ratio(f"as it is {n}", f"no lock {n}")
        figures = " : ".join(f"{samples[f'{way} {n}']:.0f}" for way in WAYS)
        what = f"inserts of {n} processes, one per commit, in commit order : in any order"
        lines.append(
            Line(what, ratio, "≥", 0.5, detail=f"{figures} /s, the last of them without word to others")
        )
    one = samples[f"as it is {WRITERS[-1]}"]
    what = f"the same, {AT_ONCE} at a time : one at a time"
    lines.append(
        Line(what, samples["many"] / one, "≥", 3, detail=f"{samples['many']:.0f} : {one:.0f} /s")
    )
    return lines


def _together(url: str, writers: int, way: str, at_once: int) -> float:
    """Inserts per second of all processes."""
    with get_context("spawn").Pool(writers) as pool:
        return sum(pool.starmap(_writer, [(url, SECONDS, way, at_once)] * writers))


def _writer(url: str, seconds: float, way: str, at_once: int) -> float:
    return asyncio.run(_write(url, seconds, way, at_once))


async def _write(url: str, seconds: float, way: str, at_once: int) -> float:
    if way != WAYS[0]:
        transaction.LOCK_LOG = "SELECT 1"
    if way == WAYS[2]:
        transaction.EVENTS = transaction.EVENTS.replace("pg_notify(%s,", "concat(%s::text,")
    store = PostgresStore(url)
    await store.open(lambda events: None)
    done, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < seconds:
        now = store.now()
        jobs = [
            Job(job_id(now, os.urandom(16)), "noop", "default", now, now, due=now)
            for _ in range(at_once)
        ]
        await asyncio.gather(*(store.insert([NewJob(job, b"{}")]) for job in jobs))
        done += at_once
    took = time.perf_counter() - begin
    await store.close()
    return done / took
