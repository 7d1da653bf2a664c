"""The ProgressStore port: processes share the latest progress of the jobs that they run.

Rules that `bide.testing.progress` checks for every progress store:
1. `get` returns the last progress that was put for an attempt, in every process, until LIFE seconds after that `put`.
2. `attempt_key` identifies an attempt: an attempt that has lost its job never hides the progress of the next one.
3. A store may forget anything at any time and may be unavailable. Only the freshness of progress depends on it, so `put`
   and `get` may raise.

The rest of the server uses `publisher.ProgressPublisher`, which has a progress store and a cache of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol
from zlib import crc32

import msgspec

from bide.core.jobs.record import Job, Progress

LIFE = 60.0  # seconds; a running attempt puts its progress again long before that
AttemptKey = tuple[str, int]  # a job id and a number that grows with its fence
_OWNER_BITS = 24


def attempt_key(job: Job) -> AttemptKey:
    """The key of a held job's attempt. The number includes the owner, because after a failover that lost a claim the next
    attempt may have the same fence.
    """
    if job.owner is None:
        return job.id, job.fence
    return job.id, job.fence << _OWNER_BITS | crc32(job.owner.encode()) >> (32 - _OWNER_BITS)


class LiveProgress(msgspec.Struct, frozen=True):
    """The latest progress of a running job: its number within the attempt, and when it was reported."""

    number: int
    progress: Progress
    at: float = 0.0


class ProgressSink(Protocol):
    """Receives the progress of running attempts. Never blocks and never fails."""

    def publish(self, attempt: AttemptKey, live: LiveProgress) -> None:
        """Set the attempt's progress. Number 0 at its start: this process runs it, and it has reported nothing yet."""
        ...

    def ended(self, attempt: AttemptKey) -> None:
        """Forget the attempt: its end and its last progress are stored, or it has lost its lease."""
        ...


class ProgressStore(Protocol):
    """Stores the latest progress by attempt. Each call is one round trip."""

    async def put(self, batch: Mapping[AttemptKey, LiveProgress]) -> None: ...

    async def get(self, attempts: Sequence[AttemptKey]) -> dict[AttemptKey, LiveProgress]:
        """The progress of those attempts that the store knows."""
        ...

    async def close(self) -> None: ...
