"""Every engine passes the suite: the embedded one on both stores, Celery on both brokers."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from bide.server.config import Config, EngineConfig, StoreConfig, UpkeepConfig, WorkerConfig
from bide.testing.engine import EngineHarness, EngineSuite
from tests.servers.postgres import Postgres
from tests.servers.rabbitmq import RabbitServer
from tests.servers.redis import RedisServer
from tests.servers.worker import WorkerProcess

WORKER = WorkerConfig(workers=3, grace=1.0, drain=1.0)
UPKEEP = UpkeepConfig(interval=0.05)


def schema(server: Postgres, place: Path) -> str:
    return f"{server.url}?schema=e{hashlib.sha256(str(place).encode()).hexdigest()[:16]}"


class TestEmbeddedOnSqlite(EngineSuite):
    @classmethod
    def config(cls, place: Path) -> Config:
        return Config(data=place / "data", worker=WORKER, upkeep=UPKEEP)


class OnPostgres(EngineSuite):
    server: Postgres

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def _server(cls, postgres: Postgres) -> None:
        cls.server = postgres

    @classmethod
    def config(cls, place: Path) -> Config:
        store = StoreConfig(schema(cls.server, place), connections=3)
        return Config(data=place / "data", store=store, worker=WORKER, upkeep=UPKEEP)


class TestEmbeddedOnPostgres(OnPostgres):
    pass


class OnCelery(OnPostgres):
    broker: str

    @classmethod
    def config(cls, place: Path) -> Config:
        return replace(super().config(place), engine=EngineConfig("celery", cls.broker))

    @classmethod
    @contextlib.asynccontextmanager
    async def workers(cls, harness: EngineHarness, target: str) -> AsyncIterator[None]:
        config = harness.service.config
        worker = WorkerProcess(config, target, config.data / "worker.log")
        try:
            yield
            assert await asyncio.to_thread(worker.drain) == 0, worker.said
        finally:
            worker.end()


class TestCeleryOnRedis(OnCelery):
    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def _broker(cls, redis_server: RedisServer) -> None:
        redis_server.flush()
        cls.broker = redis_server.url


class TestCeleryOnRabbit(OnCelery):
    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def _broker(cls, rabbit: RabbitServer) -> None:
        cls.broker = rabbit.url
