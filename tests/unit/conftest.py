"""What several unit tests need."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.fake_service import FakeService


@pytest.fixture
def service() -> Iterator[FakeService]:
    """A fake service over a socket, for the tests of the client and the command line."""
    with FakeService() as running:
        yield running
