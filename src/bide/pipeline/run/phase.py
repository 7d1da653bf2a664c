"""The state machine of one export, as a table: pure, and all that may change a phase is in this file.

NEW → INITIATING → INITIATED → READY → RESOLVED → PUBLISHED, or FAILED.

1. A phase says what is known for certain and on disk: INITIATING that a submission may have been sent, INITIATED which
   job it became, READY that this job ended well, RESOLVED that its files are whole, PUBLISHED that their rows are.
2. FAILED is the API's own verdict about an export; doing it again begins with a new job. What only could not be finished
   for now (an outage, a denied credential, a full disk) changes no phase.
3. A step back is always to a phase whose work can be repeated without harm.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from bide.client.apis.answers import Ref
from bide.core.errors import ErrorInfo


class Phase(StrEnum):
    NEW = "NEW"
    INITIATING = "INITIATING"
    INITIATED = "INITIATED"
    READY = "READY"
    RESOLVED = "RESOLVED"
    PUBLISHED = "PUBLISHED"
    FAILED = "FAILED"

    @property
    def settled(self) -> bool:
        """Nothing more is to be asked of the API."""
        return self in _SETTLED


_SETTLED = frozenset((Phase.RESOLVED, Phase.PUBLISHED, Phase.FAILED))


class PhaseEvent(StrEnum):
    SEND = "send"  # the submission is about to go out
    ACCEPTED = "accepted"  # the API named its job
    ENDED = "ended"  # the job ended well
    FETCHED = "fetched"  # what it made is on disk
    PUBLISHED = "published"  # and in its output
    REFUSED = "refused"  # the API does not do it, or did not manage to
    LOST = "lost"  # files of it are not on disk any more
    REOPENED = "reopened"  # its output is to be made anew, of the files that are still there
    AGAIN = "again"  # it is to be done from the beginning


TRANSITIONS: dict[tuple[Phase, PhaseEvent], Phase] = {
    (Phase.NEW, PhaseEvent.SEND): Phase.INITIATING,
    (Phase.INITIATING, PhaseEvent.SEND): Phase.INITIATING,
    (Phase.INITIATING, PhaseEvent.ACCEPTED): Phase.INITIATED,
    (Phase.INITIATED, PhaseEvent.ENDED): Phase.READY,
    (Phase.READY, PhaseEvent.FETCHED): Phase.RESOLVED,
    (Phase.RESOLVED, PhaseEvent.PUBLISHED): Phase.PUBLISHED,
    (Phase.INITIATING, PhaseEvent.REFUSED): Phase.FAILED,
    (Phase.INITIATED, PhaseEvent.REFUSED): Phase.FAILED,
    (Phase.READY, PhaseEvent.REFUSED): Phase.FAILED,
    (Phase.RESOLVED, PhaseEvent.LOST): Phase.READY,
    (Phase.PUBLISHED, PhaseEvent.REOPENED): Phase.RESOLVED,
    (Phase.INITIATED, PhaseEvent.AGAIN): Phase.NEW,
    (Phase.READY, PhaseEvent.AGAIN): Phase.NEW,
    (Phase.RESOLVED, PhaseEvent.AGAIN): Phase.NEW,
    (Phase.PUBLISHED, PhaseEvent.AGAIN): Phase.NEW,
    (Phase.FAILED, PhaseEvent.AGAIN): Phase.NEW,
}


class DownloadedFile(msgspec.Struct, frozen=True):
    """A file that was downloaded: its name in the export's folder, and what must still be true of it."""

    name: str
    size: int
    sha256: str


class Export(msgspec.Struct, frozen=True, kw_only=True):
    """One export as the checkpoint has it. `key` is a hash of all that is asked for: another question is another export."""

    key: str
    name: str  # for people: `gradebook course=12 term=3`
    dataset: str
    output: str  # the path that its rows go into
    phase: Phase = Phase.NEW
    attempt: int = 0  # grows with each submission that is not the repetition of one
    ref: Ref | None = None
    submitted_at: float | None = None  # epoch seconds
    files: tuple[DownloadedFile, ...] = ()
    error: ErrorInfo | None = None  # why it failed, or why it stopped where it is


_NOTHING: dict[str, Any] = {"ref": None, "submitted_at": None, "files": (), "error": None}


def advance(export: Export, event: PhaseEvent, **known: Any) -> Export:
    """The export after an event; ValueError when the table has no such step."""
    after = TRANSITIONS.get((export.phase, event))
    if after is None:
        raise ValueError(f"{export.name} is {export.phase}: {event} makes no sense")
    if after is Phase.NEW:
        return msgspec.structs.replace(export, phase=after, **_NOTHING)
    if (export.phase, event) == (Phase.NEW, PhaseEvent.SEND):
        known = {"attempt": export.attempt + 1, **known}
    if event is PhaseEvent.LOST:
        known = {"files": (), **known}
    return msgspec.structs.replace(export, phase=after, **{"error": None, **known})
