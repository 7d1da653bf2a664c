"""The Shelf port: where processes lay the latest progress of the jobs that they run, for all others to see.

Rules that every shelf keeps, and that `bide.testing.progress` checks:
1. What was put last for an attempt is what `get` finds, in every process, until LIFE seconds after the last `put`.
2. A job and its fence name an attempt: one that has lost its job never hides what the next one reports.
3. It may forget anything at any time, and be away: that costs freshness, and nothing else. So both may raise.

`told.Progresses` is what the rest of the working end uses; it has a shelf, and copies of what is asked about.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from bide.core.record import Progress

LIFE = 60.0  # seconds; whoever runs a job puts its progress again long before that
Attempt = tuple[str, int]  # a job and its fence


class Live(msgspec.Struct, frozen=True):
    """The progress of a running job: the latest, how many there were before it in this attempt, and when it came."""

    number: int
    progress: Progress
    at: float = 0.0


class Publisher(Protocol):
    """What whoever runs jobs needs. Never blocks and never fails."""

    def publish(self, attempt: Attempt, live: Live) -> None:
        """This is its progress now. With number 0 at its beginning: it is run here, and has reported nothing yet."""
        ...

    def ended(self, attempt: Attempt) -> None:
        """Its record is stored, progress included; or it is somebody else's now."""
        ...


class Shelf(Protocol):
    """Each call is one round trip."""

    async def put(self, batch: Mapping[Attempt, Live]) -> None: ...

    async def get(self, attempts: Sequence[Attempt]) -> dict[Attempt, Live]:
        """Those that it has."""
        ...

    async def close(self) -> None: ...
