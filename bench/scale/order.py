"""What it costs that event numbers are in commit order: processes that each commit one job at a time, with the lock of
the event log and without it.
"""

from __future__ import annotations

import asyncio
import os
import time
from multiprocessing import get_context
from pathlib import Path

from bench.scale.postgres import postgres
from bench.service.load import Samples
from bench.service.table import Line
from bide.core.record import Job
from bide.core.wire import job_id
from bide.server.store import NewJob, postgres_work
from bide.server.store.postgres import PostgresStore

SECONDS = 3.0
WRITERS = (1, 4, 12)


def measure(folder: Path, rounds: int) -> list[Line]:
    samples = Samples()
    with postgres(str(folder)) as server:
        asyncio.run(_write(server.url, 0.1, True, 1))
        for _ in range(rounds):
            for writers in WRITERS:
                for name, locked in (("locked", True), ("free", False)):
                    samples.add(f"{name} {writers}", _together(server.url, writers, locked))
    return [
        Line(
            f"inserts a second of {n} processes, one a commit, in commit order : in any order",
            samples.ratio(f"locked {n}", f"free {n}"),
            "≥",
            0.5,
            detail=f"{samples[f'locked {n}']:.0f} : {samples[f'free {n}']:.0f} /s",
        )
        for n in WRITERS
    ]


def _together(url: str, writers: int, locked: bool) -> float:
    """Inserts a second of all of them."""
    context = get_context("spawn")
    with context.Pool(writers) as pool:
        return sum(pool.starmap(_writer, [(url, SECONDS, locked)] * writers))


def _writer(url: str, seconds: float, locked: bool) -> float:
    return asyncio.run(_write(url, seconds, locked, 1))


async def _write(url: str, seconds: float, locked: bool, at_once: int) -> float:
    if not locked:
        postgres_work.LOCK_LOG = "SELECT 1"
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
