"""JobState: one job at an API, as its answers describe it, and the listeners that wait for it."""

from __future__ import annotations

from typing import Any, Protocol

from bide.client.apis import GONE, NOT_FOUND, Ref, Seen
from bide.client.apis.bide import ENDINGS
from bide.core.clock import render_instant
from bide.core.jobs.record import Progress, Status
from bide.core.wire.http import JobStatus, WireFile

# The seconds that a job takes: about this number, or from the first to the second number.
Expected = float | tuple[float, float]
_STATUS = {state: Status(status) for status, state in ENDINGS.items()}


class JobListener(Protocol):
    """Waits for a job."""

    wants_changes: bool  # False: it needs only the end

    def changed(self, job: JobState) -> None: ...

    def ended(self, job: JobState) -> None: ...


class JobState:
    """The state of one job. It has slots because a client may wait for a hundred thousand jobs."""

    __slots__ = (
        "_latest",
        "_latest_seen",
        "acknowledged",
        "asked_at",
        "body",
        "cancelling",
        "context",
        "denied",
        "error",
        "etag",
        "expected",
        "explained",
        "failures",
        "job_id",
        "kind",
        "listeners",
        "planned",
        "ref",
        "replayed",
        "requests",
        "seen",
        "since",
        "size",
        "stored",
        "submitted_at",
    )

    def __init__(
        self,
        ref: Ref,
        kind: str = "",
        submitted_at: float | None = None,
        job_id: str | None = None,
    ) -> None:
        self.ref = ref
        # Identifies the job at its API (Api.job_id). It stays the same when the job moves to another address.
        self.job_id = ref.id if job_id is None else job_id
        self.kind = kind
        self.size = ""
        self.expected: Expected | None = None  # instead of that of the client
        # Epoch seconds. None: another process submitted it.
        self.submitted_at = submitted_at
        self.since: float | None = None  # epoch seconds; when another process began to wait for it
        self.asked_at: float | None = None  # epoch seconds; when another process last polled it
        self.seen: Seen | None = None  # the last answer about the job
        self.error: Exception | None = None  # why the wait ended before the job did
        self.body: int | None = None  # the hash of the last answer's body
        self.explained = False  # the cause of its failure was requested
        self.cancelling = False  # the API has accepted a cancel
        self.stored = False  # the ledger has it
        self.replayed = False  # an earlier submission has created the job
        self.acknowledged = False  # the ledger has its outcome as processed
        self.etag: str | None = None
        self.requests = 0
        self.failures = 0  # consecutive polls without an answer about the job
        self.denied = 0  # consecutive denials after each of which the credential was renewed
        self.context: Any = None  # of OpenTelemetry, in which it was submitted or awaited
        self.planned: Any = None  # its entry in the schedule, during a wait
        self.listeners: tuple[JobListener, ...] = ()
        self._latest: JobStatus | None = None
        self._latest_seen: Seen | None = None  # the answer that `_latest` was made from

    def __repr__(self) -> str:
        return f"<{self.job_id} {self.status or 'not asked yet'}>"

    def take(self, seen: Seen) -> None:
        """Store an answer. A job that is gone after a cancel counts as cancelled: some APIs delete it."""
        gone = seen.error is not None and seen.error.code in (NOT_FOUND, GONE)
        self.seen = Seen(state="cancelled") if gone and self.cancelling else seen

    @property
    def over(self) -> bool:
        return self.error is not None or (self.seen is not None and self.seen.terminal)

    @property
    def ended(self) -> bool:
        return self.seen is not None and self.seen.terminal

    @property
    def status(self) -> Status | None:
        seen = self.seen
        if seen is None:
            return None
        return (
            seen.record.status if seen.record is not None else _STATUS.get(seen.state, Status.PROCESSING)
        )

    @property
    def latest(self) -> JobStatus | None:
        """The last answer as a status resource; None before the first one. Fields that the API does not have are null."""
        seen = self.seen
        if seen is None or seen.record is not None:
            return None if seen is None else seen.record
        if self._latest_seen is seen:
            return self._latest
        done, total = seen.counts or (None, None)
        moved = seen.progress is not None or seen.message is not None or done is not None
        percent = None if seen.progress is None else 100.0 * seen.progress
        began = seen.started_at or self.submitted_at
        instant = render_instant(began) if began is not None else ""
        self._latest_seen = seen
        self._latest = JobStatus(
            job_id=self.job_id,
            kind=self.kind,
            status=_STATUS.get(seen.state, Status.PROCESSING),
            cancel_requested=self.cancelling,
            progress=Progress(percent=percent, message=seen.message or seen.word, done=done, total=total)
            if moved
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
        return self._latest
