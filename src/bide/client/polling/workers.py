"""A pool of tasks that poll: an idle task waits for a job or a given time, and a sweeper cancels hanging requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from bide.client.polling.planned_job import FOREVER
from bide.client.timing import Timing

CONNECTIONS = 64
SWEEP = 1.0  # seconds between two searches for hanging requests


class Worker:
    """One task that sends requests. The sweeper watches all of them, so that no request needs a timer of its own."""

    __slots__ = ("expired", "generation", "task", "until")

    def __init__(self) -> None:
        self.task: asyncio.Task[None]
        self.generation = 0  # the number of the credential that its request was sent with
        self.until = FOREVER  # when its request times out
        self.expired = False

    def timed_out(self) -> bool:
        """Whether only the sweeper has cancelled the task; then it continues."""
        if not self.expired or self.task.cancelling() > 1:  # by `close`, or by both at once
            return False
        self.expired = False
        self.task.uncancel()
        return True


class WorkerPool:
    """Each task runs `work`."""

    def __init__(self, timing: Timing, work: Callable[[Worker], Coroutine[Any, Any, None]]) -> None:
        self._timing = timing
        self._work = work
        self._workers: set[Worker] = set()
        self._idle: list[asyncio.Future[None]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._wakes_at = FOREVER
        self._sweeper: asyncio.TimerHandle | None = None

    def wake(self) -> None:
        """Wakes an idle worker. If there is none, adds one, up to CONNECTIONS."""
        if self.wake_idle() or len(self._workers) >= CONNECTIONS:
            return
        worker = Worker()
        worker.task = asyncio.get_running_loop().create_task(self._work(worker))
        self._workers.add(worker)
        if self._sweeper is None:
            self._sweep_later()

    def wake_idle(self) -> bool:
        """Wakes an idle worker; False if there is none."""
        while self._idle:
            future = self._idle.pop()
            if not future.done():
                future.set_result(None)
                return True
        return False

    async def rest(self, until: float) -> None:
        """Returns at this time, or when `wake` is called."""
        if until < self._wakes_at:
            if self._timer is not None:
                self._timer.cancel()
            self._wakes_at = until
            self._timer = self._timing.later(until, self._on_time)
        future = asyncio.get_running_loop().create_future()
        self._idle.append(future)
        await future

    def _on_time(self) -> None:
        self._timer, self._wakes_at = None, FOREVER
        self.wake_idle()

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
