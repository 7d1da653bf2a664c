"""The engine's pen, when the store cannot be written for a while."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest

from bide.core.job import Change
from bide.server.engine import recorder
from bide.server.engine.recorder import Recorder
from bide.server.store import Store, Unwritable


class Paper:
    """A store that refuses so many writes, and then takes them."""

    def __init__(self, error: Exception, failures: int) -> None:
        self.error = error
        self.failures = failures
        self.written: list[str] = []

    async def apply(self, changes: Sequence[Change]) -> list[Any]:
        if self.failures > 0:
            self.failures -= 1
            raise self.error
        self.written += [change.job_id for change in changes]
        return [change.job_id for change in changes]


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "AGAIN", 0.01)


async def told(paper: Paper, *names: str) -> list[str]:
    """Who was told of a write, in order. Each is handed in before the one before it is stored."""
    pen = Recorder(cast(Store, paper))
    heard: list[str] = []
    for name in names:
        pen.write([Change(job_id=name)], heard.append)
        await asyncio.sleep(0.002)
    async with asyncio.timeout(5):
        while len(heard) < len(names):
            await asyncio.sleep(0.005)
    assert pen.stuck == []
    return heard


async def test_what_a_full_disk_holds_up_is_written_in_its_order() -> None:
    paper = Paper(Unwritable("full"), failures=3)
    assert await told(paper, "a", "b", "c", "d") == ["a", "b", "c", "d"]
    assert paper.written == ["a", "b", "c", "d"]


async def test_a_fault_of_one_holds_up_nobody_else() -> None:
    paper = Paper(AssertionError("a bug"), failures=1)
    assert await told(paper, "a", "b", "c") == ["b", "c", "a"]
