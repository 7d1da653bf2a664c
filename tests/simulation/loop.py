"""An event loop in virtual time, one callback a step: hours pass in milliseconds, the same way every time."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
from asyncio import base_events, events
from collections.abc import Callable
from typing import Any

from bide.core.clock import Clock


class SimLoop(base_events.BaseEventLoop):
    """Nobody waits: when nothing is ready, time jumps to the next timer."""

    def __init__(self) -> None:
        super().__init__()
        self._virtual = 1000.0
        self.steps = 0
        self.set_exception_handler(self._failed)
        self.failures: list[dict[str, Any]] = []

    def time(self) -> float:
        return self._virtual

    def _failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.failures.append(context)

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """At once: there are no threads here."""
        future = self.create_future()
        future.set_result(func(*args))
        return future

    def step(self) -> bool:
        """Runs one callback; False when there will never be another one."""
        ready, scheduled = self._ready, self._scheduled  # type: ignore[attr-defined]
        while scheduled and (
            scheduled[0]._cancelled or (not ready or scheduled[0]._when <= self._virtual)
        ):
            timer = heapq.heappop(scheduled)
            timer._scheduled = False
            if not timer._cancelled:
                self._virtual = max(self._virtual, timer._when)
                ready.append(timer)
                break
        if not ready:
            return False
        handle = ready.popleft()
        if not handle._cancelled:
            self.steps += 1
            previous = events._get_running_loop()
            events._set_running_loop(self)
            try:
                handle._run()
            finally:
                events._set_running_loop(previous)
        return True

    def forget_everything(self) -> None:
        """Like a power cut: nothing that was going on goes on."""
        closed: set[Any] = set()
        while left := asyncio.all_tasks(self) - closed:  # closing one may have begun another
            for task in left:
                closed.add(task)
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                with contextlib.suppress(RuntimeError):
                    task.get_coro().close()
        self._ready.clear()  # type: ignore[attr-defined]
        self._scheduled.clear()  # type: ignore[attr-defined]

    def within(self, function: Callable[[], Any]) -> Any:
        """Calls it as if the loop ran."""
        previous = events._get_running_loop()
        events._set_running_loop(self)
        try:
            return function()
        finally:
            events._set_running_loop(previous)


class LoopClock:
    """The store's clock, in the loop's time."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop

    def now(self) -> float:
        return 1_900_000_000.0 + self._loop.time()


_: type[Clock] = LoopClock
