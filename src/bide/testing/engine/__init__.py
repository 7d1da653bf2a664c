"""The conformance suite of engines, with real child processes and the store that the engine is used with.

    from bide.testing.engine import EngineSuite

    class TestMyEngine(EngineSuite):
        @classmethod
        def config(cls, place: Path) -> Config:
            return Config(data=place / "data", engine=EngineConfig("mine"), worker=WorkerConfig(workers=2))

`workers` starts workers in other processes, if the engine needs them. Needs pytest and pytest-asyncio.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

# Before the parts are imported, so that a failing assert in them shows its values.
_PARTS = ("dependencies", "ends", "families", "harness", "losses", "order")
pytest.register_assert_rewrite(*(f"{__name__}.{part}" for part in _PARTS))

from bide.core.jobs.record import Status  # noqa: E402
from bide.server.config import Config  # noqa: E402
from bide.testing.engine.dependencies import Dependencies  # noqa: E402
from bide.testing.engine.ends import Ends  # noqa: E402
from bide.testing.engine.families import Families  # noqa: E402
from bide.testing.engine.harness import EngineHarness, result  # noqa: E402
from bide.testing.engine.losses import Losses  # noqa: E402
from bide.testing.engine.order import OrderTests  # noqa: E402

__all__ = ["EngineSuite", "EngineHarness", "result"]
TARGET = "bide.testing.engine.handlers"


@pytest.mark.asyncio(loop_scope="class")
class EngineSuite(Ends, Losses, Families, OrderTests, Dependencies):
    """What bide promises to users, with any engine."""

    @classmethod
    def config(cls, place: Path) -> Config:
        """Return the configuration of a service with its data at `place` and three child processes."""
        raise NotImplementedError

    @classmethod
    @contextlib.asynccontextmanager
    async def workers(cls, harness: EngineHarness, target: str) -> AsyncIterator[None]:
        """Run the jobs of `target` while the context is open, and drain at its end."""
        yield
        await harness.service.engine.stop(harness.service.config.worker.drain)

    @classmethod
    @contextlib.asynccontextmanager
    async def at_work(
        cls, place: Path
    ) -> AsyncIterator[tuple[EngineHarness, contextlib.AsyncExitStack]]:
        """Start a service, and run its jobs until the stack is closed."""
        harness = EngineHarness(TARGET, cls.config(place))
        await harness.start()
        try:
            async with contextlib.AsyncExitStack() as workers:
                await workers.enter_async_context(cls.workers(harness, TARGET))
                await harness.ready()
                yield harness, workers
        finally:
            await harness.stop()

    @pytest_asyncio.fixture(scope="class", loop_scope="class")
    @classmethod
    async def working(
        cls, tmp_path_factory: pytest.TempPathFactory
    ) -> AsyncIterator[tuple[EngineHarness, contextlib.AsyncExitStack]]:
        """Shared by all tests of an engine, because child processes take a moment to start."""
        async with cls.at_work(tmp_path_factory.mktemp("engine")) as working:
            yield working

    @pytest.fixture
    def harness(self, working: tuple[EngineHarness, contextlib.AsyncExitStack]) -> EngineHarness:
        return working[0]

    @pytest.fixture
    def log(self, tmp_path: Path) -> Path:
        path = tmp_path / "log"
        path.touch()
        return path

    async def test_a_drain_waits_for_what_ends_and_hands_back_the_rest(
        self, working: tuple[EngineHarness, contextlib.AsyncExitStack], log: Path
    ) -> None:
        """Must be the last test: nothing runs jobs after it."""
        harness, workers = working
        short = await harness.submit("sleep", {"seconds": 0.3, "log": str(log)}, queue="children")
        long = await harness.submit("sleep", {"seconds": 60, "log": str(log)})
        await harness.until(short, lambda job: job.running)
        await harness.until(long, lambda job: job.running)
        late = await harness.submit("add", {"a": 1})
        await workers.aclose()
        assert result(await harness.job(short)) == "slept"
        left = await harness.job(long)
        assert (left.status, left.held) == (Status.PENDING, False)
        assert (left.attempt, left.losses, left.failures) == (1, 0, 0)
        assert not (await harness.job(late)).held
