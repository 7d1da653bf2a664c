"""The suite that every engine must pass, with real children and the real store that it is used with.

    from bide.testing.engine import EngineSuite

    class TestMyEngine(EngineSuite):
        @classmethod
    def config(cls, place: Path) -> Config:
            return Config(data=place / "data", engine=EngineConfig("mine"), worker=WorkerConfig(workers=2))

`crew` starts whoever runs jobs in other processes. Needs pytest and pytest-asyncio.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

# Before the parts are imported: a failing assert in them shows its values, as in any test module.
_PARTS = ("ends", "families", "house", "losses", "order")
pytest.register_assert_rewrite(*(f"{__name__}.{part}" for part in _PARTS))

from bide.core.record import Status  # noqa: E402
from bide.server.config import Config  # noqa: E402
from bide.testing.engine.ends import Ends  # noqa: E402
from bide.testing.engine.families import Families  # noqa: E402
from bide.testing.engine.house import House, result  # noqa: E402
from bide.testing.engine.losses import Losses  # noqa: E402
from bide.testing.engine.order import Order  # noqa: E402

__all__ = ["EngineSuite", "House", "result"]
TARGET = "bide.testing.engine.handlers"


@pytest.mark.asyncio(loop_scope="class")
class EngineSuite(Ends, Losses, Families, Order):
    """What users are promised, whoever runs their jobs."""

    @classmethod
    def config(cls, place: Path) -> Config:
        """Of a service whose data is at `place`, with three handler children, here or in a worker."""
        raise NotImplementedError

    @classmethod
    @contextlib.asynccontextmanager
    async def crew(cls, house: House, target: str) -> AsyncIterator[None]:
        """While this lasts, somebody runs the jobs of `target`. They drain when it ends."""
        yield
        await house.service.engine.stop(house.service.config.worker.drain)

    @classmethod
    @contextlib.asynccontextmanager
    async def at_work(cls, place: Path) -> AsyncIterator[tuple[House, contextlib.AsyncExitStack]]:
        """A service, and who runs its jobs until the stack is closed."""
        house = House(TARGET, cls.config(place))
        await house.start()
        try:
            async with contextlib.AsyncExitStack() as crew:
                await crew.enter_async_context(cls.crew(house, TARGET))
                await house.ready()
                yield house, crew
        finally:
            await house.stop()

    @pytest_asyncio.fixture(scope="class", loop_scope="class")
    @classmethod
    async def working(
        cls, tmp_path_factory: pytest.TempPathFactory
    ) -> AsyncIterator[tuple[House, contextlib.AsyncExitStack]]:
        """One for all tests of an engine: children take a moment to start."""
        async with cls.at_work(tmp_path_factory.mktemp("house")) as working:
            yield working

    @pytest.fixture
    def house(self, working: tuple[House, contextlib.AsyncExitStack]) -> House:
        return working[0]

    @pytest.fixture
    def log(self, tmp_path: Path) -> Path:
        path = tmp_path / "log"
        path.touch()
        return path

    async def test_a_drain_waits_for_what_ends_and_hands_back_the_rest(
        self, working: tuple[House, contextlib.AsyncExitStack], log: Path
    ) -> None:
        """The last of all: there is nobody left to run jobs after it."""
        house, crew = working
        short = await house.submit("sleep", {"seconds": 0.3, "log": str(log)}, queue="children")
        long = await house.submit("sleep", {"seconds": 60, "log": str(log)})
        await house.until(short, lambda job: job.running)
        await house.until(long, lambda job: job.running)
        late = await house.submit("add", {"a": 1})
        await crew.aclose()
        assert result(await house.job(short)) == "slept"
        left = await house.job(long)
        assert (left.status, left.held) == (Status.PENDING, False)
        assert (left.attempt, left.losses, left.failures) == (1, 0, 0)
        assert not (await house.job(late)).held
