"""Threads that write, hash and wait for the disk while the loop goes on.

A pool of `concurrent.futures` costs the loop four locks and a wake-up for each piece of work. With small uploads that is
more than the work, and whoever asks for a status waits for it.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")
_Work = tuple["asyncio.Future[Any]", Callable[..., Any], tuple[Any, ...]]
_Done = tuple["asyncio.Future[Any]", Any, BaseException | None]


class Hands:
    """Of one loop. What is done meanwhile is told to it in one go."""

    def __init__(self, count: int, name: str) -> None:
        self._count = count
        self._name = name
        self._queue: SimpleQueue[_Work | None] = SimpleQueue()
        self._done: deque[_Done] = deque()
        self._told = False  # the loop is about to look
        self._threads: list[threading.Thread] = []
        self._closing = threading.Lock()  # nothing is put behind the end
        self._closed = False

    def run(self, work: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        """RuntimeError when it is closed."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        with self._closing:
            if self._closed:
                raise RuntimeError(f"{self._name}: closed")
            self._queue.put((future, work, args))
            while len(self._threads) < self._count:
                self._start(loop)
        return future

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        name = f"{self._name}-{len(self._threads)}"
        thread = threading.Thread(target=self._serve, args=(loop,), name=name, daemon=True)
        thread.start()
        self._threads.append(thread)

    def close(self) -> None:
        """After what was asked for is done. Not for the loop's own thread, which might have to be told of it."""
        with self._closing:
            self._closed = True
            for _ in self._threads:
                self._queue.put(None)
        for thread in self._threads:
            thread.join()

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        while (item := self._queue.get()) is not None:
            future, work, args = item
            try:
                self._done.append((future, work(*args), None))
            except BaseException as error:
                self._done.append((future, None, error))
            del item, future, work, args  # a batch of bytes is not to be kept until the next
            if not self._told:
                self._told = True
                try:
                    loop.call_soon_threadsafe(self._deliver)
                except RuntimeError:  # the loop is closed: nobody is left to tell
                    return

    def _deliver(self) -> None:
        self._told = False  # first: what is done from here on is told again
        while self._done:
            future, result, error = self._done.popleft()
            if future.done():  # whoever waited has left
                continue
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)
