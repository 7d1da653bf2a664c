"""The thread pool of uploads, and the fair turns in which its results are used."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest

from bide.server.uploads.fair_turns import FairTurns
from bide.server.uploads.thread_pool import ThreadPool


@pytest.fixture
def pool() -> Iterator[ThreadPool]:
    made = ThreadPool(4, "test")
    yield made
    made.close()


def _fail(text: str) -> None:
    raise ValueError(text)


async def test_results_and_exceptions_come_back(pool: ThreadPool) -> None:
    assert await pool.run(divmod, 7, 3) == (2, 1)
    with pytest.raises(ValueError, match="odd"):
        await pool.run(_fail, "odd")
    assert await pool.run(threading.current_thread) is not threading.current_thread()


class _Meeting(deque[Any]):
    """Both threads append before either of them continues."""

    def __init__(self) -> None:
        super().__init__()
        self._barrier = threading.Barrier(2, timeout=30)

    def append(self, item: Any) -> None:
        super().append(item)
        self._barrier.wait()


async def test_outcomes_of_two_threads_at_the_same_moment_are_delivered(pool: ThreadPool) -> None:
    pool._outcomes = _Meeting()
    for _ in range(100):
        done = asyncio.gather(pool.run(int, "1"), pool.run(int, "2"))
        assert list(await asyncio.wait_for(done, 30)) == [1, 2]


async def test_a_cancelled_call_does_not_affect_others(pool: ThreadPool) -> None:
    go = threading.Event()
    left = pool.run(go.wait, 30)
    other = pool.run(go.wait, 30)
    left.cancel()
    go.set()
    assert await other


async def test_closing_waits_for_running_calls() -> None:
    pool, done = ThreadPool(2, "test"), []
    go = threading.Event()

    def work() -> None:
        go.wait(30)
        done.append(1)

    pool.run(work)
    go.set()
    pool.close()
    assert done == [1]


async def test_a_closed_pool_rejects_calls() -> None:
    pool = ThreadPool(2, "test")
    await pool.run(int, "1")
    await asyncio.to_thread(pool.close)
    with pytest.raises(RuntimeError, match="closed"):
        pool.run(int, "2")


async def test_one_caller_continues_per_loop_iteration_in_the_order_of_the_calls() -> None:
    turns, rounds, seen = FairTurns(), 0, []

    async def piece(number: int) -> None:
        await turns.wait()
        seen.append((number, rounds))

    tasks = [asyncio.create_task(piece(number)) for number in range(5)]
    while len(seen) < 4:
        rounds += 1
        if rounds == 2:
            tasks[3].cancel()
        await asyncio.sleep(0)
        assert rounds < 50
    assert [number for number, _ in seen] == [0, 1, 2, 4]
    assert len({when for _, when in seen}) == 4  # other callbacks run in between
