"""Clients on several machines that share the budget of one credential."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import pytest
import redis

from bide.client.budgets.shared import SharedBudget
from bide.client.client import AsyncClient
from bide.client.timing import Timing
from bide.core.errors import SetupError
from bide.core.pacing.budget import Limit
from bide.lab.scenario import Rules
from bide.lab.vendor import Vendor
from tests.integration.test_spread import INPUT, KEY, arrivals
from tests.servers.postgres import Postgres
from tests.servers.redis import RedisServer
from tests.windows import assert_within

STRICT = Rules(requests=40, per=1.0, burst=8, advertised=False)


@pytest.fixture(params=["redis", "postgresql"])
def place(request: pytest.FixtureRequest, redis_server: RedisServer, postgres: Postgres) -> str:
    if request.param == "redis":
        return redis_server.url.replace("/0", "/8")
    return f"{postgres.url}?schema=sharing"


async def films(vendor: Vendor, count: int, **options: Any) -> int:
    async with AsyncClient(vendor.url, KEY, api="sync.so", **options) as client:
        jobs = [await client.submit("film", INPUT) for _ in range(count)]
        ended = [job async for job in client.as_completed(jobs, timeout=60)]
        assert {job.id for job in ended} == {job.id for job in jobs}
        return client.requests


async def test_clients_on_several_machines_keep_to_one_limit(place: str) -> None:
    with Vendor(STRICT, takes=lambda rng: rng.uniform(0.2, 0.8), key=KEY) as vendor:
        came = arrivals(vendor)
        each = {"limit": "40/1s", "budget": place}
        await asyncio.gather(*(films(vendor, 10, **each) for _ in range(3)))
        assert vendor.refused == 0
        assert_within(sorted(at for at, _ in came), Limit(44, 1.0))  # 40, and what is jolted on the way


async def test_children_share_with_other_machines_too(redis_server: RedisServer) -> None:
    url = redis_server.url.replace("/0", "/9")
    with Vendor(STRICT, takes=lambda rng: rng.uniform(0.2, 0.8), key=KEY) as vendor:
        each = {"limit": "40/1s", "budget": url}
        await asyncio.gather(films(vendor, 8, processes=2, **each), films(vendor, 8, **each))
        assert vendor.refused == 0


async def test_who_has_another_credential_or_api_shares_nothing(redis_server: RedisServer) -> None:
    url = redis_server.url.replace("/0", "/10")
    budgets = []
    for key, at in (
        ("one", "http://127.0.0.1:1"),
        ("two", "http://127.0.0.1:1"),
        ("one", "http://127.0.0.1:2"),
    ):
        async with AsyncClient(at, key * 10, api="sync.so", limit="60/1m", budget=url) as client:
            account = client.account
            await account.open()
            poller = account._poller
            assert poller is not None
            budgets.append(poller.schedule.budget)
            assert isinstance(budgets[-1], SharedBudget)
            assert budgets[-1].rate(0.0) == pytest.approx(59 / 61)
    server = redis.Redis.from_url(url)
    names = [name.decode() for name in server.keys("bide:budget:*")]  # type: ignore[union-attr]
    kept = b"".join(server.dump(name) or b"" for name in names)
    server.close()
    assert len(names) == 3
    assert "oneone" not in "".join(names) and b"oneone" not in kept


async def test_a_rehearsal_cannot_share(redis_server: RedisServer) -> None:
    options: dict[str, Any] = {"budget": redis_server.url, "timing": Timing(10.0)}
    async with AsyncClient("http://127.0.0.1:1", KEY, api="sync.so", **options) as client:
        with pytest.raises(SetupError, match="10 times the real speed"):
            await client.submit("film", INPUT)


def test_a_place_that_is_not_there_is_said_at_once() -> None:
    command = [sys.executable, "-m", "bide", "wait", "gen-1", "--api", "sync.so", "--key", KEY]
    done = subprocess.run(
        [*command, "--budget", "redis://:hidden@127.0.0.1:1/0"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "budget cannot be shared through redis://127.0.0.1:1/0" in done.stderr
    assert "hidden" not in done.stderr
    assert "Traceback" not in done.stderr
