"""A queue of jobs that have ended, for a caller that waits for many jobs without a task for each."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from bide.client.job_state import JobState


class Completions:
    """A listener of many jobs. `on_change` is called at each change of a job, and at its end."""

    def __init__(self, on_change: Callable[[JobState], object] | None) -> None:
        self.wants_changes = on_change is not None
        self._on_change = on_change
        self._ended: deque[JobState] = deque()
        self._wake = asyncio.Event()
        self._fault: Exception | None = None  # of `on_change`: it is raised to the caller

    async def next(self, timeout: float | None) -> JobState | None:
        """The next job that has ended; None at the timeout."""
        while not self._ended or self._fault is not None:
            if self._fault is not None:
                raise self._fault
            self._wake.clear()
            try:
                async with asyncio.timeout(timeout):
                    await self._wake.wait()
            except TimeoutError:
                return None
        return self._ended.popleft()

    def changed(self, job: JobState) -> None:
        if self._on_change is None or self._fault is not None:
            return
        try:
            self._on_change(job)
        except Exception as error:  # an error of the caller's function must not stop the poller
            self._fault = error
            self._wake.set()

    def ended(self, job: JobState) -> None:
        if self._on_change is not None:
            self.changed(job)
        self._ended.append(job)
        self._wake.set()
