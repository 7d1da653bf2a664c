"""The cost of concurrency keys: a claim of jobs with 10,000 different keys, against jobs without a limit."""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median

from msgspec.structs import replace

from bench.identities.fair import CLAIMS, SIZES, compare_claims, fill, new_job
from bench.service.table import Line
from bide.server.store import ClaimRequest, Store

KEYS = 10_000
LIMITS = {"noop": 5}


def measure(folder: Path, rounds: int) -> list[Line]:
    what = f"{KEYS} concurrency keys : none"
    return compare_claims(folder, rounds, _measure, ("free", "keyed"), what)


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
