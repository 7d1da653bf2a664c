"""The cost of concurrency keys: a claim of jobs with 10,000 different keys, against jobs without a limit."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from statistics import median

from msgspec.structs import replace

from bench.identities.fair import CLAIMS, SIZES, fill, new_job, two_stores
from bench.service.load import Samples
from bench.service.table import Line
from bide.server.store import ClaimRequest, Store

KEYS = 10_000
LIMITS = {"noop": 5}


def measure(folder: Path, rounds: int) -> list[Line]:
    lines = []
    for name in ("SQLite", "PostgreSQL"):
        samples = Samples()
        for number in range(rounds):
            here = folder / f"{name}-{number}"
            here.mkdir()
            here.chmod(0o755)
            with two_stores(name, here) as stores:
                for what, seconds in asyncio.run(_measure(*stores)).items():
                    samples.add(what, seconds)
        for size in SIZES:
            free, keyed = samples[f"free {size}"], samples[f"keyed {size}"]
            what = f"a claim of {size}, {KEYS} concurrency keys : none, {name}"
            detail = f"{1e6 * keyed:.0f} : {1e6 * free:.0f} µs"
            lines.append(Line(what, keyed / free, "≤", 1.2, detail=detail))
    return lines


async def _measure(free: Store, keyed: Store) -> dict[str, float]:
    """Seconds per claim, of both stores in turns."""
    stores = {"free": free, "keyed": keyed}
    for which, store in stores.items():
        await store.open(lambda events: None)
        new = [new_job("-") for _ in range(KEYS)]
        if which == "keyed":
            new = [
                replace(one, job=replace(one.job, concurrency_key=f'noop - ["{number}"]'))
                for number, one in enumerate(new)
            ]
        await fill(store, new)
    found: dict[str, list[float]] = {}
    for size in SIZES:
        for number in range(CLAIMS):
            for which, store in sorted(stores.items(), reverse=number % 2 == 0):
                limits = LIMITS if which == "keyed" else {}
                request = ClaimRequest("default", ("noop",), size, concurrency=limits)
                begin = time.perf_counter()
                claimed = await store.claim("w", [request], size, 30.0)
                found.setdefault(f"{which} {size}", []).append(time.perf_counter() - begin)
                if len(claimed) != size:
                    raise RuntimeError(f"claimed {len(claimed)} jobs instead of {size}")
    for store in stores.values():
        await store.close()
    return {what: median(seconds) for what, seconds in found.items()}
