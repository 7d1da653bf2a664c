"""An iterator that runs ahead in a thread of its own: pyarrow works without Python's lock, so two stages do so at once."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")

DEPTH = 2  # more would only be more memory


class _End:
    def __init__(self, error: BaseException | None) -> None:
        self.error = error


@contextmanager
def prefetched(items: Iterable[T]) -> Iterator[Iterator[T]]:
    """Its items, made in another thread; an error there is raised here. Left early, the thread has ended too."""
    made: queue.Queue[T | _End] = queue.Queue(DEPTH)
    stop = threading.Event()

    def put(item: T | _End) -> bool:
        while not stop.is_set():
            try:
                made.put(item, timeout=0.1)
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

    def taken() -> Iterator[T]:
        while not isinstance(item := made.get(), _End):
            yield item
        if item.error is not None:
            raise item.error

    thread = threading.Thread(target=run, name="bide-normalize-reader", daemon=True)
    thread.start()
    try:
        yield taken()
    finally:
        stop.set()
        thread.join()
