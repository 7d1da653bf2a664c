"""Limits of submissions and waiting jobs that two replicas share, and limits after a kill."""

from __future__ import annotations

import asyncio
import time
import urllib.error
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from bide.client.client import AsyncClient
from bide.core.errors import Problem
from bide.server.config import LimitsConfig
from bide.server.intake import Intake, Submission
from bide.server.limits import ServiceLimits
from bide.server.store import ClaimRequest
from bide.server.store.postgres.store import PostgresStore
from bide.testing.clock import ManualClock
from tests.integration.http.service import kinds
from tests.servers.postgres import Postgres
from tests.servers.service import ServiceProcess


class Replica:
    def __init__(self, url: str, clock: ManualClock, **limits: Any) -> None:
        self.store = PostgresStore(url, clock)
        self._limits = ServiceLimits(LimitsConfig.read(limits), self.store)
        self._intake = Intake(kinds(), self.store, limits=self._limits)

    async def accepts(self, tenant: str = "a") -> bool:
        try:
            await self._intake.submit(Submission(kind="echo"), trace_id="", tenant=tenant)
        except Problem as problem:
            assert problem.code == "quota-exceeded"
            return False
        return True


@pytest_asyncio.fixture
async def two(postgres: Postgres, tmp_path: Path) -> AsyncIterator[tuple[Replica, Replica, ManualClock]]:
    clock = ManualClock()
    url = f"{postgres.url}?schema=limits{abs(hash(tmp_path))}"
    async with AsyncExitStack() as stack:
        replicas = []
        for _ in range(2):
            replica = Replica(url, clock, submit="100/1m", tenants={"w": {"waiting": 40}})
            await replica.store.open(lambda events: None)
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
