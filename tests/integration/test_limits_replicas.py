"""Limits that two replicas share, under parallel load and after the crash of one of them."""

from __future__ import annotations

import asyncio
import time
import urllib.error
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from bide.client.client import AsyncClient
from bide.core.errors import Problem, QuotaExceeded
from bide.server.allowances import LEASE
from bide.server.config import LimitsConfig
from bide.server.intake import Intake, Submission
from bide.server.limits import ServiceLimits
from bide.server.store import ClaimRequest
from bide.server.store.postgres.store import PostgresStore
from bide.server.upload_record import Upload, UploadStatus, Way
from bide.testing.clock import ManualClock
from tests.integration.http.service import kinds
from tests.servers.postgres import Postgres
from tests.servers.service import ServiceProcess
from tests.waiting import TIMEOUT

TENANTS = {
    "w": {"waiting": 40},
    "few": {"streams": 40, "uploads": 40, "bytes": 40_000},
    "many": {"streams": 1000, "uploads": 100, "bytes": 10_000_000},
}


class Replica:
    def __init__(self, url: str, clock: ManualClock, **limits: Any) -> None:
        self.store = PostgresStore(url, clock)
        self.limits = ServiceLimits(LimitsConfig.read(limits), self.store, shared=True)
        self._intake = Intake(kinds(), self.store, limits=self.limits)

    async def accepts(self, tenant: str = "a") -> bool:
        try:
            await self._intake.submit(Submission(kind="echo"), trace_id="", tenant=tenant)
        except Problem as problem:
            assert problem.code == "quota-exceeded"
            return False
        return True

    async def opens(self, tenant: str) -> Callable[[], None] | None:
        try:
            return await self.limits.open_stream(tenant)
        except QuotaExceeded:
            return None

    async def begins(self, tenant: str) -> bool:
        """Begin an upload without a size."""
        upload = self._upload(tenant)
        try:
            async with self.limits.upload(upload):
                await self.store.add_upload(upload)
        except QuotaExceeded:
            return False
        return True

    async def stores(self, tenant: str, size: int) -> bool:
        """Receive a file in two parts, as a request does, and store it."""
        try:
            async with self.limits.receiving(tenant) as received:
                await received.add(size // 2)
                await asyncio.sleep(0)
                await received.add(size - size // 2)
                upload = self._upload(tenant, status=UploadStatus.DONE, size=size, received=size)
                await self.store.add_upload(upload)
        except QuotaExceeded:
            return False
        return True

    def _upload(self, tenant: str, **more: Any) -> Upload:
        now = self.store.now()
        return Upload(self._intake.id(now), Way.DIRECT, "a", now, now, tenant=tenant, **more)


@pytest_asyncio.fixture
async def two(postgres: Postgres, tmp_path: Path) -> AsyncIterator[tuple[Replica, Replica, ManualClock]]:
    clock = ManualClock()
    url = f"{postgres.url}?schema=limits{abs(hash(tmp_path))}"
    async with AsyncExitStack() as stack:
        replicas = []
        for _ in range(2):
            replica = Replica(url, clock, submit="100/1m", tenants=TENANTS)
            await replica.store.open(lambda events: None)
            await replica.limits.processes.renew()
            stack.push_async_callback(replica.store.close)
            replicas.append(replica)
        yield replicas[0], replicas[1], clock


async def test_two_replicas_share_the_limits(two: tuple[Replica, Replica, ManualClock]) -> None:
    first, second, clock = two
    for _ in range(2):
        found = await asyncio.gather(*(r.accepts() for _ in range(75) for r in (first, second)))
        assert sum(found) == 100
        clock.advance(61)
    # Two tenants in one transaction of each replica, in another order.
    pairs = [(first, "b"), (second, "c"), (second, "b"), (first, "c")]
    found = await asyncio.gather(*(r.accepts(tenant) for _ in range(60) for r, tenant in pairs))
    assert sum(found) == 200
    found = await asyncio.gather(*(r.accepts("w") for _ in range(50) for r in (first, second)))
    assert sum(found) == 40


async def test_two_replicas_share_the_limit_of_running_jobs(
    two: tuple[Replica, Replica, ManualClock],
) -> None:
    first, second, _ = two
    limits = LimitsConfig.read({"tenants": {"r": {"running": 5}}})
    for replica in (first, second):
        replica.store.share_by(limits.weights, limits.running)
    for _ in range(20):
        assert await first.accepts("r")
    request = [ClaimRequest("default", ("echo",), 2)]
    rounds = [(r, name) for _ in range(4) for r, name in ((first, "one"), (second, "two"))]
    found = await asyncio.gather(*(r.store.claim(name, request, 2, 30.0) for r, name in rounds))
    assert sum(map(len, found)) == 5
    assert {len(claims) for claims in found} <= {0, 1, 2}


async def alternately(
    replicas: Sequence[Replica], times: int, act: Callable[[Replica], Awaitable[Any]]
) -> list[Any]:
    """What many concurrent calls return, half of them at each replica."""
    return await asyncio.gather(*(act(replica) for _ in range(times) for replica in replicas))


@pytest.mark.parametrize("tenant", ["few", "many"])
async def test_two_replicas_share_streams_uploads_and_bytes(
    two: tuple[Replica, Replica, ManualClock], tenant: str
) -> None:
    first, second, clock = two
    most = TENANTS[tenant]
    opened = await alternately((first, second), most["streams"], lambda r: r.opens(tenant))
    closers = [close for close in opened if close is not None]
    assert 0.95 * most["streams"] <= len(closers) <= most["streams"]
    begun = await alternately((first, second), most["uploads"], lambda r: r.begins(tenant))
    clock.advance(1)
    begun += await alternately((first, second), 5, lambda r: r.begins(tenant))
    assert 0.95 * most["uploads"] <= sum(begun) <= most["uploads"]
    size = most["bytes"] // 100
    stored = await alternately((first, second), 100, lambda r: r.stores(tenant, size))
    clock.advance(1)
    stored += await alternately((first, second), 5, lambda r: r.stores(tenant, size))
    assert 0.95 * 100 <= sum(stored) <= 100
    assert await first.store.stored_bytes(tenant) == sum(stored) * size

    # Streams that one replica closes, the other one can open.
    for close in closers[: most["streams"] // 2]:
        close()
    used = len(closers) - most["streams"] // 2
    async with asyncio.timeout(TIMEOUT):  # the first one returns its share in a moment
        while used < 0.95 * most["streams"]:
            used += await second.opens(tenant) is not None
            await asyncio.sleep(0)
    while await second.opens(tenant) is not None:
        used += 1
    assert used <= most["streams"]

    # Uploads that end, and bytes that are removed, make room on both replicas.
    for upload in await first.store.list_uploads(tenant, None, None, 1000):
        await first.store.remove_upload(upload.id)
    clock.advance(1)
    assert await second.begins(tenant) and await second.stores(tenant, 50 * size)
    assert await first.begins(tenant) and await first.stores(tenant, 40 * size)
    assert not await first.stores(tenant, 20 * size)


async def test_the_share_of_a_killed_replica_is_free(
    two: tuple[Replica, Replica, ManualClock],
) -> None:
    first, second, clock = two
    kept = [await first.opens("few") for _ in range(30)]
    received = first.limits.receiving("few")
    await received.add(40_000)  # a request that never ends
    assert None not in kept
    found = await alternately((second,), 20, lambda r: r.opens("few"))
    assert len(list(filter(None, found))) == 10
    clock.advance(LEASE - 1)
    await second.limits.processes.renew()
    assert await second.opens("few") is None and not await second.stores("few", 1)
    clock.advance(2)  # the first one has no heartbeat
    await second.limits.processes.renew()
    clock.advance(1)
    found = await alternately((second,), 40, lambda r: r.opens("few"))
    assert len(list(filter(None, found))) == 30
    assert await second.stores("few", 40_000)
    # If it was only slow, it counts again, and gets nothing more.
    await first.limits.processes.renew()
    assert await first.opens("few") is None


async def test_the_client_gets_no_429_and_a_kill_forgets_nothing(tmp_path: Path) -> None:
    settings = tmp_path / "bide.toml"
    settings.write_text(
        '[limits.kinds.quick]\nsubmit = "40/1s"\n[limits.kinds.once]\nsubmit = "3/10m"\n',
        encoding="utf-8",
    )
    env = {"BIDE_CONFIG": str(settings), "TMPDIR": str(tmp_path)}
    service = ServiceProcess(tmp_path, "tests.apps.short:app", workers=1, env=env)
    service.start()
    try:
        async with AsyncClient(service.url) as client:
            jobs = await asyncio.gather(*(client.submit("quick") for _ in range(100)))
            assert len({job.id for job in jobs}) == 100
            assert client.refused == 0
        begun = time.time()
        for _ in range(3):
            service.ask("POST", "/jobs", {"kind": "once"})
        service.kill()
        service.start()
        with pytest.raises(urllib.error.HTTPError) as refused:
            service.ask("POST", "/jobs", {"kind": "once"})
        with refused.value as answer:
            assert answer.code == 429
            assert abs(begun + 600 - time.time() - int(answer.headers["Retry-After"])) < 60
    finally:
        service.stop()
