"""Prefetched jobs: each sync child has a queue of claimed jobs, of which the head runs.

1. Only short jobs are prefetched; how many depends on the durations of their kind. A long job has no job behind it.
2. All prefetched jobs of a child come from one job queue, in its order, so that its limit and its priorities hold.
3. When a head takes long, the child returns the jobs behind it.
"""

from __future__ import annotations

from collections import deque

from bide.server.engine.attempt import Attempt
from bide.server.registry import Kind
from bide.server.store import ClaimRequest
from bide.server.worker.supervisor import ChildProcess

TARGET = 0.005  # seconds of work to prefetch per child
MAX_DEPTH = 48
MAX_HEAD_AGE = 0.02  # seconds that a head may have run when more jobs are prefetched behind it
SHORT = 0.0025  # prefetch a kind if two of its jobs fit into TARGET


class Durations:
    """Moving averages of the attempts' durations, by kind."""

    def __init__(self) -> None:
        self._average: dict[str, float] = {}

    def learn(self, kind: str, seconds: float) -> None:
        before = self._average.get(kind, seconds)
        # React quickly to long attempts and slowly to short ones.
        weight = 0.5 if seconds > before else 0.1
        self._average[kind] = before + weight * (seconds - before)

    def depth(self, kind: Kind) -> int:
        average = self._average.get(kind.name)
        if average is None or average > SHORT or kind.policy.at_most_once:
            return 1
        return max(2, min(MAX_DEPTH, int(TARGET / max(average, 1e-6))))


class Prefetch:
    """The idle sync children, and the prefetch queues of the busy ones."""

    def __init__(self, max_jobs: int | None) -> None:
        self.durations = Durations()
        self.idle: list[ChildProcess] = []
        self._queues: dict[ChildProcess, deque[Attempt]] = {}
        self._max_jobs = max_jobs

    def take_idle(self) -> ChildProcess | None:
        return self.idle.pop() if self.idle else None

    def append(self, attempt: Attempt) -> None:
        self._queues.setdefault(attempt.child, deque()).append(attempt)

    def remove(self, attempt: Attempt) -> Attempt | None:
        """Remove an attempt. Return the next one if the removed attempt was the head."""
        queued = self._queues[attempt.child]
        was_head = queued[0] is attempt
        queued.remove(attempt)
        if not queued:
            del self._queues[attempt.child]
        return queued[0] if was_head and queued else None

    def forget(self, child: ChildProcess) -> None:
        """Give this child no more jobs. Its finished attempts stay until their ends are stored."""
        if child in self.idle:
            self.idle.remove(child)

    def busy(self, child: ChildProcess) -> bool:
        return child in self._queues

    def heads(self) -> list[Attempt]:
        return [queued[0] for queued in self._queues.values()]

    def behind(self, attempt: Attempt) -> int:
        """How many attempts wait behind this one."""
        return len(self._queues[attempt.child]) - 1

    def well_filled(self, attempt: Attempt) -> bool:
        """Whether the child's queue is more than half full."""
        return 2 * self.behind(attempt) > self.durations.depth(attempt.kind)

    def shortest(self, queue: str) -> ChildProcess | None:
        """The child with the fewest prefetched jobs of this queue."""
        fitting = [
            (len(queued), child.name)
            for child, queued in self._queues.items()
            if queued[0].job.queue == queue and child.state == "idle"
        ]
        if not fitting:
            return None
        name = min(fitting)[1]
        return next(child for child in self._queues if child.name == name)

    def requests(
        self, hints: dict[tuple[str, str], int], kinds: dict[str, Kind], now: float
    ) -> list[ClaimRequest]:
        """Claim requests for jobs to prefetch behind heads that have not run for long."""
        capacity: dict[str, int] = {}
        for child, queued in self._queues.items():
            head = queued[0]
            more = self.durations.depth(head.kind) - len(queued)
            if self._max_jobs is not None:
                more = min(more, self._max_jobs - child.jobs_done - len(queued))
            fresh = head.started is not None and now - head.started < MAX_HEAD_AGE
            if more > 0 and fresh and child.state == "idle" and head.stopping is None:
                capacity[head.job.queue] = capacity.get(head.job.queue, 0) + more
        requests = []
        for queue, limit in capacity.items():
            hot = tuple(k for q, k in hints if q == queue and not kinds[k].is_async)
            short = frozenset(k for k in hot if self.durations.depth(kinds[k]) > 1)
            if short:
                requests.append(ClaimRequest(queue, hot, limit, 0, short))
        return requests
