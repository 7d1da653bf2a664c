"""A thread pool that writes, hashes and syncs files while the event loop continues.

A pool of `concurrent.futures` costs the loop four locks and a wake-up per call. With small uploads that is more than the
work itself, and it delays polls.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")
_Call = tuple["asyncio.Future[Any]", Callable[..., Any], tuple[Any, ...]]
_Outcome = tuple["asyncio.Future[Any]", Any, BaseException | None]


class ThreadPool:
    """Serves one event loop. It delivers all outcomes that are ready in one callback."""

    def __init__(self, count: int, name: str) -> None:
        self._count = count
        self._name = name
        self._queue: SimpleQueue[_Call | None] = SimpleQueue()
        self._outcomes: deque[_Outcome] = deque()
        self._delivering = False  # a callback is scheduled
        self._threads: list[threading.Thread] = []
        # Held while a call is queued, so that no call is queued after `close`.
        self._closing = threading.Lock()
        self._closed = False

    def run(self, function: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        """Raises RuntimeError if the pool is closed."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        with self._closing:
            if self._closed:
                raise RuntimeError(f"{self._name}: the thread pool is closed")
            self._queue.put((future, function, args))
            while len(self._threads) < self._count:
                self._start(loop)
        return future

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        name = f"{self._name}-{len(self._threads)}"
        thread = threading.Thread(target=self._serve, args=(loop,), name=name, daemon=True)
        thread.start()
        self._threads.append(thread)

    def close(self) -> None:
        """Finishes the queued calls and joins the threads. Do not call it on the loop's thread: it blocks."""
        with self._closing:
            self._closed = True
            for _ in self._threads:
                self._queue.put(None)
        for thread in self._threads:
            thread.join()

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        while (item := self._queue.get()) is not None:
            future, function, args = item
            try:
                self._outcomes.append((future, function(*args), None))
            except BaseException as error:
                self._outcomes.append((future, None, error))
            # Free the buffers of this call now, not when the next call arrives.
            del item, future, function, args
            if not self._delivering:
                self._delivering = True
                try:
                    loop.call_soon_threadsafe(self._deliver)
                except RuntimeError:  # the loop is closed
                    return

    def _deliver(self) -> None:
        # Reset first, so that an outcome that arrives from now on schedules another delivery.
        self._delivering = False
        while self._outcomes:
            future, result, error = self._outcomes.popleft()
            if future.done():  # cancelled
                continue
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)
