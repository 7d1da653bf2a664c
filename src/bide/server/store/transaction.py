"""A transaction as the operations see it: each job is read once and written once, and its events are told at the end.

What is known here is memory only; a store says how it reads and writes. `transactions` has what is done with it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal

import msgspec

from bide.core.record import Job
from bide.core.upload import Upload
from bide.core.wire import Event, facts
from bide.server.store import ClaimRequest, InputFile, NewJob

Due = tuple[Job, bytes, tuple[InputFile, ...]]  # a job that could be claimed, with what it needs to run
encode: Callable[[Any], bytes] = msgspec.json.Encoder().encode
_read_files = msgspec.json.Decoder(tuple[InputFile, ...])


def text_of(files: Sequence[InputFile]) -> str | None:
    return encode(files).decode() if files else None


def files_of(text: str | None) -> tuple[InputFile, ...]:
    return _read_files.decode(text) if text else ()


def ready(job: Job, now: float) -> bool:
    """It can be claimed now."""
    return job.due is not None and job.due <= now


class Transaction(ABC):
    """One transaction and its time."""

    __slots__ = ("_jobs", "_new", "_stored", "_touched", "_uploads", "_uses", "events", "now")

    FEW: ClassVar[int] = 8  # new jobs that a claim looks through in memory

    def __init__(self, now: float) -> None:
        self.now = now
        self.events: list[Event] = []
        self._jobs: dict[str, Job | None] = {}  # as they are now; None: removed
        self._stored: dict[str, Job] = {}  # as they are in the table, of those that differ
        self._new: dict[str, NewJob] = {}  # not in the table yet
        self._uploads: dict[str, Upload | None] = {}  # as they are now; None: there is none
        self._touched: set[str] = set()  # of the uploads, those that differ from the table
        self._uses: list[tuple[str, str, str]] = []  # upload, job, tenant; not in the table yet

    # --- what a store provides

    @abstractmethod
    def read(self, job_id: str) -> Job | None:
        """The job as it is in the table. Nobody else changes it until this transaction has ended."""

    @abstractmethod
    def candidates(self, want: ClaimRequest, limit: int) -> list[Due]:
        """The first `limit` of the table that can be claimed: by priority, then in the order of submission."""

    @abstractmethod
    def paused(self, *, sure: bool = False) -> frozenset[str]:
        """The queues that nothing is to be claimed from; `sure`: from the table, whatever was remembered."""

    @abstractmethod
    def pause(self, queue: str, paused: bool) -> None: ...

    @abstractmethod
    def key(self, tenant: str, kind: str, key: str) -> tuple[bytes, str] | None:
        """The fingerprint that an idempotency key was used for, and the job that it has led to."""

    @abstractmethod
    def keep_key(self, new: NewJob) -> None: ...

    @abstractmethod
    def steps(self, job_id: str, limit: int) -> dict[str, msgspec.Raw]:
        """The results of its kept steps, as many as fit into `limit` bytes."""

    @abstractmethod
    def keep_step(self, job: Job, name: str, result: msgspec.Raw) -> None: ...

    @abstractmethod
    def was_removed(self, job_id: str) -> bool: ...

    @abstractmethod
    def bury(self, job_id: str, tenant: str) -> None:
        """Removes the job with all that belongs to it from the tables, and remembers that there was one. The caller's key
        stays, and from now on its age counts from the job's end.
        """

    @abstractmethod
    def flush_changes(self) -> None:
        """Puts the jobs that differ into the table."""

    @abstractmethod
    def flush_new(self) -> None:
        """Puts new jobs into the table."""

    @abstractmethod
    def keep_files(self, job_id: str, files: Sequence[InputFile]) -> None:
        """The files of an input that came later than the job."""

    @abstractmethod
    def read_upload(self, upload_id: str) -> Upload | None:
        """As it is in the table. Nobody else changes it until this transaction has ended."""

    @abstractmethod
    def user_of(self, upload_id: str) -> str | None:
        """A job that needs the upload. All uses are in the table."""

    @abstractmethod
    def flush_uploads(self) -> None:
        """Puts uploads that differ, and new uses, into the tables."""

    def already(self, job_id: str) -> Job | None:
        """A new job that may have been stored before: in a transaction whose end was not heard of."""
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
        self.bury(job_id, tenant)

    def flush(self) -> None:
        """Everything into the tables: before a question about all of them, and at the end."""
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
        """It is remembered that there was one."""
        self._uploads[upload.id] = None
        self._touched.add(upload.id)

    def use_upload(self, upload_id: str, job: Job) -> None:
        self._uses.append((upload_id, job.id, job.tenant))

    def take_uses(self) -> list[tuple[str, str, str]]:
        """New ones, of jobs that there still are."""
        uses, self._uses = self._uses, []
        return [use for use in uses if self.job(use[1]) is not None]

    def take_touched(self) -> tuple[list[Upload], list[str]]:
        """Uploads to be written, and those to be removed."""
        touched, self._touched = sorted(self._touched), set()
        found = [(upload_id, self._uploads[upload_id]) for upload_id in touched]
        return [u for _, u in found if u is not None], [i for i, u in found if u is None]

    # --- new jobs

    def fresh(self, want: ClaimRequest) -> list[Due]:
        """What is wanted of the new jobs. Where they are few they stay out of the table until the end, so that one that is
        claimed at once is written once, as a job that runs. All others are in the table after this.
        """
        if len(self._new) > self.FEW:
            self.flush_new()
        found = []
        for job_id, new in self._new.items():
            job = self._jobs[job_id]
            assert job is not None
            wanted = want.job in (None, job_id) and job.queue == want.queue and job.kind in want.kinds
            if wanted and ready(job, self.now):
                found.append((job, new.input, new.files))
        return found

    # --- events

    def tell(
        self, job: Job, type_: Literal["status", "step", "log"], more: dict[str, Any] | None = None
    ) -> None:
        known = facts(job)
        if more:
            known.update(more)
        self.events.append(Event(self.number(), job.id, type_, self.now, known, job.tenant))

    def number(self) -> int:
        """Of the next event; 0 where it is only known at the end."""
        return 0
