from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio

from bide.server.config import Config, UpkeepConfig, WorkerConfig
from bide.server.runner.runner import Runner
from bide.server.worker import supervisor
from bide.testing.engine.harness import EngineHarness
from tests.servers.warm import warm
from tests.stores import store_config

Open = Callable[..., Awaitable[EngineHarness]]


@pytest.fixture(scope="session", autouse=True)
def forked_children() -> Iterator[None]:
    """A handler child is a fork: a new interpreter takes 0.2 s of processor time to import bide."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(supervisor, "subprocess", warm().children())
        yield


def runner_of(harness: EngineHarness) -> Runner:
    engine = harness.service.engine
    assert isinstance(engine, Runner)
    return engine


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[Open]:
    """Opens services on this test's folder, and closes them after it."""
    harnesses: list[EngineHarness] = []

    async def open_(
        target: str = "tests.apps.handlers", *, upkeep: float = 0.05, **worker: float
    ) -> EngineHarness:
        settings = {"workers": 1, "grace": 2.5, "drain": 0.0, **worker}
        config = Config(
            data=tmp_path / "data",
            store=store_config(tmp_path),
            worker=WorkerConfig(**settings),  # type: ignore[arg-type]
            upkeep=UpkeepConfig(interval=upkeep),
        )
        harness = EngineHarness(target, config)
        await harness.start()
        harnesses.append(harness)
        return harness

    yield open_
    for harness in harnesses:
        await harness.stop()


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[EngineHarness]:
    harness = EngineHarness(
        "tests.apps.handlers",
        Config(
            data=folder,
            store=store_config(folder),
            worker=WorkerConfig(workers=2, grace=2.5, drain=0.0),
            upkeep=UpkeepConfig(interval=0.05),
        ),
    )
    await harness.start()
    try:
        yield harness
    finally:
        await harness.stop()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def harness(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[EngineHarness]:
    """One service for all tests of a module: children take a moment to start."""
    async with running(tmp_path_factory.mktemp("engine")) as harness:
        yield harness


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log"
    path.touch()
    return path
