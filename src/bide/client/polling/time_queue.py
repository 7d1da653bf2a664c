"""A queue by time: entries lie unsorted in short days, and only the day at hand is sorted.

With a hundred thousand entries it is several times faster than one heap, whose every step is a cache miss.
"""

from __future__ import annotations

import heapq
from bisect import insort
from typing import Generic, TypeVar

T = TypeVar("T")
Entry = tuple[float, int, T]

DAYS_PER_SECOND = 20.0


class Calendar(Generic[T]):
    """Entries are (−moment, number, value), so that the earliest is at the end of a sorted day; numbers are unique."""

    __slots__ = ("_days", "_order", "_sorted")

    def __init__(self) -> None:
        self._days: dict[int, list[Entry[T]]] = {}
        self._order: list[int] = []  # a heap of the days that have entries
        self._sorted = -1  # the day that is in order

    def push(self, moment: float, number: int, value: T) -> None:
        day = int(moment * DAYS_PER_SECOND)
        entries = self._days.get(day)
        if entries is None:
            self._days[day] = [(-moment, number, value)]
            heapq.heappush(self._order, day)
        elif day == self._sorted:
            insort(entries, (-moment, number, value))
        else:
            entries.append((-moment, number, value))

    def head(self) -> Entry[T] | None:
        """The earliest entry; it stays."""
        while self._order:
            day = self._order[0]
            entries = self._days[day]
            if entries:
                if day != self._sorted:
                    entries.sort()
                    self._sorted = day
                return entries[-1]
            heapq.heappop(self._order)
            del self._days[day]
        return None

    def pop(self) -> None:
        """Takes the entry away that `head` gave."""
        self._days[self._sorted].pop()
