"""A worker's own half, without Celery's."""

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
from bide.service.node import Node
from tests.integration.test_store_postgres import url_of
from tests.servers.postgres import Postgres


@pytest.fixture
def node(postgres: Postgres, tmp_path: Path) -> Iterator[Node]:
    location = AppLocation("tests.apps.short")
    config = Config(
        data=tmp_path / "data",
        store=StoreConfig(url_of(postgres, tmp_path), connections=3),
        engine=EngineConfig("celery", "redis://127.0.0.1:9"),
        worker=WorkerConfig(drain=60.0),
    )
    node = Node(location.load(), lambda: location, config)
    yield node
    node.stop()
    node.stop()
    node.join()


def waited(met: Callable[[], bool]) -> None:
    bell = threading.Event()
    for _ in range(1000):
        if met():
            return
        bell.wait(0.02)
    raise AssertionError("it did not happen")


def test_it_starts_with_its_queues_and_ends_when_it_is_told(node: Node) -> None:
    node.start(["default", "elsewhere"], 1)
    waited(lambda: node.has_capacity("default"))
    assert node.has_capacity("elsewhere") and not node.has_capacity("unknown")
    assert (node.config.data / "workers" / "1" / "lock").exists()
    node.stop()
    assert not node.has_capacity("default")
    node.join()
    assert node.failure is None


def test_two_signals_at_once_wait_for_nothing(node: Node) -> None:
    node.start(["default"], 1)
    waited(lambda: node.has_capacity("default"))
    node.stop()
    node.stop()
    node.join()
    assert node._patience == 0.0 and node.failure is None


def test_a_worker_whose_half_has_failed_ends(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody would notice a Celery worker that runs nothing."""
    told: list[int] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: told.append(number))

    async def fails(self: Node) -> None:
        self._started.set()
        await asyncio.sleep(0)
        raise ValueError("unforeseen")

    monkeypatch.setattr(Node, "_serve", fails)
    node.start(["default"], 1)
    node.join()
    assert told == [signal.SIGTERM] and isinstance(node.failure, ValueError)


def test_a_child_starts_no_worker(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app_location, "in_child", True)
    with pytest.raises(SetupError, match="__main__"):
        node.start(["default"], 1)


def test_what_keeps_it_from_starting_is_told(tmp_path: Path) -> None:
    location = AppLocation("tests.apps.short")
    node = Node(
        location.load(),
        lambda: location,
        Config(data=tmp_path, store=StoreConfig("postgresql://bide@127.0.0.1:9/none")),
    )
    with pytest.raises(SetupError, match="cannot be used"):
        node.start(["default"], 1)
    assert (
        node.name == Node(location.load(), lambda: location, node.config).name
    )  # its folder is free again
