"""JobBatch: jobs of a kind that one request can poll together. They are due when their lost seconds add up to the price.

The queue is ordered by the time at which each job would be due if a request cost only its share: before the first of
these times the sum cannot reach the price.
"""

from __future__ import annotations

import math

from bide.client.polling.planned_job import FOREVER, PlannedJob
from bide.client.polling.time_queue import Queued, TimeQueue

NEXT_LOOK = 0.02  # the least number of seconds between two computations of the sum


class JobBatch:
    __slots__ = ("_look", "_queue", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self._queue: TimeQueue[PlannedJob] = TimeQueue()
        self._look = -math.inf

    def push(self, moment: float, number: int, job: PlannedJob) -> None:
        self._queue.push(moment, number, job)
        self._look = min(self._look, moment)

    def look(self) -> float:
        """The time at which the batch may be due."""
        head = self._head()
        return FOREVER if head is None else max(self._look, -head[0])

    def _head(self) -> Queued[PlannedJob] | None:
        while (head := self._queue.head()) is not None and head[1] != head[2].number:
            self._queue.pop()
        return head

    def gather(self, now: float, price: float) -> tuple[list[PlannedJob], float]:
        """The jobs to poll and their lost seconds; no jobs if these are not worth the price."""
        taken: list[Queued[PlannedJob]] = []
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
        # Lost seconds grow with the square of the silence, or faster, so a poll is not worth the price before then.
        silence = min((now - job.born - job.asked for job in jobs), default=0.0)
        growth = math.sqrt(price / total) - 1.0 if total > 0.0 else 1.0
        latest = min((job.born + job.latest for job in jobs), default=FOREVER)
        self._look = min(latest, now + max(NEXT_LOOK, 0.5 * min(growth, 1.0) * silence))
        return [], total


def _due(job: PlannedJob, now: float) -> bool:
    """Whether it is due at any price: its silence is too long, or its age is unknown."""
    return now >= job.born + job.latest or job.planned <= job.asked
