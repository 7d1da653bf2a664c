"""How many jobs of each queue wait or are scheduled, counted in memory by the store's writer.

Counting rows would take longer with more waiting jobs, and would block the event loop.

1. A change counts from its commit on.
2. A scheduled job counts as waiting when it is due, whether the upkeep has made it claimable or not.
3. Updates run after a commit and must not fail, so removing an unknown entry has no effect.
4. The writer's thread updates the counts and the event loop reads them, both under a lock.
"""

from __future__ import annotations

import heapq
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

FEW = 100
Move = tuple[str, float | None, float | None]  # queue, due time before and after; None: not due


class QueueCount(NamedTuple):
    waiting: int
    scheduled: int
    oldest: float | None  # when the oldest waiting job became due


class DueTimes:
    """A multiset of due times with access to the smallest."""

    __slots__ = ("_heap", "_left", "_removed", "size")

    def __init__(self) -> None:
        self._heap: list[float] = []
        self._removed: Counter[float] = Counter()  # removed, but still in the heap below its top
        self._left = 0  # the size of _removed
        self.size = 0

    @property
    def first(self) -> float | None:
        return self._heap[0] if self._heap else None

    def add(self, due: float) -> None:
        heapq.heappush(self._heap, due)
        self.size += 1

    def add_all(self, dues: Iterable[float]) -> None:
        before = len(self._heap)
        self._heap += dues
        self.size += len(self._heap) - before
        heapq.heapify(self._heap)

    def remove(self, due: float) -> None:
        if not self._heap:
            return
        self.size -= 1
        if self._heap[0] != due:
            self._removed[due] += 1
            self._left += 1
            if self._left > self.size + FEW:
                self._compact()
            return
        heapq.heappop(self._heap)
        while self._left and self._heap and self._heap[0] in self._removed:
            self._forget(heapq.heappop(self._heap))

    def take(self, until: float) -> list[float]:
        """Remove and return the times up to and including `until`."""
        taken: list[float] = []
        while self._heap and self._heap[0] <= until and len(taken) < FEW:
            taken.append(self._heap[0])
            self.remove(self._heap[0])
        if len(taken) == FEW:  # for many, one pass over the heap is faster
            self._compact()
            taken += [due for due in self._heap if due <= until]
            self._heap = [due for due in self._heap if due > until]
            heapq.heapify(self._heap)
            self.size = len(self._heap)
        return taken

    def _compact(self) -> None:
        if self._left:
            self._heap = [due for due in self._heap if not self._forget(due)]
            heapq.heapify(self._heap)
            self._removed.clear()
            self._left, self.size = 0, len(self._heap)

    def _forget(self, due: float) -> bool:
        """Drop one removed entry with this value from _removed. Return whether there was one."""
        number = self._removed.get(due, 0)
        if not number:
            return False
        self._left -= 1
        if number == 1:
            del self._removed[due]
        else:
            self._removed[due] = number - 1
        return True


class _Queue:
    __slots__ = ("scheduled", "waiting")

    def __init__(self) -> None:
        self.waiting = DueTimes()
        self.scheduled = DueTimes()


class QueueCounts:
    """The counts of every queue that has a waiting or scheduled job."""

    def __init__(self) -> None:
        self._queues: dict[str, _Queue] = {}
        self._now = float("-inf")  # jobs that are due until then count as waiting; never goes back
        self._lock = threading.Lock()

    def load(self, rows: Iterable[tuple[str, float]], now: float) -> None:
        """Initialise from the store: the queue and due time of every job that has one."""
        found: dict[str, list[float]] = {}
        for name, due in rows:
            found.setdefault(name, []).append(due)
        with self._lock:
            self._queues.clear()
            for name, dues in found.items():
                queue = self._queues[name] = _Queue()
                queue.scheduled.add_all(dues)
            self._advance(now)

    def moved(self, moves: Sequence[Move], now: float) -> None:
        """Apply the changes of a transaction with this timestamp."""
        with self._lock:
            self._advance(now)
            for name, before, after in moves:
                queue = self._queues.get(name)
                if queue is None:
                    queue = self._queues[name] = _Queue()
                if before is not None:
                    (queue.waiting if before <= self._now else queue.scheduled).remove(before)
                if after is not None:
                    (queue.waiting if after <= self._now else queue.scheduled).add(after)

    def read(self, now: float) -> dict[str, QueueCount]:
        with self._lock:
            self._advance(now)
            empty = [n for n, q in self._queues.items() if not (q.waiting.size or q.scheduled.size)]
            for name in empty:
                del self._queues[name]
            return {
                name: QueueCount(q.waiting.size, q.scheduled.size, q.waiting.first)
                for name, q in self._queues.items()
            }

    def has_waiting(self, name: str, now: float) -> bool:
        with self._lock:
            self._advance(now)
            queue = self._queues.get(name)
            return queue is not None and queue.waiting.size > 0

    def _advance(self, now: float) -> None:
        if now <= self._now:
            return
        self._now = now
        for queue in self._queues.values():
            first = queue.scheduled.first
            if first is not None and first <= now:
                due = queue.scheduled.take(now)
                if len(due) < FEW:
                    for one in due:
                        queue.waiting.add(one)
                else:
                    queue.waiting.add_all(due)
