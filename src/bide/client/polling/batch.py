"""Jobs of a kind that one request can ask about together: due when their lost seconds add up to the price.

In a queue by when each would be due if a request cost only its share: before the first of them is, the sum cannot have
reached the price.
"""

from __future__ import annotations

import math

from bide.client.polling.planned_job import FOREVER, Waited
from bide.client.polling.time_queue import Calendar, Entry

NEXT_LOOK = 0.02  # seconds; the sum is not looked at more often


class Bunch:
    __slots__ = ("_look", "_queue", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self._queue: Calendar[Waited] = Calendar()
        self._look = -math.inf

    def push(self, moment: float, number: int, job: Waited) -> None:
        self._queue.push(moment, number, job)
        self._look = min(self._look, moment)

    def look(self) -> float:
        """When it is worth looking at."""
        head = self._head()
        return FOREVER if head is None else max(self._look, -head[0])

    def _head(self) -> Entry[Waited] | None:
        while (head := self._queue.head()) is not None and head[1] != head[2].number:
            self._queue.pop()
        return head

    def gather(self, now: float, price: float) -> tuple[list[Waited], float]:
        """The jobs to ask about and the seconds that they lost; none when that is not worth the price."""
        taken: list[Entry[Waited]] = []
        while len(taken) < self.size and (head := self._head()) is not None:
            taken.append(head)
            self._queue.pop()
        jobs = [job for _, _, job in taken]
        losses = [job.lost(now) for job in jobs]
        total = math.fsum(losses)
        if total >= price or any(_due(job, now) for job in jobs):
            self._look = now
            return jobs, total
        for moment, number, job in taken:
            self._queue.push(-moment, number, job)
        # Lost seconds grow with the square of silence, or faster: so it is not worth it before then.
        silence = min((now - job.born - job.asked for job in jobs), default=0.0)
        growth = math.sqrt(price / total) - 1.0 if total > 0.0 else 1.0
        self._look = now + max(NEXT_LOOK, 0.5 * min(growth, 1.0) * silence)
        return [], total


def _due(job: Waited, now: float) -> bool:
    """Whatever it is worth: it has not been asked about for too long, or it is not known how old it is."""
    return now >= job.born + job.asked + job.longest or job.planned <= job.asked
