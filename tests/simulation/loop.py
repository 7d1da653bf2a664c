"""An event loop in virtual time, one callback per step: hours pass in milliseconds, the same way every time.

Each simulated process has a name, which its callbacks and tasks inherit. So one of them can be stopped (SIGSTOP), resumed
or killed while the others run.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import heapq
from asyncio import base_events, events
from collections import defaultdict
from collections.abc import Callable, Coroutine
from typing import Any

from bide.core.clock import Clock

PROCESS: contextvars.ContextVar[str] = contextvars.ContextVar("process", default="")


def context_of(process: str) -> contextvars.Context:
    """A context whose callbacks and tasks belong to this process."""
    context = contextvars.copy_context()
    context.run(PROCESS.set, process)
    return context


class SimLoop(base_events.BaseEventLoop):
    """It never waits: when nothing is ready, time jumps to the next timer."""

    def __init__(self) -> None:
        super().__init__()
        self._virtual = 1000.0
        self.steps = 0
        self.kills = 0
        self.killing = False
        self.set_exception_handler(self._failed)
        self.failures: list[dict[str, Any]] = []
        # By process: callbacks that it has not run yet.
        self._stopped: dict[str, list[asyncio.Handle]] = {}
        self._tasks_of: defaultdict[str, set[asyncio.Task[Any]]] = defaultdict(set)

    def time(self) -> float:
        return self._virtual

    def _failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        # A killed process leaves futures whose exceptions nothing retrieves.
        if not self.kills or not context["message"].startswith("Future exception was never"):
            self.failures.append(context)

    def create_task(
        self, coro: Any, *, name: Any = None, context: contextvars.Context | None = None
    ) -> asyncio.Task[Any]:
        task = super().create_task(coro, name=name, context=context)
        process = PROCESS.get() if context is None else context.get(PROCESS, "")
        tasks = self._tasks_of[process]
        tasks.add(task)
        task.add_done_callback(tasks.discard, context=contextvars.Context())
        return task

    def _write_to_self(self) -> None:
        """For `call_soon_threadsafe`: the loop never sleeps, so nothing has to wake it."""

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Immediately: there are no threads here."""
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
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
        waiting = self._stopped.get(_process_of(handle))
        if waiting is not None:
            waiting.append(handle)
        elif not handle._cancelled:
            self.steps += 1
            self.within(handle._run)
        return True

    def within(self, function: Callable[[], Any]) -> Any:
        """Call a function as if the loop were running."""
        previous = events._get_running_loop()
        events._set_running_loop(self)
        try:
            return function()
        finally:
            events._set_running_loop(previous)

    # --- processes

    def start(self, process: str, work: Callable[[], Coroutine[Any, Any, Any]]) -> asyncio.Task[Any]:
        """Runs a coroutine as a part of this process."""
        context = context_of(process)
        return context.run(lambda: self.create_task(work()))

    def is_busy(self, process: str) -> bool:
        return bool(self._tasks_of.get(process))

    def is_stopped(self, process: str) -> bool:
        return process in self._stopped

    def stop_process(self, process: str) -> None:
        """SIGSTOP."""
        self._stopped.setdefault(process, [])

    def resume_process(self, process: str) -> None:
        """SIGCONT: callbacks that became due during the stop run now."""
        self._ready.extend(self._stopped.pop(process, []))  # type: ignore[attr-defined]

    def kill_process(self, process: str) -> None:
        """SIGKILL: end all tasks and callbacks of the process."""
        self.kills += 1
        self.killing = True
        self._stopped.pop(process, None)
        closed: set[Any] = set()
        while left := set(self._tasks_of[process]) - closed:  # closing one may start another
            for task in left:
                closed.add(task)
                if not task.done():
                    task._log_destroy_pending = False  # type: ignore[attr-defined]
                    with contextlib.suppress(Exception):
                        context_of(process).run(self.within, task.get_coro().close)
        del self._tasks_of[process]
        self.killing = False
        ready, scheduled = self._ready, self._scheduled  # type: ignore[attr-defined]
        for handles in (ready, scheduled):
            kept = [handle for handle in handles if _process_of(handle) != process]
            handles.clear()
            handles.extend(kept)
        heapq.heapify(scheduled)


def _process_of(handle: asyncio.Handle) -> str:
    return handle._context.get(PROCESS, "")  # type: ignore[attr-defined, no-any-return]


class LoopClock:
    """The store's clock, in the loop's time. `ahead` steps it, as when the machine has slept."""

    def __init__(self, loop: SimLoop, epoch: float) -> None:
        self._loop = loop
        self._epoch = epoch
        self.ahead = 0.0

    def now(self) -> float:
        return self._epoch + self.ahead + self._loop.time()


_: type[Clock] = LoopClock
