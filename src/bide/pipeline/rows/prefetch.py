"""Prefetch: an iterator runs in a thread of its own. pyarrow releases Python's lock, so two stages run at the same time."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")

DEPTH = 2  # items in the queue; more would only use more memory


class _End:
    def __init__(self, error: BaseException | None) -> None:
        self.error = error


@contextmanager
def prefetched(items: Iterable[T]) -> Iterator[Iterator[T]]:
    """The items, produced in another thread. An exception there is raised here. On exit the thread has ended."""
    produced: queue.Queue[T | _End] = queue.Queue(DEPTH)
    stop = threading.Event()

    def put(item: T | _End) -> bool:
        while not stop.is_set():
            try:
                produced.put(item, timeout=0.1)
            except queue.Full:
                continue
            return True
        return False

    def run() -> None:
        try:
            for item in items:
                if not put(item):
                    return
        except BaseException as error:
            put(_End(error))
        else:
            put(_End(None))

    def consume() -> Iterator[T]:
        while not isinstance(item := produced.get(), _End):
            yield item
        if item.error is not None:
            raise item.error

    thread = threading.Thread(target=run, name="bide-normalize-reader", daemon=True)
    thread.start()
    try:
        yield consume()
    finally:
        stop.set()
        thread.join()
