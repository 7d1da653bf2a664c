"""One job at an API, as far as its answers have told: what it is, how it goes, and who wants to know."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from bide.client.apis import GONE, NOT_FOUND, Ref, Seen, State
from bide.core.clock import render_instant
from bide.core.record import Progress, Status
from bide.core.wire import JobStatus, WireFile

if TYPE_CHECKING:
    from bide.client.polling.planned_job import Waited

ENDINGS: dict[str, State] = {
    Status.DONE: "done",
    Status.PARTIAL_SUCCESS: "partial",
    Status.ERROR: "failed",
    Status.CANCELLED: "cancelled",
}
_STATUS = {state: Status(status) for status, state in ENDINGS.items()}


class Listener(Protocol):
    """Who waits for a job."""

    def changed(self, job: Tracked) -> None: ...

    def ended(self, job: Tracked) -> None: ...


class Tracked:
    """Small, for there may be a hundred thousand of them."""

    __slots__ = (
        "asked_at",
        "body",
        "cancelling",
        "denied",
        "error",
        "etag",
        "failures",
        "job_id",
        "kind",
        "listeners",
        "ref",
        "requests",
        "seen",
        "since",
        "size",
        "submitted_at",
        "waited",
    )

    def __init__(
        self,
        ref: Ref,
        kind: str = "",
        submitted_at: float | None = None,
        job_id: str | None = None,
    ) -> None:
        self.ref = ref
        # What identifies it at its API (Api.job_id). It stays the same when the job moves to another address.
        self.job_id = ref.id if job_id is None else job_id
        self.kind = kind
        self.size = ""
        self.submitted_at = submitted_at  # epoch seconds; None: not by us
        self.since: float | None = None  # epoch seconds; when another process began to wait for it
        self.asked_at: float | None = None  # epoch seconds; when another process last saw it
        self.seen: Seen | None = None  # the last answer that told something
        self.error: Exception | None = None  # why nothing more will be heard of it
        self.body: int | None = None  # the hash of that answer's body
        self.cancelling = False  # the API has taken a cancel
        self.etag: str | None = None
        self.requests = 0
        self.failures = 0  # polls in a row that told nothing
        self.denied = 0  # answers in a row that did, after each of which another credential was found
        self.waited: Waited | None = None  # its place in the schedule, while it is waited for
        self.listeners: tuple[Listener, ...] = ()

    def __repr__(self) -> str:
        return f"<{self.job_id} {self.status or 'not asked yet'}>"

    def take(self, seen: Seen) -> None:
        """What an answer told. A job that is gone after a cancel was cancelled: some APIs delete it."""
        gone = seen.error is not None and seen.error.code in (NOT_FOUND, GONE)
        self.seen = Seen(state="cancelled") if gone and self.cancelling else seen

    @property
    def over(self) -> bool:
        return self.error is not None or (self.seen is not None and self.seen.terminal)

    @property
    def status(self) -> Status | None:
        seen = self.seen
        if seen is None:
            return None
        return (
            seen.record.status if seen.record is not None else _STATUS.get(seen.state, Status.PROCESSING)
        )

    def record(self) -> JobStatus | None:
        """In the words of a bide service; what the API did not say is null."""
        seen = self.seen
        if seen is None or seen.record is not None:
            return None if seen is None else seen.record
        done, total = seen.counts or (None, None)
        told = seen.progress is not None or seen.message is not None or done is not None
        percent = None if seen.progress is None else 100.0 * seen.progress
        began = seen.started_at or self.submitted_at
        instant = render_instant(began) if began is not None else ""
        return JobStatus(
            job_id=self.job_id,
            kind=self.kind,
            status=_STATUS.get(seen.state, Status.PROCESSING),
            progress=Progress(percent=percent, message=seen.message or seen.word, done=done, total=total)
            if told
            else None,
            created_at=instant,
            updated_at=instant,
            started_at=None if seen.started_at is None else render_instant(seen.started_at),
            finished_at=None if seen.finished_at is None else render_instant(seen.finished_at),
            expires_at=None if seen.expires_at is None else render_instant(seen.expires_at),
            result=seen.result if seen.result is not None else seen.result_url,
            files=tuple(
                WireFile(f.name, f.content_type or "", f.size or 0, f.sha256 or "", f.url)
                for f in seen.files
            ),
            error=seen.error,
        )
