"""Threads that work for the loop, and the lane that what they have done comes back by."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest

from bide.server.uploads.hands import Hands
from bide.server.uploads.lane import Lane


@pytest.fixture
def hands() -> Iterator[Hands]:
    made = Hands(4, "test")
    yield made
    made.close()


def _fail(text: str) -> None:
    raise ValueError(text)


async def test_results_and_exceptions_come_back(hands: Hands) -> None:
    assert await hands.run(divmod, 7, 3) == (2, 1)
    with pytest.raises(ValueError, match="odd"):
        await hands.run(_fail, "odd")
    assert await hands.run(threading.current_thread) is not threading.current_thread()


class _Meeting(deque[Any]):
    """Two threads have both put something in before either of them goes on."""

    def __init__(self) -> None:
        super().__init__()
        self._barrier = threading.Barrier(2, timeout=30)

    def append(self, item: Any) -> None:
        super().append(item)
        self._barrier.wait()


async def test_what_two_threads_have_done_in_the_same_moment_is_told(hands: Hands) -> None:
    hands._done = _Meeting()
    for _ in range(100):
        done = asyncio.gather(hands.run(int, "1"), hands.run(int, "2"))
        assert list(await asyncio.wait_for(done, 30)) == [1, 2]


async def test_who_leaves_takes_nobody_along(hands: Hands) -> None:
    go = threading.Event()
    left = hands.run(go.wait, 30)
    other = hands.run(go.wait, 30)
    left.cancel()
    go.set()
    assert await other


async def test_closing_waits_for_what_is_under_way() -> None:
    hands, done = Hands(2, "test"), []
    go = threading.Event()

    def work() -> None:
        go.wait(30)
        done.append(1)

    hands.run(work)
    go.set()
    hands.close()
    assert done == [1]


async def test_what_is_closed_takes_nothing_more() -> None:
    hands = Hands(2, "test")
    await hands.run(int, "1")
    await asyncio.to_thread(hands.close)
    with pytest.raises(RuntimeError, match="closed"):
        hands.run(int, "2")


async def test_a_lane_lets_one_through_a_round_in_the_order_of_asking() -> None:
    lane, rounds, seen = Lane(), 0, []

    async def piece(number: int) -> None:
        await lane.turn()
        seen.append((number, rounds))

    tasks = [asyncio.create_task(piece(number)) for number in range(5)]
    while len(seen) < 4:
        rounds += 1
        if rounds == 2:
            tasks[3].cancel()
        await asyncio.sleep(0)
        assert rounds < 50
    assert [number for number, _ in seen] == [0, 1, 2, 4]
    assert len({when for _, when in seen}) == 4  # something else could be done in between
