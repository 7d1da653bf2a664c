"""The Store port: what is true. Jobs, their inputs and steps, the event log, keys, queues and learned durations.

Rules that every store keeps, and that `bide.testing.store` checks:
1. A write is on disk before its future resolves.
2. A job, its idempotency key and its first event are written together or not at all. A key outlives its job, so that it
   never makes a second one within its time; the key of a submission by content goes with its job.
3. Every change goes through `core.job.advance` on the stored row, in one transaction with its event and its ripples.
4. Event ids are in commit order, without two the same, over restarts too.
5. `now()` is the only clock of leases, due times and deadlines. It never goes back, and never stands still.
6. Calls of one process are carried out in the order in which they were made; a write is under way when the call
   returns, before its future is awaited. So a claim made right after an insert sees the new job.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import msgspec

from bide.core.errors import SetupError
from bide.core.job import Change, Refused
from bide.core.lease import Lease
from bide.core.record import FileInfo, Job, Status
from bide.core.upload import Upload, upload_of
from bide.core.wire import Event

BY_CONTENT = "≡"  # begins the key of what is the same by its content; a caller's key cannot
STEPS_WITH_CLAIM = 1024 * 1024  # bytes
OnEvents = Callable[[Sequence[Event]], None]
OnWork = Callable[[str, str], None]  # there is work in this queue, of this kind
OnReset = Callable[[], None]  # anything may have changed


class StoreUnavailable(SetupError):
    """The store cannot be used now; nothing of what was asked for is stored, unless the text says that this is not known.
    It also says why, and what to do.

    It may pass: whoever has something that must not be lost keeps it and tries again.
    """


class InputFile(msgspec.Struct, frozen=True):
    """A file that an input refers to, as it was found when the job was accepted."""

    job: str  # or who else owns it: see core.upload
    file: FileInfo

    @property
    def upload(self) -> str | None:
        """The id of the upload that it came with."""
        return upload_of(self.job)


class NewJob(msgspec.Struct, frozen=True):
    """A job to be stored, with what is only needed to run it."""

    job: Job
    input: bytes
    files: tuple[InputFile, ...] = ()
    key: str | None = None  # a caller's, or of its content: see BY_CONTENT
    fingerprint: bytes = b""


class Inserted(msgspec.Struct, frozen=True):
    """The stored job: the new one, or the first one when its idempotency key was used before."""

    job: Job
    created: bool


class KeyConflict(msgspec.Struct, frozen=True):
    """The key was used before, for another body."""

    job_id: str


class KeyGone(msgspec.Struct, frozen=True):
    """The key was used before for the same body, and its job was deleted or purged since."""

    job_id: str


Insertion = Inserted | KeyConflict | KeyGone


class Missing(msgspec.Struct, frozen=True):
    """There is no such job; `gone` when there was one."""

    gone: bool = False


class ClaimRequest(msgspec.Struct, frozen=True):
    """What a worker could take now: up to `limit` jobs of these kinds from this queue.

    The first `begin` of them start at once; the others are reserved: they wait in that worker's line. With `only`,
    the first job of any other kind ends it: nobody overtakes in a queue. With `job`, this one only.
    """

    queue: str
    kinds: tuple[str, ...]
    limit: int
    begin: int = 1 << 30
    only: frozenset[str] | None = None
    job: str | None = None


class Claim(msgspec.Struct, frozen=True):
    """A job that is now this worker's, with all that it needs to run. Of its kept steps as many results as fit into
    STEPS_WITH_CLAIM bytes; `Jobs.step` has the others.
    """

    job: Job
    input: bytes
    files: tuple[InputFile, ...] = ()
    steps: dict[str, msgspec.Raw] = {}
    children: dict[str, Job] = {}


class Filter(msgspec.Struct, frozen=True):
    """Which jobs a list shows, newest first."""

    status: frozenset[Status] = frozenset()
    kind: str | None = None
    queue: str | None = None
    label: tuple[str, str] | None = None
    before: str | None = None  # a job id: only older ones
    limit: int = 50


class QueueState(msgspec.Struct, frozen=True):
    name: str
    paused: bool = False
    waiting: int = 0
    scheduled: int = 0
    running: int = 0
    oldest: float | None = None  # when the oldest waiting job became due


class Overdue(msgspec.Struct, frozen=True):
    """Jobs to be rescued: their leases are void or lost, or their deadlines have passed."""

    leases: tuple[Job, ...] = ()
    deadlines: tuple[Job, ...] = ()


class UploadUpdate(msgspec.Struct, frozen=True):
    """What is on disk of an upload now; None: as before."""

    upload_id: str
    received: int | None = None
    size: int | None = None
    chunk: int | None = None
    expires_at: float | None = None


class CompletedUploads(msgspec.Struct, frozen=True):
    """Uploads that are whole, and the job that they lead to: a new one, or, with `files`, the one that waits for them in
    UPLOADING.
    """

    uploads: tuple[Upload, ...]
    new: NewJob | None = None
    files: tuple[InputFile, ...] = ()


class StoredUploads(msgspec.Struct, frozen=True):
    """Finished uploads as they are stored, and what became of their job."""

    uploads: tuple[Upload, ...]
    job: Insertion | None = None


class UploadBytes(msgspec.Struct, frozen=True):
    """What all uploads take, and what they will take, too, of their declared sizes. `firm`: the part of `reserved` that
    an upload has sent at least as many bytes for.
    """

    stored: int
    reserved: int
    firm: int = 0


class UploadInUse(msgspec.Struct, frozen=True):
    """The upload is this job's, among others."""

    job_id: str


class JobStore(Protocol):
    """The truth about jobs."""

    def now(self) -> float: ...

    async def identity(self) -> str:
        """The id of this database: made with it, kept in it, and so restored with it."""
        ...

    def insert(self, new: Sequence[NewJob]) -> Awaitable[list[Insertion]]: ...

    async def has_key(self, tenant: str, kind: str, key: str) -> bool:
        """Whether this idempotency key was used."""
        ...

    def apply(self, changes: Sequence[Change]) -> Awaitable[list[Job | Refused | Missing]]:
        """Each change on its own job, all in one transaction; a refused one changes nothing."""
        ...

    def spawn(self, change: Change, new: NewJob) -> Awaitable[Job | Refused | Missing]:
        """A parent's `Spawned` and its child, together; the child that its key already names otherwise."""
        ...

    def claim(
        self, owner: str, wants: Sequence[ClaimRequest], limit: int, lease: float
    ) -> Awaitable[list[Claim]]:
        """Up to `limit` due jobs: in the order of the wants, by priority, then oldest first. Paused queues give none."""
        ...

    def renew(
        self, owner: str, held: Sequence[tuple[str, int]], lease: float
    ) -> Awaitable[list[tuple[str, int]]]:
        """Prolongs the owner's leases of (job id, fence); returns those that are lost."""
        ...

    async def get(self, ids: Sequence[str]) -> list[Job | Missing]: ...

    async def find(self, filter: Filter) -> list[Job]: ...

    async def input(self, job_id: str) -> bytes: ...

    async def step(self, job_id: str, name: str) -> bytes | None:
        """The result of a kept step."""
        ...

    async def events(
        self, after: int = 0, job_id: str | None = None, limit: int = 1000
    ) -> list[Event]: ...


class Housekeeping(Protocol):
    """What the upkeep needs."""

    def wake(self) -> Awaitable[tuple[set[tuple[str, str]], float | None]]:
        """Makes due jobs claimable: their (queue, kind) pairs, and when the next one is due."""
        ...

    async def leases(self) -> list[Lease]:
        """All that are held, by owner and `until`, without those that were voided. It never says that one is lost."""
        ...

    async def overdue(self, lost: Sequence[Lease] = (), limit: int = 500) -> Overdue:
        """The jobs whose lease was voided, or is one of `lost`; and those whose deadline has passed."""
        ...

    def check_writable(self) -> Awaitable[None]:
        """Writes a row that nobody reads: Unwritable when the store takes no writes."""
        ...

    async def resume_parked(self, after: str = "", limit: int = 1000) -> tuple[list[str], str | None]:
        """Makes parked jobs due whose `waiting_for` names no job that can still end. An interrupted spawn of an earlier
        release left such rows. Examines up to `limit` parked jobs whose id is greater than `after`: returns the ids of
        those that it made due, and the `after` of the next page, None after the last one.
        """
        ...

    def purge(
        self, *, tombstones: float, keys: float, limit: int = 500
    ) -> Awaitable[tuple[list[str], bool]]:
        """Removes expired jobs, old tombstones, and the keys of jobs that ended more than `keys` seconds ago: the ids of the
        jobs removed, and whether there is more.
        """
        ...

    def delete(self, job_id: str, version: int | None = None) -> Awaitable[Job | Refused | Missing]: ...

    async def known(self, ids: Sequence[str]) -> set[str]:
        """Those of the ids that are jobs; the others' files are orphans."""
        ...

    def log(
        self, job_id: str, owner: str, fence: int, lines: Sequence[dict[str, Any]]
    ) -> Awaitable[None]: ...


class Queues(Protocol):
    async def queues(self) -> list[QueueState]: ...

    def pause(self, queue: str, paused: bool) -> Awaitable[None]: ...


class Learned(Protocol):
    async def durations(self) -> dict[str, dict[str, Any]]: ...

    def learn(self, durations: dict[str, dict[str, Any]]) -> Awaitable[None]: ...


class Roster(Protocol):
    """Who runs jobs in other processes, and where there is work for them. Only a store that several processes can have
    has it.
    """

    def enlist(self, name: str, state: str) -> Awaitable[None]:
        """Says that this worker lives, and how it is, as JSON."""
        ...

    def dismiss(self, name: str) -> Awaitable[None]: ...

    async def roster(self, age: float) -> dict[str, str]:
        """The states, by name, of those that were heard of within the last `age` seconds."""
        ...

    async def waiting(self) -> set[tuple[str, str]]:
        """The (queue, kind) pairs of jobs that could start now. What it costs does not grow with their number."""
        ...


@runtime_checkable
class UploadRecords(Protocol):
    """Files on their way. A store may do without: then there are no uploads.

    1. What is known of an upload changes only as long as it is UPLOADING; `received` never goes back.
    2. Finished uploads and the job that they lead to are one transaction.
    3. An upload that a job uses does not expire before that job is removed.
    """

    def add_upload(self, upload: Upload) -> Awaitable[Upload]: ...

    def receive(self, received: UploadUpdate) -> Awaitable[Upload | Missing]: ...

    def finish(self, finished: CompletedUploads) -> Awaitable[StoredUploads | Missing]:
        """Also of uploads that were not stored before. What was finished before stays as it was."""
        ...

    def remove_upload(self, upload_id: str) -> Awaitable[Upload | UploadInUse | Missing]:
        """Not as long as a job uses it. A job that waits for it in UPLOADING has failed."""
        ...

    def expire_uploads(
        self, limit: int = 500, inputs: float | None = None
    ) -> Awaitable[tuple[list[Upload], bool]]:
        """Removes those whose time is over: what was removed, and whether there is more. `inputs` are the seconds after
        its end that a job keeps what it uses; None: as long as it is there itself.
        """
        ...

    async def upload(self, upload_id: str) -> Upload | Missing: ...

    async def unfinished(self, replica: str, before: float, limit: int = 500) -> list[Upload]:
        """Those of a replica that nothing was heard of since `before`, the oldest first."""
        ...

    async def upload_bytes(self) -> UploadBytes: ...

    async def known_uploads(self, ids: Sequence[str]) -> set[str]:
        """Those of the ids that are uploads; the others' bytes are orphans."""
        ...


class Store(JobStore, Housekeeping, Queues, Learned, Protocol):
    """All of it, with a beginning and an end."""

    async def open(
        self, heard: OnEvents, nudge: OnWork | None = None, reset: OnReset | None = None
    ) -> None:
        """Opens, migrates, checks; `heard` gets every event once, after its commit, on the loop.

        Where several processes write, those of others come when word of them arrives; whoever needs all of them in
        their one order reads `events`. `nudge` is told of new work that another process has stored. `reset` is called
        when the store has lost events that were heard before, as after a failover to a standby that lagged behind, and
        when the answer to a commit was lost: anything may have changed.
        """
        ...

    async def close(self) -> None: ...

    async def void(self, owner: str | None = None) -> int:
        """Ends the leases of an earlier process, so that its jobs are found overdue at once: those whose owner begins
        like this; all of them where only one process can have the store.
        """
        ...


class SharedStore(Store, Roster, Protocol):
    """A store that services and workers on any number of machines have together."""
