"""A cache of jobs as they were last read, so that polls need no read transaction.

The writer's thread invalidates changed jobs after each commit. The event loop caches a job that it has read, unless that
job was changed since the read began. So the cache always matches the store, and a subscriber that is notified of a change
never reads the state before it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable

from bide.core.jobs.record import Job

MAX_JOBS = 5000
MAX_RESULT = 4096


class JobCache:
    """At most MAX_JOBS jobs; the oldest entry is evicted first."""

    __slots__ = ("_changes", "_floor", "_jobs", "_lock", "generation", "get")

    def __init__(self) -> None:
        # The oldest first. A plain dict would find its oldest entry slower after each removal.
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._changes: OrderedDict[str, int] = OrderedDict()  # the generation of each job's last change
        self._floor = 0  # changes up to this generation have been forgotten
        self._lock = threading.Lock()
        self.generation = 0  # the number of commits; callers note it before a read
        self.get = self._jobs.get

    def invalidate(self, job_ids: Iterable[str]) -> None:
        with self._lock:
            self.generation += 1
            for job_id in job_ids:
                self._jobs.pop(job_id, None)
                self._changes[job_id] = self.generation
                self._changes.move_to_end(job_id)
            while len(self._changes) > MAX_JOBS:
                _, self._floor = self._changes.popitem(last=False)

    def clear(self) -> None:
        """Forget all jobs, because any of them may have changed."""
        with self._lock:
            self.generation += 1
            self._floor = self.generation
            self._jobs.clear()
            self._changes.clear()

    def put(self, job: Job, generation: int) -> None:
        """Cache a job whose read began in this generation."""
        if job.result is not None and len(memoryview(job.result)) > MAX_RESULT:
            return
        with self._lock:
            if generation >= self._floor and self._changes.get(job.id, 0) <= generation:
                if len(self._jobs) >= MAX_JOBS:
                    self._jobs.popitem(last=False)
                self._jobs[job.id] = job
