"""What holds for all tests.

Examples that hypothesis draws are new in every run here, and the same in every run of the CI: there a change is judged,
not its luck. No example has a time limit: a busy machine is no bug.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from bench.scale.postgres import Absent, Postgres
from bench.uploads import swift as storage
from hypothesis import settings

# Whoever starts the tests aside may have them ignore Ctrl-C, and so would every process that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("here", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """One PostgreSQL for all tests of a run. Each has a schema of its own."""
    try:
        server = Postgres(safe=False)
    except Absent as absent:
        if os.environ.get("CI"):
            pytest.fail(str(absent))
        pytest.skip(str(absent))
    yield server
    server.end()


@pytest.fixture(scope="session")
def swift() -> Iterator[storage.Swift]:
    """One S3 server for all tests of a run. Each has a prefix, or a bucket, of its own."""
    try:
        server = storage.Swift()
    except storage.Absent as absent:
        if os.environ.get("CI"):
            pytest.fail(str(absent))
        pytest.skip(str(absent))
    yield server
    server.end()
