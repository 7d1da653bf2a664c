"""The data that a process caches between transactions. Other processes may change any of it at any time, so users
of the cache verify it in the database, or check that notifications of changes arrive (`fresh`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable

from bide.core.jobs.record import Job
from bide.server.store.job_cache import JobCache


class PostgresCache:
    """The jobs that this process holds, the jobs that polls have read, and the paused queues."""

    def __init__(self) -> None:
        # Held jobs as last written; removed when another process may have changed them.
        self.held: dict[str, Job] = {}
        self.own: dict[str, int] = {}  # the fences of all jobs that this process knows it holds
        self.owners: set[str] = set()  # the owner names of this process's claims
        self.jobs = JobCache()
        # Until this value of time.monotonic() all notifications of other processes have arrived.
        self.fresh_until = -math.inf
        self._paused: tuple[int, frozenset[str]] | None = None  # None: must be read
        self.pauses = 0  # counts the changes of paused queues

    @property
    def fresh(self) -> bool:
        return time.monotonic() < self.fresh_until

    @property
    def paused(self) -> frozenset[str] | None:
        """None if they must be read, because a queue may have been paused or resumed since the last read."""
        known = self._paused
        return known[1] if known is not None and known[0] == self.pauses and self.fresh else None

    def keep_paused(self, paused: frozenset[str], pauses: int) -> None:
        """Cache the paused queues, which were read after the counter had the value `pauses`."""
        self._paused = (pauses, paused)

    def forget(self, job_ids: Iterable[str]) -> None:
        """Remove held jobs that another process has changed."""
        for job_id in job_ids:
            self.held.pop(job_id, None)

    def forget_all(self) -> None:
        self.held.clear()
        self.pauses += 1
        self.jobs.clear()
