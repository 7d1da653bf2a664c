"""The state machine of one export, as a table. It is pure, and only this module changes a phase.

NEW → INITIATING → INITIATED → READY → RESOLVED → PUBLISHED, or FAILED.

1. A phase says what is certain and on disk: INITIATING that a submission may have been sent, INITIATED which job it became,
   READY that the job succeeded, RESOLVED that its files are complete, PUBLISHED that the output has their rows.
2. FAILED means that the API failed or refused the export; a retry submits a new job. A temporary problem (an outage, a
   rejected credential, a full disk) changes no phase.
3. A step back always leads to a phase whose work can be repeated safely.
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
        """The export needs no more requests to the API."""
        return self in _SETTLED


_SETTLED = frozenset((Phase.RESOLVED, Phase.PUBLISHED, Phase.FAILED))


class PhaseEvent(StrEnum):
    SEND = "send"  # the submission is about to be sent
    ACCEPTED = "accepted"  # the API returned the job
    ENDED = "ended"  # the job succeeded
    FETCHED = "fetched"  # its files are on disk
    PUBLISHED = "published"  # the output has its rows
    REFUSED = "refused"  # the API refused it or failed
    LOST = "lost"  # its files are no longer on disk
    REOPENED = "reopened"  # its files are normalized again
    AGAIN = "again"  # it starts again


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
    """A downloaded file: its name in the folder of the export, and its expected size and hash."""

    name: str
    size: int
    sha256: str


class Export(msgspec.Struct, frozen=True, kw_only=True):
    """One export in the checkpoint. `key` is a hash of the request: another request is another export."""

    key: str
    name: str  # for display: `gradebook course=12 term=3`
    dataset: str
    output: str  # the path of the output that gets its rows
    phase: Phase = Phase.NEW
    attempt: int = 0  # counts submissions; a repeated submission has the same number
    ref: Ref | None = None
    submitted_at: float | None = None  # epoch seconds
    files: tuple[DownloadedFile, ...] = ()
    error: ErrorInfo | None = None  # why it failed, or why it stopped


_NOTHING: dict[str, Any] = {"ref": None, "submitted_at": None, "files": (), "error": None}


def advance(export: Export, event: PhaseEvent, **known: Any) -> Export:
    """The export after an event. ValueError if the table does not allow it."""
    after = TRANSITIONS.get((export.phase, event))
    if after is None:
        raise ValueError(f"{export.name} is {export.phase}, which does not allow the event {event}")
    if after is Phase.NEW:
        return msgspec.structs.replace(export, phase=after, **_NOTHING)
    if (export.phase, event) == (Phase.NEW, PhaseEvent.SEND):
        known = {"attempt": export.attempt + 1, **known}
    if event is PhaseEvent.LOST:
        known = {"files": (), **known}
    return msgspec.structs.replace(export, phase=after, **{"error": None, **known})
