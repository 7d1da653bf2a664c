"""Reports failing polls: at the first failure, then once per minute with a count, and when the API answers again."""

from __future__ import annotations

import asyncio
import logging
import time

from bide.client.apis import Answer, BadPoll
from bide.client.job_state import JobState
from bide.client.timing import Timing

log = logging.getLogger("bide.client")
EVERY = 60.0  # seconds between two reports


class FailureLog:
    """The failing polls of one API. `name` is that of the API."""

    def __init__(self, name: str, timing: Timing) -> None:
        self._name = name
        self._timing = timing
        self._jobs: set[JobState] = set()  # whose last poll failed
        self._count = 0  # failures since the first one
        self._since = 0.0  # epoch seconds
        self._text = ""  # the last failure
        self._timer: asyncio.TimerHandle | None = None

    def failed(self, job: JobState, text: str) -> None:
        self._text = text
        self._jobs.add(job)
        self._count += 1
        if self._count == 1:
            self._since = self._timing.wall()
            log.warning("%s. Retrying", text, extra={"api": self._name, "job_id": job.job_id})
            self._report_later()

    def answered(self, job: JobState) -> None:
        """A poll of the job has succeeded."""
        if self._jobs and job in self._jobs:
            self._jobs.discard(job)
            if not self._jobs:
                self.close()
                log.warning("%s answers again", self._name, extra={"api": self._name})

    def stopped(self, job: JobState) -> None:
        """The wait for the job has ended."""
        if self._jobs and job in self._jobs:
            self._jobs.discard(job)
            if not self._jobs:
                self.close()

    def close(self) -> None:
        self._jobs.clear()
        self._count = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _report_later(self) -> None:
        self._timer = self._timing.later(self._timing.now() + EVERY, self._report)

    def _report(self) -> None:
        failures = "1 failure" if self._count == 1 else f"{self._count} failures"
        since = time.strftime("%H:%M", time.localtime(self._since))
        log.warning("%s. Retrying; %s since %s", self._text, failures, since, extra={"api": self._name})
        self._report_later()


def described(method: str, error: BadPoll, answer: Answer | None) -> str:
    """A failed poll in a few words: the request, the HTTP status, and the reason."""
    if answer is None:
        return str(error)
    path = answer.url.partition("?")[0].rstrip("/")
    return f"{method} …/{path.rpartition('/')[2]} returned {answer.status} ({error.detail})"
