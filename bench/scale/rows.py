"""Claim, settle and status with many finished jobs against a database that is nearly empty. `--rows` says how many.

The table is in memory, so that the figures show the access to a row and not the disk. The time of the first requests, which
may read pages from the disk, is printed too.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable
from pathlib import Path
from statistics import median
from typing import TypeVar

from tests.servers.postgres import Postgres, postgres

from bench.scale import filling
from bench.service.table import Line
from bide.server.store.postgres.store import PostgresStore

T = TypeVar("T")
ROWS = 1_000_000
FEW = 5000  # in the nearly empty one: enough to be read and claimed
WAITING = 20_000
CALLS = 300


def measure(folder: Path, rounds: int, rows: int = ROWS) -> list[Line]:
    # Without the wait for the disk, which would dominate and be the same for both.
    large = ("shared_buffers=256MB", "max_wal_size=8GB", "fsync=off")
    with postgres(str(folder), settings=large) as empty, postgres(str(folder), settings=large) as full:
        begin = time.monotonic()
        filling.fill(empty.url, FEW, WAITING)
        filling.fill(full.url, rows, WAITING)
        size = filling.size(full.url)
        print(
            f"{rows:,} rows took {time.monotonic() - begin:.0f} s to make; {size / rows:.0f} bytes each, "
            "with input, events and indexes",
            flush=True,
        )
        taken = asyncio.run(_calls({"empty": empty, "full": full}, CALLS * rounds))
    cold, begun = (median(taken[f"{name} cold"]) for name in ("full", "empty"))
    print(f"status right after filling, from memory or disk: {cold:.0f} : {begun:.0f} µs")
    return [_times(f"{what} at {rows:,} rows", taken, what) for what in ("claim", "settle", "status")]


async def _calls(servers: dict[str, Postgres], calls: int) -> dict[str, list[float]]:
    """Microseconds of each call, alternating between the servers, so that other load affects both."""
    stores = {name: PostgresStore(server.url) for name, server in servers.items()}
    ids = {name: filling.some_ids(server.url, 3 * calls) for name, server in servers.items()}
    taken: dict[str, list[float]] = defaultdict(list)
    for name, store in stores.items():
        await store.open(lambda events: None)
        # Connects, prepares the statements, and loads the upper pages of the index.
        await store.get(ids[name][2 * calls :])

    async def timed(what: str, call: Awaitable[T]) -> T:
        begin = time.perf_counter()
        answer = await call
        taken[what].append((time.perf_counter() - begin) * 1e6)
        return answer

    for n in range(calls, 2 * calls):
        for name, store in stores.items():
            await timed(f"{name} cold", store.get([ids[name][n]]))
    for server in servers.values():
        filling.warm(server.url)
    for n in range(calls):
        for name, store in stores.items():
            await timed(f"{name} status", store.get([ids[name][n]]))
            (claim,) = await timed(f"{name} claim", store.claim("bench", [filling.WANT], 1, 60.0))
            await timed(f"{name} settle", store.apply([filling.succeeded(claim.job)]))
    for store in stores.values():
        await store.close()
    return taken


def _times(what: str, taken: dict[str, list[float]], name: str) -> Line:
    full, empty = median(taken[f"full {name}"]), median(taken[f"empty {name}"])
    detail = f"{full:.0f} : {empty:.0f} µs"
    return Line(f"{what} : of an empty table", full / empty, "≤", 1.5, detail=detail)
