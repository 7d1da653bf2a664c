"""Jobs as they were last read, for the polls after that: a look-up in memory instead of a read transaction.

The writer's thread says what it has changed, after the commit; the loop keeps what it has read, unless that very job
was changed meanwhile. So what is kept is what is stored, and who was told of a change does not read what was before it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

from bide.core.record import Job

MOST = 5000
LARGEST_RESULT = 4096


class JobCache:
    """At most MOST jobs, the first that came in leave first."""

    __slots__ = ("_changes", "_floor", "_jobs", "_lock", "get", "turn")

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}
        self._changes: dict[str, int] = {}  # in which turn a job was last changed, the oldest first
        self._floor = 0  # what changed in a turn up to this one is not known any more
        self._lock = threading.Lock()
        self.turn = 0  # commits so far; to be noted before a read
        self.get = self._jobs.get

    def changed(self, job_ids: Iterable[str]) -> None:
        with self._lock:
            self.turn += 1
            for job_id in job_ids:
                self._jobs.pop(job_id, None)
                self._changes.pop(job_id, None)
                self._changes[job_id] = self.turn
            while len(self._changes) > MOST:
                self._floor = self._changes.pop(next(iter(self._changes)))

    def clear(self) -> None:
        """Anything may have changed."""
        with self._lock:
            self.turn += 1
            self._floor = self.turn
            self._jobs.clear()
            self._changes.clear()

    def keep(self, job: Job, turn: int) -> None:
        """`job` was read after `turn` was noted."""
        if job.result is not None and len(memoryview(job.result)) > LARGEST_RESULT:
            return
        with self._lock:
            if turn >= self._floor and self._changes.get(job.id, 0) <= turn:
                if len(self._jobs) >= MOST:
                    del self._jobs[next(iter(self._jobs))]
                self._jobs[job.id] = job
