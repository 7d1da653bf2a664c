"""The worker runtime without Celery."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bide.core.errors import SetupError
from bide.server.config import Config, EngineConfig, StoreConfig, WorkerConfig
from bide.server.worker import app_location
from bide.server.worker.app_location import AppLocation
from bide.service.worker_runtime import WorkerRuntime
from tests.integration.test_store_postgres import url_of
from tests.servers.postgres import Postgres


@pytest.fixture
def runtime(postgres: Postgres, tmp_path: Path) -> Iterator[WorkerRuntime]:
    location = AppLocation("tests.apps.short")
    config = Config(
        data=tmp_path / "data",
        store=StoreConfig(url_of(postgres, tmp_path), connections=3),
        engine=EngineConfig("celery", "redis://127.0.0.1:9"),
        worker=WorkerConfig(drain=60.0),
    )
    runtime = WorkerRuntime(location.load(), lambda: location, config)
    yield runtime
    runtime.stop()
    runtime.stop()
    runtime.join()


def waited(met: Callable[[], bool]) -> None:
    bell = threading.Event()
    for _ in range(1000):
        if met():
            return
        bell.wait(0.02)
    raise AssertionError("it did not happen")


def test_it_starts_with_its_queues_and_ends_on_a_signal(runtime: WorkerRuntime) -> None:
    runtime.start(["default", "elsewhere"], 1)
    waited(lambda: runtime.has_capacity("default"))
    assert runtime.has_capacity("elsewhere") and not runtime.has_capacity("unknown")
    assert (runtime.config.data / "workers" / "1" / "lock").exists()
    runtime.stop()
    assert not runtime.has_capacity("default")
    runtime.join()
    assert runtime.failure is None


def test_a_worker_whose_half_has_failed_ends(
    runtime: WorkerRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Celery worker without jobs would go unnoticed."""
    told: list[int] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: told.append(number))

    async def fails(self: WorkerRuntime) -> None:
        self._started.set()
        await asyncio.sleep(0)
        raise ValueError("unforeseen")

    monkeypatch.setattr(WorkerRuntime, "_serve", fails)
    runtime.start(["default"], 1)
    runtime.join()
    assert told == [signal.SIGTERM] and isinstance(runtime.failure, ValueError)


def test_a_child_starts_no_worker(runtime: WorkerRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app_location, "in_child", True)
    with pytest.raises(SetupError, match="__main__"):
        runtime.start(["default"], 1)


def test_the_reason_why_it_cannot_start_is_reported(tmp_path: Path) -> None:
    location = AppLocation("tests.apps.short")
    runtime = WorkerRuntime(
        location.load(),
        lambda: location,
        Config(data=tmp_path, store=StoreConfig("postgresql://bide@127.0.0.1:9/none")),
    )
    with pytest.raises(SetupError, match="cannot be used"):
        runtime.start(["default"], 1)
    # Its folder is free again.
    assert runtime.name == WorkerRuntime(location.load(), lambda: location, runtime.config).name
