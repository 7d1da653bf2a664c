"""A transaction as the operations see it: each job is read once and written once, and events are collected.

This class keeps the state of the transaction in memory; each store's subclass reads and writes rows. `operations` uses it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal

import msgspec

from bide.core.jobs.record import Job
from bide.core.wire.http import Event, facts
from bide.server.store import ClaimRequest, InputFile, NewJob
from bide.server.upload_record import Upload

Due = tuple[Job, bytes, tuple[InputFile, ...]]  # a claimable job, its input and its files
encode: Callable[[Any], bytes] = msgspec.json.Encoder().encode
_read_files = msgspec.json.Decoder(tuple[InputFile, ...])


def text_of(files: Sequence[InputFile]) -> str | None:
    return encode(files).decode() if files else None


def files_of(text: str | None) -> tuple[InputFile, ...]:
    return _read_files.decode(text) if text else ()


def ready(job: Job, now: float) -> bool:
    """Whether the job can be claimed now."""
    return job.due is not None and job.due <= now


class Transaction(ABC):
    """One transaction and its timestamp."""

    __slots__ = ("_jobs", "_new", "_stored", "_touched", "_uploads", "_uses", "events", "now")

    FEW: ClassVar[int] = 8  # up to this many new jobs, a claim searches them in memory

    def __init__(self, now: float) -> None:
        self.now = now
        self.events: list[Event] = []
        self._jobs: dict[str, Job | None] = {}  # current state; None: removed
        self._stored: dict[str, Job] = {}  # changed jobs as they are in the table
        self._new: dict[str, NewJob] = {}  # not in the table yet
        self._uploads: dict[str, Upload | None] = {}  # current state; None: does not exist
        self._touched: set[str] = set()  # uploads that differ from the table
        self._uses: list[tuple[str, str, str]] = []  # upload, job, tenant; not in the table yet

    # --- implemented by each store

    @abstractmethod
    def read(self, job_id: str) -> Job | None:
        """The job as it is in the table. No other transaction changes it until this one ends."""

    @abstractmethod
    def candidates(self, request: ClaimRequest, limit: int) -> list[Due]:
        """The first `limit` claimable jobs in the table: by priority, then in the order of submission."""

    @abstractmethod
    def paused(self, *, sure: bool = False) -> frozenset[str]:
        """The paused queues; with `sure`, read from the table and not from a cache."""

    @abstractmethod
    def pause(self, queue: str, paused: bool) -> None: ...

    @abstractmethod
    def key(self, tenant: str, kind: str, key: str) -> tuple[bytes, str] | None:
        """The fingerprint with which an idempotency key was used, and the id of its job."""

    @abstractmethod
    def keep_key(self, new: NewJob) -> None: ...

    @abstractmethod
    def steps(self, job_id: str, limit: int) -> dict[str, msgspec.Raw]:
        """The results of the job's stored steps, as many as fit into `limit` bytes."""

    @abstractmethod
    def keep_step(self, job: Job, name: str, result: msgspec.Raw) -> None: ...

    @abstractmethod
    def was_removed(self, job_id: str) -> bool: ...

    @abstractmethod
    def delete_rows(self, job_id: str, tenant: str) -> None:
        """Delete the job's rows from all tables and write a tombstone. The caller's idempotency key stays; its age counts
        from the job's end.
        """

    @abstractmethod
    def flush_changes(self) -> None:
        """Write changed jobs to the table."""

    @abstractmethod
    def flush_new(self) -> None:
        """Write new jobs to the table."""

    @abstractmethod
    def keep_files(self, job_id: str, files: Sequence[InputFile]) -> None:
        """Store the files of an input that arrived after the job."""

    @abstractmethod
    def read_upload(self, upload_id: str) -> Upload | None:
        """The upload as it is in the table. No other transaction changes it until this one ends."""

    @abstractmethod
    def user_of(self, upload_id: str) -> str | None:
        """A job that uses the upload. All uses must be in the table."""

    @abstractmethod
    def flush_uploads(self) -> None:
        """Write changed uploads and new uses to the tables."""

    def existing(self, job_id: str) -> Job | None:
        """A new job that a transaction with a lost commit response may have stored already."""
        return None

    # --- jobs

    def job(self, job_id: str) -> Job | None:
        if job_id in self._jobs:
            return self._jobs[job_id]
        return self.read(job_id)

    def create(self, new: NewJob) -> None:
        self._new[new.job.id] = new
        self._jobs[new.job.id] = new.job

    def change(self, before: Job, after: Job) -> None:
        if after.id not in self._new:
            self._stored.setdefault(after.id, before)
        self._jobs[after.id] = after

    def remove(self, job_id: str, tenant: str) -> None:
        self._new.pop(job_id, None)
        self._stored.pop(job_id, None)
        self._jobs[job_id] = None
        self.delete_rows(job_id, tenant)

    def flush(self) -> None:
        """Write everything to the tables; needed before queries over whole tables, and at the end."""
        self.flush_new()
        self.flush_changes()
        self.flush_uploads()

    # --- uploads

    def upload(self, upload_id: str) -> Upload | None:
        if upload_id not in self._uploads:
            self._uploads[upload_id] = self.read_upload(upload_id)
        return self._uploads[upload_id]

    def put_upload(self, upload: Upload) -> None:
        self._uploads[upload.id] = upload
        self._touched.add(upload.id)

    def drop_upload(self, upload: Upload) -> None:
        """Remove an upload; the store writes a tombstone for it."""
        self._uploads[upload.id] = None
        self._touched.add(upload.id)

    def use_upload(self, upload_id: str, job: Job) -> None:
        self._uses.append((upload_id, job.id, job.tenant))

    def take_uses(self) -> list[tuple[str, str, str]]:
        """New uses by jobs that still exist."""
        uses, self._uses = self._uses, []
        return [use for use in uses if self.job(use[1]) is not None]

    def take_touched(self) -> tuple[list[Upload], list[str]]:
        """Uploads to write, and ids of uploads to remove."""
        touched, self._touched = sorted(self._touched), set()
        found = [(upload_id, self._uploads[upload_id]) for upload_id in touched]
        return [u for _, u in found if u is not None], [i for i, u in found if u is None]

    # --- new jobs

    def fresh(self, request: ClaimRequest) -> list[Due]:
        """The new jobs that match a request. Up to FEW new jobs stay out of the table until the end, so that a job that is
        claimed immediately is written only once, as a running job. More of them are written to the table first.
        """
        if len(self._new) > self.FEW:
            self.flush_new()
        found = []
        for job_id, new in self._new.items():
            job = self._jobs[job_id]
            assert job is not None
            if job.queue == request.queue and job.kind in request.kinds and ready(job, self.now):
                found.append((job, new.input, new.files))
        return found

    # --- events

    def add_event(
        self, job: Job, type_: Literal["status", "step", "log"], more: dict[str, Any] | None = None
    ) -> None:
        known = facts(job)
        if more:
            known.update(more)
        self.events.append(Event(self.number(), job.id, type_, self.now, known, job.tenant))

    def number(self) -> int:
        """The number of the next event; 0 if the store assigns numbers at the commit."""
        return 0
