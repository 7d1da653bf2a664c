"""Ten times as many jobs as a service can run: `make chaos` has the same for five minutes."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.chaos.overload import CAPACITY, WAIT, p99, trial


@pytest.mark.soak
async def test_an_overloaded_service_refuses_what_it_cannot_run(tmp_path: Path) -> None:
    found = await trial(tmp_path, 20.0)
    assert found.unfinished == 0
    assert found.other == 0
    assert found.accepted > 0.5 * 20 * CAPACITY
    assert found.refused > 0.5 * 20 * 10 * CAPACITY
    assert found.growth <= 100
    assert found.recovery <= 10
    assert p99(found.loaded) <= max(3 * p99(found.idle), 0.1)
    assert found.real / 2 <= found.promised <= max(2.0, 2 * found.real)
    assert 1 <= found.promised <= WAIT
