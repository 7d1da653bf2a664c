"""Claim and status with many finished jobs against a database that is nearly empty. BIDE_BENCH_ROWS says how many."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from bench.scale import filling
from bench.scale.postgres import Postgres, postgres
from bench.service.load import Samples
from bench.service.table import Line
from bide.server.store.postgres import PostgresStore

ROWS = int(os.environ.get("BIDE_BENCH_ROWS", "1000000"))
FEW = 2000  # in the one that counts as empty: enough to be asked for and claimed
WAITING = 20_000
CALLS = 300


def measure(folder: Path, rounds: int) -> list[Line]:
    samples = Samples()
    # Without the wait for the disk, which would be most of it and the same for both.
    large = ("shared_buffers=256MB", "max_wal_size=8GB", "fsync=off")
    with postgres(str(folder), settings=large) as empty, postgres(str(folder), settings=large) as full:
        begin = time.monotonic()
        filling.fill(empty.url, FEW, WAITING)
        filling.fill(full.url, ROWS, WAITING)
        print(f"{ROWS:,} rows took {time.monotonic() - begin:.0f} s to make", flush=True)
        for _ in range(rounds):
            for name, server in (("empty", empty), ("full", full)):
                for what, value in asyncio.run(_figures(server)).items():
                    samples.add(f"{name} {what}", value)
    return [_times(f"{what} at {ROWS:,} rows", samples, what) for what in ("claim", "settle", "status")]


async def _figures(server: Postgres) -> dict[str, float]:
    """Microseconds a call, one at a time."""
    ids = filling.some_ids(server.url, 2 * CALLS)
    store = PostgresStore(server.url)
    await store.open(lambda events: None)
    try:
        await store.get(ids[CALLS:])  # connected, prepared, and the upper pages of the index are there
        begin = time.perf_counter()
        for job_id in ids[:CALLS]:
            await store.get([job_id])
        status = time.perf_counter() - begin
        begin, claims = time.perf_counter(), []
        for _ in range(CALLS):
            claims += await store.claim("bench", [filling.WANT], 1, 60.0)
        claim = time.perf_counter() - begin
        if len(claims) != CALLS:
            raise RuntimeError("there was nothing to claim")
        begin = time.perf_counter()
        for one in claims:
            await store.apply([filling.succeeded(one.job)])
        settle = time.perf_counter() - begin
    finally:
        await store.close()
    return {
        name: took / CALLS * 1e6
        for name, took in (("claim", claim), ("settle", settle), ("status", status))
    }


def _times(what: str, samples: Samples, name: str) -> Line:
    full, empty = f"full {name}", f"empty {name}"
    detail = f"{samples[full]:.0f} : {samples[empty]:.0f} µs"
    return Line(f"{what} : of an empty table", samples.ratio(full, empty), "≤", 1.5, detail=detail)
