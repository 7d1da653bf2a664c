"""Fixtures and settings of all tests.

Hypothesis draws new examples in every local run, and the same ones in every run of the CI, so that only a change can make
it fail. Examples have no time limit, because the machine may be busy.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar

import pytest
from hypothesis import settings

from tests.examples import FEW, MANY
from tests.servers import ServerMissing, warm
from tests.servers.postgres import Postgres
from tests.servers.rabbitmq import RabbitServer
from tests.servers.redis import RedisServer
from tests.servers.swift import Swift

# SIGTERM ends the servers that the tests have started, as Ctrl-C does. A shell that starts pytest in the background has it
# ignore SIGINT, and the processes that tests start would inherit that.
signal.signal(signal.SIGTERM, signal.default_int_handler)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Tests replace modules within a second, in which Python would take the bytecode of the old version for the new one.
os.environ["PYTHONDONTWRITEBYTECODE"] = "1"

# aiohttp reads all certificates of the machine when it is imported, 50 ms of processor time in each process that the tests
# start. No test trusts them.
os.environ["SSL_CERT_FILE"] = os.devnull

# pydantic reads the metadata of all installed packages when it makes the first model, to find plugins: another 10 ms.
os.environ["PYDANTIC_DISABLE_PLUGINS"] = "__all__"

# Services and workers of tests are forks of one process.
warm.forking = True

settings.register_profile("here", deadline=None, max_examples=FEW)
settings.register_profile("ci", deadline=None, max_examples=FEW, derandomize=True)
settings.register_profile("many", deadline=None, max_examples=MANY)  # in `make chaos`
settings.load_profile("ci" if os.environ.get("CI") else "here")


class Server(Protocol):
    def end(self) -> None: ...


S = TypeVar("S", bound=Server)


def started(start: Callable[[], S]) -> Iterator[S]:
    """Skips tests whose server is missing; in the CI they fail."""
    try:
        server = start()
    except ServerMissing as missing:
        if os.environ.get("CI"):
            pytest.fail(str(missing))
        pytest.skip(str(missing))
    yield server
    server.end()


@pytest.fixture(scope="session", autouse=True)
def configuration(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A configuration folder for the tests, so that they neither read nor change the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        yield


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """One PostgreSQL server for all tests of a run. Each test has a schema of its own."""
    yield from started(lambda: Postgres(safe=False))


@pytest.fixture
def new_postgres() -> Iterator[Postgres]:
    """A PostgreSQL server as it is installed: it has neither a user nor a database for bide."""
    yield from started(lambda: Postgres(safe=False, admin="postgres"))


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """One Redis server for all tests of a run. A test that restarts it starts another one."""
    yield from started(RedisServer)


@pytest.fixture(scope="session")
def rabbit() -> Iterator[RabbitServer]:
    """One RabbitMQ server for all tests of a run. Each test has queues of its own."""
    yield from started(RabbitServer)


@pytest.fixture(scope="session")
def swift() -> Iterator[Swift]:
    """One S3 server for all tests of a run. Each test has a prefix or a bucket of its own."""
    yield from started(Swift)
