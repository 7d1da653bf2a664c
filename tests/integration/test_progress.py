"""The conformance suite on all progress stores, and progress while a store fails."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence

import pytest
from msgspec.structs import replace

from bide.core.errors import SetupError
from bide.core.jobs.record import Progress
from bide.server.config import StoreConfig
from bide.server.progress import LIFE, AttemptKey, LiveProgress, ProgressStore, attempt_key
from bide.server.progress.memory import MemoryProgressStore
from bide.server.progress.postgres import PostgresProgressStore
from bide.server.progress.publisher import ProgressPublisher, _Copy
from bide.server.progress.redis import RedisProgressStore
from bide.server.store.postgres.server import PostgresServer, prepare
from bide.service.backends import make_progress_store
from bide.testing.clock import ManualClock
from bide.testing.progress import ProgressSuite, Replica, running
from tests.servers import ServerMissing
from tests.servers.postgres import Postgres
from tests.servers.redis import RedisServer


class TestMemory(ProgressSuite):
    @pytest.fixture(autouse=True)
    def place(self) -> None:
        self.one = _Shared()

    async def progress_store(self) -> ProgressStore:
        return self.one


class _Shared(MemoryProgressStore):
    """Shared by several processes; closing it keeps its data."""

    async def close(self) -> None: ...


class TestRedis(ProgressSuite):
    @pytest.fixture(autouse=True)
    def place(self, redis_server: RedisServer) -> None:
        self.url = redis_server.url

    async def progress_store(self) -> ProgressStore:
        return RedisProgressStore(self.url)


class TestPostgres(ProgressSuite):
    @pytest.fixture(autouse=True)
    def place(self, postgres: Postgres) -> None:
        self.server = PostgresServer(f"{postgres.url}?schema=progress")
        prepare(self.server)

    async def progress_store(self) -> ProgressStore:
        return PostgresProgressStore(self.server)


class FailingProgressStore(MemoryProgressStore):
    """Fails or hangs on request."""

    away = hangs = False

    async def put(self, batch: Mapping[AttemptKey, LiveProgress]) -> None:
        await self._maybe()
        await super().put(batch)

    async def get(self, attempts: Sequence[AttemptKey]) -> dict[AttemptKey, LiveProgress]:
        await self._maybe()
        return await super().get(attempts)

    async def _maybe(self) -> None:
        if self.hangs:
            await asyncio.sleep(3600)
        if self.away:
            raise OSError("connection refused")


async def _pair(store: ProgressStore) -> tuple[Replica, Replica]:
    one, two = Replica(store), Replica(store)
    await one.progress.open()
    await two.progress.open()
    return one, two


async def test_a_store_that_is_away_costs_a_poll_little_and_is_said_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bide.server.progress.publisher.TIMEOUT", 0.3)
    store = FailingProgressStore()
    one, two = await _pair(store)
    job = running()
    store.hangs = True
    one.progress.publish(attempt_key(job), LiveProgress(3, Progress(percent=30.0)))
    assert await one.poll(job) == 3
    begin = time.monotonic()
    for _ in range(100):
        assert await two.poll(job) == 0
    assert time.monotonic() - begin < 5  # only the first poll waits
    store.hangs, store.away = False, True
    await two.poll(job)
    store.away = False
    caplog.set_level(logging.INFO)
    two.watching.add(job.id)
    one.progress.publish(attempt_key(job), LiveProgress(4, Progress(percent=40.0)))
    async with asyncio.timeout(20):
        while await two.poll(job) < 4:
            await asyncio.sleep(0.05)
    for replica in (one, two):
        await replica.progress.close()
    said = [record.message for record in caplog.records if "cannot share progress" in record.message]
    assert len(said) == 2, "one message per process"


async def test_what_the_store_has_forgotten_is_put_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bide.server.progress.publisher.RESEND", 0.2)
    store = MemoryProgressStore()
    one, two = await _pair(store)
    job, ended = running(), running()
    two.watching.update({job.id, ended.id})
    for each in (job, ended):
        await two.poll(each)
        one.progress.publish(attempt_key(each), LiveProgress(3, Progress(percent=30.0)))
        await two.wait_until(lambda each=each: two.progress.live(each) is not None)  # type: ignore[misc]
    one.progress.ended(attempt_key(ended))
    store._kept.clear()
    three = Replica(store)
    await three.progress.open()
    three.watching.add(job.id)
    assert await three.poll(job) in (0, 3)
    await three.wait_until(lambda: three.progress.live(job) is not None)
    assert await two.poll(job) == 3
    assert (ended.id, 1) not in store._kept
    for replica in (one, two, three):
        await replica.progress.close()


async def test_redis_restarted_without_its_data_is_used_again() -> None:
    try:
        server = RedisServer()
    except ServerMissing as missing:
        pytest.skip(str(missing))
    try:
        one, two = Replica(RedisProgressStore(server.url)), Replica(RedisProgressStore(server.url))
        await one.progress.open()
        await two.progress.open()
        job = running()
        two.watching.add(job.id)
        await two.poll(job)
        one.progress.publish(attempt_key(job), LiveProgress(1, Progress(percent=10.0)))
        await two.wait_until(lambda: two.progress.live(job) is not None)
        server.restart()
        assert await two.poll(job) == 1
        one.progress.publish(attempt_key(job), LiveProgress(2, Progress(percent=20.0)))
        await two.wait_until(lambda: (live := two.progress.live(job)) is not None and live.number == 2)
        await one.progress.close()
        await two.progress.close()
    finally:
        server.end()


async def test_copies_that_nobody_asks_for_are_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bide.server.progress.publisher.KEEP", 0.0)
    monkeypatch.setattr("bide.server.progress.publisher.REFRESH", 0.01)
    monkeypatch.setattr("bide.server.progress.publisher.MAX_COPIES", 50)
    one = Replica(MemoryProgressStore())
    await one.progress.open()
    watched = running()
    one.watching.add(watched.id)
    await one.progress.refresh([watched, *(running() for _ in range(30))])
    async with asyncio.timeout(20):
        while len(one.progress._copies) > 1:
            await asyncio.sleep(0.01)
    assert list(one.progress._copies) == [watched.id]
    await one.progress.refresh([running() for _ in range(500)])
    assert len(one.progress._copies) <= 50
    await one.progress.close()


async def test_the_last_word_is_put_before_it_closes() -> None:
    store = _Shared()
    one = ProgressPublisher(store, lambda job_id: None, lambda job_id: False)
    await one.open()
    one.publish(("a", 1), LiveProgress(1, Progress(percent=1.0)))
    await one.close()
    assert await store.get([("a", 1)])


async def test_a_shelf_in_memory_does_not_grow() -> None:
    clock = ManualClock()
    store = MemoryProgressStore(clock.now)
    for number in range(100):
        await store.put({(f"job{number}", 1): LiveProgress(1, Progress())})
        clock.advance(LIFE / 10)
    assert len(store._kept) <= 11


async def test_a_table_is_swept(postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    server = PostgresServer(f"{postgres.url}?schema=swept")
    prepare(server)
    monkeypatch.setattr("bide.server.progress.postgres.LIFE", -1.0)
    store = PostgresProgressStore(server)
    await store.put({("a", 1): LiveProgress(1, Progress())})
    assert await store.get([("a", 1)]) == {}
    await store.close()


async def test_where_it_is_kept_follows_from_the_settings(
    redis_server: RedisServer, postgres: Postgres
) -> None:
    table, none = StoreConfig(url=postgres.url), StoreConfig()
    for given, kind in (
        ((None, none), MemoryProgressStore),
        ((None, table), PostgresProgressStore),
        ((redis_server.url, table), RedisProgressStore),
        ((None, table, redis_server.url), RedisProgressStore),
        ((None, table, "amqp://guest@127.0.0.1"), PostgresProgressStore),
    ):
        store = make_progress_store(*given)
        assert type(store) is kind
        await store.close()
    with pytest.raises(SetupError, match="redis://"):
        make_progress_store("amqp://127.0.0.1", none)


def test_two_owners_with_the_same_fence_are_two_attempts() -> None:
    job = replace(running(), owner="a")
    (_, mine), (_, others) = attempt_key(job), attempt_key(replace(job, owner="b"))
    assert mine != others
    assert max(mine, others) < attempt_key(replace(job, fence=2))[1], "the number grows with the fence"


async def test_a_cancel_that_becomes_a_timeout_does_not_keep_it_from_closing() -> None:
    """As when a client library's own timeout ends at the moment of the cancel."""
    fetching = asyncio.Event()

    class Store(MemoryProgressStore):
        async def get(self, attempts: Sequence[AttemptKey]) -> dict[AttemptKey, LiveProgress]:
            fetching.set()
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                raise TimeoutError from None
            return {}

    publisher = ProgressPublisher(Store(), lambda job_id: None, lambda job_id: True)
    await publisher.open()
    publisher._copies["a"] = _Copy(1, LiveProgress(1, Progress(percent=1.0)), time.monotonic())
    await asyncio.wait_for(fetching.wait(), 10)
    await asyncio.wait_for(publisher.close(), 5)
