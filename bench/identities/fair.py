"""Fair sharing: the cost of a claim with many tenants, the delay that a tenant with many jobs causes for another one, and
the throughput of both together. Jobs are stored directly, with their tenants.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from tests.servers.postgres import Postgres

from bench.service.load import Samples
from bench.service.table import Line
from bench.usage import cpu_of_all
from bide.core.clock import SystemClock
from bide.core.jobs.fair import Weights
from bide.core.jobs.record import Job, Status
from bide.core.wire.http import job_id
from bide.server.config import Config, StoreConfig, WorkerConfig
from bide.server.runner.slots import MAX_DEPTH
from bide.server.store import ClaimRequest, Filter, NewJob, Store
from bide.server.store.postgres.store import PostgresStore
from bide.server.store.sqlite.store import SqliteStore
from bide.testing.engine.harness import EngineHarness

TENANTS = 10_000
SIZES = (1, 16)  # jobs per claim
CLAIMS = 150  # per size and round
FLOOD, LABELS = 100_000, 1000
CHILDREN, TRIES, DRAINED = 2, 10, 8000
BATCH = 2000


def new_job(tenant: str, kind: str = "noop", input: bytes = b'{"n":1}', label: str = "") -> NewJob:
    now = time.time()
    labels = {"of": label} if label else {}
    fields = {"created_at": now, "updated_at": now, "due": now, "tenant": tenant, "labels": labels}
    return NewJob(Job(job_id(now, random.randbytes(16)), kind, "default", **fields), input)  # type: ignore[arg-type]


async def fill(store: Store, new: Sequence[NewJob]) -> None:
    for begin in range(0, len(new), BATCH):
        await store.insert(new[begin : begin + BATCH])


# --- the cost of a claim


def claims(folder: Path, rounds: int) -> list[Line]:
    return compare_claims(folder, rounds, _measure_claims, ("one", "many"), f"{TENANTS} tenants : one")


def compare_claims(
    folder: Path,
    rounds: int,
    measure: Callable[[Store, Store], Coroutine[Any, Any, dict[str, float]]],
    names: tuple[str, str],
    what: str,
) -> list[Line]:
    """The seconds of claims from the second of two stores, beside the first. `measure` returns them by the name of the store
    and the size of the claim.
    """
    lines = []
    for store in ("SQLite", "PostgreSQL"):
        samples = Samples()
        for number in range(rounds):
            here = folder / f"{store}-{number}"
            here.mkdir()
            here.chmod(0o755)
            with two_stores(store, here) as stores:
                for name, seconds in asyncio.run(measure(*stores)).items():
                    samples.add(name, seconds)
        for size in SIZES:
            base, other = (samples[f"{name} {size}"] for name in names)
            detail = f"{1e6 * other:.0f} : {1e6 * base:.0f} µs"
            title = f"a claim of {size}, {what}, {store}"
            lines.append(Line(title, other / base, "≤", 1.2, detail=detail))
    return lines


@contextmanager
def two_stores(name: str, folder: Path) -> Iterator[tuple[Store, Store]]:
    if name == "SQLite":
        for which in ("one", "many"):
            (folder / which).mkdir()
        yield (
            SqliteStore(folder / "one" / "bide.db", SystemClock()),
            SqliteStore(folder / "many" / "bide.db", SystemClock()),
        )
        return
    server = Postgres(str(folder))
    try:
        yield (
            PostgresStore(f"{server.url}?schema=one"),
            PostgresStore(f"{server.url}?schema=many"),
        )
    finally:
        server.end()


async def _measure_claims(one: Store, many: Store) -> dict[str, float]:
    """Seconds per claim, of both stores in turns."""
    stores = {"one": one, "many": many}
    for which, store in stores.items():
        await store.open(lambda events: None)
        names = ["only"] if which == "one" else [f"tenant-{n:05}" for n in range(TENANTS)]
        await fill(store, [new_job(name) for name in names * (TENANTS // len(names))])
    found: dict[str, list[float]] = {}
    for size in SIZES:
        for number in range(CLAIMS):
            for which, store in sorted(stores.items(), reverse=number % 2 == 0):
                request = ClaimRequest("default", ("noop",), size)
                begin = time.perf_counter()
                claimed = await store.claim("w", [request], size, 30.0)
                found.setdefault(f"{which} {size}", []).append(time.perf_counter() - begin)
                if len(claimed) != size:
                    raise RuntimeError(f"claimed {len(claimed)} jobs instead of {size}")
    for store in stores.values():
        await store.close()
    return {what: median(seconds) for what, seconds in found.items()}


# --- a tenant with many jobs


@asynccontextmanager
async def _service(folder: Path) -> AsyncIterator[EngineHarness]:
    config = Config(data=folder, store=StoreConfig(), worker=WorkerConfig(workers=CHILDREN))
    harness = EngineHarness("bench.service.app", config)
    await harness.start()
    try:
        await harness.ready()
        yield harness
    finally:
        await harness.service.stop(0.0)


def floods(folder: Path) -> list[Line]:
    lines = []
    for labels in (1, LABELS):
        for kind, input_, depth in (
            ("noop", b'{"n":1}', MAX_DEPTH),
            ("nap", b'{"seconds":0.01}', 1),
        ):
            most = asyncio.run(_flood(folder / f"{kind}-{labels}", kind, input_, labels))
            detail = f"the most of {TRIES} tries; {CHILDREN} children that hold up to {depth}"
            what = f"jobs of A that start before B's, {kind}, {labels} labels"
            lines.append(Line(what, most, "≤", CHILDREN * depth, "jobs", detail))
    return lines


async def _flood(folder: Path, kind: str, input_: bytes, labels: int) -> int:
    """The most jobs of A that started between a submission of B and its start."""
    most = 0
    async with _service(folder) as harness:
        store = harness.store
        await store.pause("default", True)
        await fill(store, [new_job("a", kind, input_, f"l{n % labels}") for n in range(FLOOD)])
        await store.pause("default", False)
        harness.service.hint("default", kind)
        await asyncio.sleep(1.0)  # the depth of the prefetch is learned
        for number in range(TRIES):
            new = new_job(f"b{number}", kind, input_)
            storing = store.insert([new])
            harness.service.hint("default", kind)
            await storing
            job = await harness.until(new.job.id, lambda job: job.started_at is not None)
            assert job.started_at is not None
            newest = await store.find(Filter(tenant="a", status=frozenset({Status.DONE}), limit=1))
            waiting = await store.find(Filter(tenant="a", status=frozenset({Status.PENDING}), limit=1))
            if not newest or not waiting:
                raise RuntimeError("A has no waiting jobs any more, so the figure is meaningless")
            between = await _started(harness, new.job.created_at, job.started_at)
            most = max(most, between)
            await asyncio.sleep(0.1)
        await store.pause("default", True)
    return most


async def _started(harness: EngineHarness, begin: float, end: float) -> int:
    """How many jobs of A started in that time."""
    found = await harness.store.rows(  # type: ignore[attr-defined]
        "SELECT count(*) FROM jobs WHERE tenant = ? AND started_at > ? AND started_at < ?",
        ("a", begin, end),
        reads="table",
    )
    return int(found[0][0])


# --- both together


def throughput(folder: Path, rounds: int) -> list[Line]:
    """CPU time per job, because the rate depends on the disk. Unfair claims start up to 1,000 jobs of a tenant in a row."""
    samples = Samples()
    mixes = {"two": ["a"] * 9 + ["b"], "many": [f"t{n}" for n in range(1000)]}
    for number in range(rounds):
        for what, names in mixes.items():
            for fair in (True, False) if number % 2 else (False, True):
                here = folder / f"{what}-{fair}-{number}"
                samples.add(f"{what} {fair}", asyncio.run(_drain(here, names, fair=fair)))
    return [
        Line(
            f"throughput per CPU time, {name}, fair : unfair",
            samples.ratio(f"{what} False", f"{what} True"),
            "≥",
            0.97,
            detail=f"{1e6 * samples[f'{what} True']:.0f} : {1e6 * samples[f'{what} False']:.0f} µs per job",
        )
        for what, name in (("two", "two tenants"), ("many", "1,000 tenants"))
    ]


async def _drain(folder: Path, tenants: Sequence[str], *, fair: bool) -> float:
    """CPU seconds per job, with those of the children."""
    async with _service(folder) as harness:
        store = harness.store
        if not fair:
            store.share_by(Weights(1.0, dict.fromkeys(tenants, 1000.0)))
        used = 0.0
        for jobs in (DRAINED // 4, DRAINED):  # the first is a warm-up
            await store.pause("default", True)
            await fill(store, [new_job(tenants[n % len(tenants)]) for n in range(jobs)])
            begin = cpu_of_all(os.getpid())
            await store.pause("default", False)
            harness.service.hint("default", "noop")
            while any(queue.waiting or queue.running for queue in await store.queues()):
                await asyncio.sleep(0.05)
            used = (cpu_of_all(os.getpid()) - begin) / jobs
        return used
