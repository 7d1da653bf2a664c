"""The Shelf port: where processes lay the latest progress of the jobs that they run, for all others to see.

Rules that every shelf keeps, and that `bide.testing.progress` checks:
1. What was put last for an attempt is what `get` finds, in every process, until LIFE seconds after the last `put`.
2. `attempt_of` names an attempt: one that has lost its job never hides what the next one reports.
3. It may forget anything at any time, and be away: that costs freshness, and nothing else. So both may raise.

`told.Progresses` is what the rest of the working end uses; it has a shelf, and copies of what is asked about.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol
from zlib import crc32

import msgspec

from bide.core.record import Job, Progress

LIFE = 60.0  # seconds; whoever runs a job puts its progress again long before that
AttemptKey = tuple[str, int]  # a job and a number that grows with its fence
_OWNER_BITS = 24


def attempt_key(job: Job) -> AttemptKey:
    """The attempt that a held job's record is about. The number has the owner in it: after a failover that lost a claim the
    next attempt may have the same fence.
    """
    if job.owner is None:
        return job.id, job.fence
    return job.id, job.fence << _OWNER_BITS | crc32(job.owner.encode()) >> (32 - _OWNER_BITS)


class LiveProgress(msgspec.Struct, frozen=True):
    """The progress of a running job: the latest, how many there were before it in this attempt, and when it came."""

    number: int
    progress: Progress
    at: float = 0.0


class ProgressSink(Protocol):
    """What whoever runs jobs needs. Never blocks and never fails."""

    def publish(self, attempt: AttemptKey, live: LiveProgress) -> None:
        """This is its progress now. With number 0 at its beginning: it is run here, and has reported nothing yet."""
        ...

    def ended(self, attempt: AttemptKey) -> None:
        """Its record is stored, progress included; or it is somebody else's now."""
        ...


class ProgressStore(Protocol):
    """Each call is one round trip."""

    async def put(self, batch: Mapping[AttemptKey, LiveProgress]) -> None: ...

    async def get(self, attempts: Sequence[AttemptKey]) -> dict[AttemptKey, LiveProgress]:
        """Those that it has."""
        ...

    async def close(self) -> None: ...
