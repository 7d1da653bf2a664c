"""What a process remembers of the database between transactions. Another process may change any of it at any time: whoever
uses it checks it, or sees to it that word of the change would have arrived.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable

from bide.core.record import Job
from bide.server.store.job_cache import JobCache


class PostgresCache:
    """Jobs that it holds, what polls have read, which queues are paused."""

    def __init__(self) -> None:
        self.held: dict[
            str, Job
        ] = {}  # as they were last written; forgotten when others may have changed them
        self.mine: dict[str, int] = {}  # the fences of all that this process was told that it has
        self.owners: set[str] = set()  # under which names this process has claimed
        self.recent = JobCache()
        # Until this moment of time.monotonic() notifications of other processes' changes are known to arrive.
        self.until = -math.inf
        self._paused: tuple[int, frozenset[str]] | None = None  # None: to be read
        self.pauses = 0  # how often it was changed

    @property
    def alive(self) -> bool:
        return time.monotonic() < self.until

    @property
    def paused(self) -> frozenset[str] | None:
        """None: to be read. What was read before a pause that was heard of meanwhile does not count."""
        known = self._paused
        return known[1] if known is not None and known[0] == self.pauses and self.alive else None

    def keep_paused(self, paused: frozenset[str], pauses: int) -> None:
        """They were read after `pauses` was noted."""
        self._paused = (pauses, paused)

    def forget(self, job_ids: Iterable[str]) -> None:
        """Another process has changed them."""
        for job_id in job_ids:
            self.held.pop(job_id, None)

    def forget_all(self) -> None:
        self.held.clear()
        self.pauses += 1
        self.recent.clear()
