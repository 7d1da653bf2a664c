"""A few workers and one timer: whoever rests is woken when there may be something to do, and what hangs is ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from bide.client.polling.planned_job import FOREVER
from bide.client.timing import Timing

CONNECTIONS = 64
SWEEP = 1.0  # seconds between two looks at requests that hang


class Worker:
    """One of the few that send; one sweeper ends what hangs, so that no request needs a timer of its own."""

    __slots__ = ("expired", "task", "turn", "until")

    def __init__(self) -> None:
        self.task: asyncio.Task[None]
        self.turn = 0  # of the credential that its request was sent with
        self.until = FOREVER  # when its request has taken too long
        self.expired = False

    def timed_out(self) -> bool:
        """Whether it was the sweeper alone that cancelled it; then it goes on."""
        if not self.expired or self.task.cancelling() > 1:  # by close, or by both at once
            return False
        self.expired = False
        self.task.uncancel()
        return True


class Crew:
    def __init__(self, timing: Timing, work: Callable[[Worker], Coroutine[Any, Any, None]]) -> None:
        self._timing = timing
        self._work = work
        self._workers: set[Worker] = set()
        self._resting: list[asyncio.Future[None]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._wakes_at = FOREVER
        self._sweeper: asyncio.TimerHandle | None = None

    def kick(self) -> None:
        """Somebody should look whether there is something to do."""
        while self._resting:
            future = self._resting.pop()
            if not future.done():
                future.set_result(None)
                return
        if len(self._workers) < CONNECTIONS:
            worker = Worker()
            worker.task = asyncio.get_running_loop().create_task(self._work(worker))
            self._workers.add(worker)
            if self._sweeper is None:
                self._sweep_later()

    async def rest(self, until: float) -> None:
        """Until then, or until somebody is needed."""
        if until < self._wakes_at:
            if self._timer is not None:
                self._timer.cancel()
            self._wakes_at = until
            self._timer = self._timing.later(until, self._wake)
        future = asyncio.get_running_loop().create_future()
        self._resting.append(future)
        await future

    def _wake(self) -> None:
        self._timer, self._wakes_at = None, FOREVER
        self.kick()

    def _sweep_later(self) -> None:
        self._sweeper = asyncio.get_running_loop().call_later(SWEEP, self._sweep)

    def _sweep(self) -> None:
        now = self._timing.now()
        for worker in self._workers:
            if worker.until <= now and not worker.expired:
                worker.expired = True
                worker.task.cancel()
        self._sweep_later()

    async def close(self) -> None:
        for timer in (self._timer, self._sweeper):
            if timer is not None:
                timer.cancel()
        tasks = [worker.task for worker in self._workers]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
