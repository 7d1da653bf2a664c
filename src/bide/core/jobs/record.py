"""The record of a job, as the store keeps it. Only data; state_machine.py defines how it changes."""

from __future__ import annotations

import enum

import msgspec

from bide.core.errors import ErrorInfo

MAX_CHILDREN = 1000


class Status(enum.StrEnum):
    UPLOADING = "UPLOADING"
    PENDING = "PENDING"
    PROCESSING = "PROCESSING"
    RETRYING = "RETRYING"
    DONE = "DONE"
    PARTIAL_SUCCESS = "PARTIAL_SUCCESS"
    ERROR = "ERROR"
    CANCELLED = "CANCELLED"

    @property
    def terminal(self) -> bool:
        return self in TERMINAL


TERMINAL = frozenset({Status.DONE, Status.PARTIAL_SUCCESS, Status.ERROR, Status.CANCELLED})
LIVE = frozenset(Status) - TERMINAL
SUCCESSFUL = frozenset({Status.DONE, Status.PARTIAL_SUCCESS})
FAILED = TERMINAL - SUCCESSFUL


class Progress(msgspec.Struct, frozen=True):
    percent: float | None = None
    message: str | None = None
    step: str | None = None
    done: int | float | None = None
    total: int | float | None = None
    unit: str | None = None


class Step(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str
    status: Status
    started_at: float | None = None  # None: an older version stored it, or it must run again
    finished_at: float | None = None


class Child(msgspec.Struct, frozen=True):
    """A job that this one has spawned. A repeated spawn finds it by `key`; `status` is None until it has ended."""

    job_id: str
    kind: str
    key: str
    status: Status | None = None


class LossRecord(msgspec.Struct, frozen=True):
    """The progress of the attempts of a run, to distinguish a job that kills its workers from one that advances."""

    # Losses of this run up to the last attempt that made more progress than every earlier one.
    restarted_at: int = 0
    steps: int = 0  # the most finished steps at the end of an attempt
    percent: float = 0.0  # the highest progress at the end of an attempt


class FileInfo(msgspec.Struct, frozen=True):
    """A file that belongs to a job; `blob` names its stored bytes."""

    name: str
    content_type: str
    size: int
    sha256: str
    blob: str


class Job(msgspec.Struct, frozen=True):
    """One unit of work, as the store keeps it."""

    id: str
    kind: str
    queue: str
    created_at: float
    updated_at: float
    tenant: str = "-"
    status: Status = Status.PENDING
    version: int = 1
    run: int = 1  # 0 until its files are uploaded
    priority: int = 0
    labels: dict[str, str] = {}
    # When it may be claimed, and when it must have ended.
    run_at: float | None = None
    due: float | None = None
    deadline: float | None = None
    # Attempts.
    attempt: int = 0
    max_attempts: int = 1
    failures: int = 0
    losses: int = 0
    loss_record: LossRecord | None = None
    fence: int = 0
    owner: str | None = None
    lease_until: float | None = None
    started_at: float | None = None
    next_attempt_at: float | None = None
    cancel_asked_at: float | None = None
    # The end.
    finished_at: float | None = None
    keep: float | None = None  # seconds after the end; None: forever
    expires_at: float | None = None
    result: msgspec.Raw | None = None
    result_file: FileInfo | None = None
    error: ErrorInfo | None = None
    # Progress, finished steps and output files.
    progress: Progress | None = None
    steps: tuple[Step, ...] = ()
    files: tuple[FileInfo, ...] = ()
    # Parent and children.
    parent: str | None = None
    children: tuple[Child, ...] = ()
    waiting_for: tuple[str, ...] | None = None
    trace_id: str | None = None
    lease_seconds: float | None = None  # of the latest claim; None: claimed by an older version
    # When the running attempt was found to be much longer than others of the kind.
    overdue_at: float | None = None
    webhook: str | None = None  # the events that its own webhook receives, separated by commas
    # Jobs with the same one share the limit of their kind on concurrent jobs; None: it has no limit.
    concurrency_key: str | None = None
    # The W3C tracestate of a job whose spans are exported, often empty; None: the job is not traced.
    tracestate: str | None = None

    @property
    def parked(self) -> bool:
        """Its handler waits until its children have ended, and holds no worker."""
        return self.waiting_for is not None

    @property
    def held(self) -> bool:
        """A worker has it: it runs, or that worker has prefetched it."""
        return self.lease_until is not None

    @property
    def running(self) -> bool:
        return self.lease_until is not None and self.status is Status.PROCESSING
