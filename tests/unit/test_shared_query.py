"""A slow query is sent once for all callers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bide.server.store.postgres.reads import SharedQuery


class Asked:
    def __init__(self) -> None:
        self.times = 0
        self.open = asyncio.Event()
        self.error: Exception | None = None

    async def __call__(self) -> list[tuple[Any, ...]]:
        self.times += 1
        number = self.times
        await self.open.wait()
        if self.error is not None:
            raise self.error
        return [(number,)]


async def test_those_who_ask_at_once_share_the_answer() -> None:
    ask = Asked()
    shared = SharedQuery(ask, age=0.0)
    asking = [asyncio.create_task(shared.get()) for _ in range(5)]
    await asyncio.sleep(0)
    asking[0].cancel()  # a cancelled caller does not cancel the others
    ask.open.set()
    assert await asyncio.gather(*asking[1:]) == [[(1,)]] * 4
    assert await shared.get() == [(2,)]


async def test_an_answer_is_used_again_for_a_while() -> None:
    ask = Asked()
    ask.open.set()
    shared = SharedQuery(ask, age=600.0)
    assert [await shared.get() for _ in range(3)] == [[(1,)]] * 3


async def test_a_failure_is_raised_and_not_cached() -> None:
    ask = Asked()
    ask.open.set()
    ask.error = OSError("away")
    shared = SharedQuery(ask, age=600.0)
    for _ in range(2):
        with pytest.raises(OSError, match="away"):
            await shared.get()
    ask.error = None
    assert await shared.get() == [(3,)]
