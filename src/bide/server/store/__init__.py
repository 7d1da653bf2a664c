"""The Store port: jobs, their inputs and steps, the event log, idempotency keys, queues, learned durations and uploads.

The port has one protocol for each kind of user: `JobStore`, `EventLog`, `UpkeepStore` and `UploadRecords`. `Store` is all of
them, and `SharedStore` adds the heartbeats of workers. `transactional_store` implements them for every backend.

Rules that `bide.testing.store` checks for every store:
1. A write is on disk before its future resolves.
2. A job, its idempotency key and its first event are written together or not at all. A key outlives its job, so that it
   never creates a second job before it expires. The key of a content-deduplicated submission is removed with its job, and
   passes to the next submission of that content if its job failed or was cancelled. So does the key of unique values if its
   job has ended, unless it has a result and was created less than `unique_for` seconds ago.
3. Every change goes through `core.jobs.state_machine.advance` on the stored row, in one transaction with its event and its
   effects on other jobs.
4. Event ids are unique and in commit order, across restarts too. If that cannot be guaranteed, for example because a
   backup was restored, the epoch changes. The events of a job are removed with it, except `deleted`.
5. `now()` is the only clock of leases, due times and deadlines. It always advances.
6. Calls of one process are executed in the order of the calls. A write is queued when the call returns, before its future
   is awaited. So a claim right after an insert sees the new job.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeVar, get_args

import msgspec

from bide.core.errors import SetupError
from bide.core.jobs.breaker import BreakerSettings, BreakerState, CallCount
from bide.core.jobs.fair import RunningLimits, Weights
from bide.core.jobs.lease import Lease
from bide.core.jobs.record import FileInfo, Job, Status
from bide.core.jobs.retry_budget import RetryBudget
from bide.core.jobs.state_machine import Change, Refused
from bide.core.pacing.budget import Limit
from bide.core.pacing.rate_limit import RateState
from bide.core.wire.http import Event
from bide.server.store.rollups import RollupQuery
from bide.server.upload_record import BucketBytes, Upload, UploadStatus, upload_of

T = TypeVar("T")
BY_CONTENT = "≡"  # the prefix of keys that are made from the content; a caller's key cannot contain it
STEPS_WITH_CLAIM = 1024 * 1024  # bytes
RecordTable = Literal[
    "removals",
    "leases",
    "publisher",
    "webhooks",
    "webhook_secrets",
    "job_webhooks",
    "pending_deliveries",
    "deliveries",
    "job_deliveries",
    "replays",
    "identities",
    "api_keys",
    "api_key_uses",
    "audit",
    "sessions",
    "limits",
    "breakers",
    "retry_budgets",
    "waiting_jobs",
]
RECORDS: frozenset[str] = frozenset(get_args(RecordTable))
OnEvents = Callable[[Sequence[Event]], None]
OnWork = Callable[[str, str], None]  # called with a queue and a kind
OnReset = Callable[[], None]
# Called with the epoch, the number up to which all events have been delivered, and the events.
OnLog = Callable[[str, int, Sequence[Event]], None]


class StoreUnavailable(SetupError):
    """The store cannot be read or written now. A write is not stored, unless the message says that this is unknown. The
    message also says why, and what to do.

    The condition may be temporary, so callers retry writes that must not be lost.
    """


class InputFile(msgspec.Struct, frozen=True):
    """A file that an input refers to, as it was when the job was accepted."""

    job: str  # the owner: a job or an upload (see `upload_record`)
    file: FileInfo

    @property
    def upload(self) -> str | None:
        """The id of the upload that owns the file."""
        return upload_of(self.job)


class NewRecord(msgspec.Struct, frozen=True):
    """A record of the job's tenant to store together with the job."""

    table: RecordTable
    name: str
    text: str
    if_absent: bool = False  # leave an existing record as it is


class JobLimits(msgspec.Struct, frozen=True):
    """The limits that a new job must fit into, by policy: `default` is the tenant's, `kind:NAME` that of a kind."""

    rates: tuple[tuple[str, Limit], ...] = ()  # submissions per time
    waiting: tuple[tuple[str, int], ...] = ()  # jobs that wait
    force: bool = False  # count the job, and do not refuse it


class TenantUse(msgspec.Struct):
    """What a tenant has used of its limits. It is a record, which changes together with the jobs of the tenant."""

    rates: dict[str, RateState] = {}  # by policy
    # How many jobs may be inserted before the waiting jobs must be counted again, by policy and limit.
    free: dict[str, int] = {}
    inserted: int = 0  # jobs, ever


class NewJob(msgspec.Struct, frozen=True):
    """A job to store, with the data that is only needed to run it."""

    job: Job
    input: bytes
    files: tuple[InputFile, ...] = ()
    key: str | None = None  # the caller's idempotency key
    fingerprint: bytes = b""  # of the body, to recognise a key that was used with another body
    content: bytes = b""  # the hash of files and input of a deduplicated submission
    search: tuple[
        tuple[str, str], ...
    ] = ()  # path into the input and value, by which lists find the job
    records: tuple[NewRecord, ...] = ()  # that are stored with the job, if it is created
    limits: JobLimits | None = None  # None: no limit applies
    # The hash of the values that are unique in its kind, and for how many seconds after the creation of a job they are.
    unique: bytes = b""
    unique_for: float = 0.0

    @property
    def content_key(self) -> str | None:
        return BY_CONTENT + self.content.hex() if self.content else None

    @property
    def unique_key(self) -> str | None:
        return f"{BY_CONTENT}unique {self.unique.hex()}" if self.unique else None

    @property
    def keys(self) -> list[tuple[str, str, str]]:
        """The keys by which a later submission finds the job: tenant, kind and key."""
        named = (self.key, self.content_key, self.unique_key)
        return [(self.job.tenant, self.job.kind, key) for key in named if key is not None]


class Inserted(msgspec.Struct, frozen=True):
    """The stored job: the new one, or the first one if its idempotency key, its content or its unique values were submitted
    before.
    """

    job: Job
    created: bool
    use: TenantUse | None = None  # after it, if there are limits


class LimitReached(msgspec.Struct, frozen=True):
    """The job is not stored, because a limit of its tenant does not allow it."""

    limit: Literal["submit", "waiting"]
    policy: str
    most: float
    wait: float  # seconds until it fits; 0: unknown
    use: TenantUse


class OverLimit(Refused):
    """The job does not run again, because a limit of its tenant does not allow it."""

    def __init__(self, job: Job, change: Change, reached: LimitReached) -> None:
        super().__init__(job, change, f"the limit is {reached.most:g} waiting jobs")
        self.reached = reached


class KeyConflict(msgspec.Struct, frozen=True):
    """The key was used before with another body."""

    job_id: str


class KeyGone(msgspec.Struct, frozen=True):
    """The key was used before with the same body, and its job has been deleted or purged."""

    job_id: str


Insertion = Inserted | KeyConflict | KeyGone | LimitReached


class Missing(msgspec.Struct, frozen=True):
    """The job or upload does not exist; `gone` if it existed earlier, then `tenant` is whose it was."""

    gone: bool = False
    tenant: str = "-"


class ClaimRequest(msgspec.Struct, frozen=True):
    """A worker's request for up to `limit` jobs of these kinds from this queue.

    The first `begin` jobs start immediately; the others are prefetched. With `only`, the claim ends before the first job
    of another kind, so that no job overtakes another in its queue. `concurrency` has the most jobs of one concurrency key
    that workers may hold, by kind, also of kinds that the worker claims at other times. A job beyond that is left out and
    does not block the jobs behind it.
    """

    queue: str
    kinds: tuple[str, ...]
    limit: int
    begin: int = 1 << 30
    only: frozenset[str] | None = None
    concurrency: Mapping[str, int] = {}


class Claim(msgspec.Struct, frozen=True):
    """A claimed job with everything that it needs to run. `steps` has as many step results as fit into STEPS_WITH_CLAIM
    bytes; `JobStore.step` returns the others.
    """

    job: Job
    input: bytes
    files: tuple[InputFile, ...] = ()
    steps: dict[str, msgspec.Raw] = {}
    children: dict[str, Job] = {}
    due: float | None = None  # since when it could be claimed
    emitted: int = 0  # bytes that earlier attempts have added to the output stream


OnClaims = Callable[[Sequence[Claim]], None]


Order = Literal["newest", "oldest", "longest"]
SHORTEST = 0.01  # seconds; an ended job that ran for less is not in a list by duration
RUNNING = 1e10  # the rank of a job that runs since the epoch; every running job is before all ended ones


class Term(msgspec.Struct, frozen=True):
    """What a job must have: the field `label.KEY`, `input.PATH` or `step`, with this value. An empty field stands for the
    value of any label, or the begin of the id.
    """

    field: str
    value: str


class Position(msgspec.Struct, frozen=True):
    """The job after which a page continues; it may have been removed. `rank` is its place in a list by duration."""

    id: str
    rank: float | None = None


class Filter(msgspec.Struct, frozen=True):
    """Selects the jobs of a list that match all of the fields.

    The newest job has the greatest id. The longest: first the jobs that run, the one that runs for the longest time first;
    then the ended jobs by the duration of their last attempt, if it is at least SHORTEST.
    """

    tenant: str | None = None  # None: of all tenants
    status: frozenset[Status] = frozenset()
    kind: str | None = None
    queue: str | None = None
    code: str | None = None  # of the error
    terms: tuple[Term, ...] = ()
    first: str | None = None  # the smallest id
    end: str | None = None  # only smaller ids
    order: Order = "newest"
    after: Position | None = None
    limit: int = 50


def rank_of(job: Job) -> float | None:
    """The place of a job in a list by duration, the greatest first; None: it is in no such list."""
    if job.started_at is None:
        return None
    if job.status is Status.PROCESSING:
        return RUNNING - job.started_at
    if job.finished_at is None or job.finished_at - job.started_at < SHORTEST:
        return None
    return job.finished_at - job.started_at


def position_of(job: Job, order: Order) -> Position:
    return Position(job.id, rank_of(job) if order == "longest" else None)


class EventFilter(msgspec.Struct, frozen=True):
    """Selects events of one tenant, in the order of their numbers."""

    tenant: str = "-"
    after: int = 0
    until: int | None = None  # up to and including this number
    jobs: tuple[str, ...] = ()  # empty: of all jobs
    types: tuple[str, ...] = ()  # empty: of all types
    limit: int = 1000


class LogPage(msgspec.Struct, frozen=True):
    """Events, and the state of the log before they were read. A number identifies an event within an epoch.

    `last` is not smaller than any number that was used, of any tenant. `floor` is the greatest number of an event that was
    removed after the time for which the removal of a job stays in the log. A reader of all jobs that has not seen it has a
    gap.
    """

    epoch: str
    floor: int
    last: int
    events: list[Event]


BulkAction = Literal["cancel", "retry", "delete", "priority"]
# The step whose result is the `BulkState` of a bulk action; it is not in `Job.steps`.
BULK_STEP = "bide.bulk"
MOST_REFUSALS = 20


class BulkRefusal(msgspec.Struct, frozen=True, rename="camel"):
    """A job that a bulk action could not change, and why."""

    job_id: str
    detail: str


class BulkState(msgspec.Struct, frozen=True, rename="camel"):
    """How far a bulk action has come: it has acted on all selected jobs up to and including the id `cursor`.

    `changed` jobs have been changed. The state of `refused` jobs did not allow it. `skipped` jobs no longer matched, or
    needed no change, when the action reached them.
    """

    cursor: str = ""
    total: int | None = None  # of the jobs that matched at the start
    changed: int = 0
    refused: int = 0
    skipped: int = 0
    refusals: tuple[BulkRefusal, ...] = ()  # the first MOST_REFUSALS

    @property
    def done(self) -> int:
        return self.changed + self.refused + self.skipped


class BulkPage(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs on which a bulk action acts in one transaction. `job_id`, `owner` and `fence` are of the job that runs it."""

    job_id: str
    owner: str
    fence: int
    state: BulkState  # after the previous page
    ids: tuple[str, ...]  # in order, greater than the cursor of `state`
    action: BulkAction
    status: frozenset[Status]  # a job must still have one of these statuses,
    code: str | None = None  # and this error code
    kind: str | None = None  # None: of any kind that is not reserved
    priority: int = 0
    waiting: dict[str, tuple[tuple[str, int], ...]] = {}  # as `Rerun.waiting`, by kind


class BulkProgress(msgspec.Struct, frozen=True):
    """The stored state of a bulk action, and the jobs that this page has changed."""

    state: BulkState
    changed: tuple[str, ...] = ()


class QueueState(msgspec.Struct, frozen=True):
    name: str
    paused: bool = False
    waiting: int = 0  # `due` is now or earlier
    scheduled: int = 0  # `due` is later
    running: int = 0  # workers hold them; prefetched jobs count, too
    oldest: float | None = None  # when the oldest waiting job became due


class LostAndLate(msgspec.Struct, frozen=True):
    """Jobs whose leases are void or lost, and jobs whose deadlines have passed."""

    leases: tuple[Job, ...] = ()
    deadlines: tuple[Job, ...] = ()


class UploadUpdate(msgspec.Struct, frozen=True):
    """Changed fields of an upload that is being received; None leaves a field as it is."""

    upload_id: str
    received: int | None = None
    size: int | None = None
    chunk: int | None = None
    expires_at: float | None = None
    # The bytes in a bucket. Nothing changes if another process than `bucket.writer` has taken the upload over.
    bucket: BucketBytes | None = None
    writer: str | None = None  # the process that takes the upload over


class CompletedUploads(msgspec.Struct, frozen=True):
    """Complete uploads and the job that uses them: a new one, or, with `files`, the one that waits for them in UPLOADING."""

    uploads: tuple[Upload, ...]
    new: NewJob | None = None
    files: tuple[InputFile, ...] = ()


class StoredUploads(msgspec.Struct, frozen=True):
    """Complete uploads as they are stored, and the result of inserting their job."""

    uploads: tuple[Upload, ...]
    job: Insertion | None = None


class UploadBytes(msgspec.Struct, frozen=True):
    """Bytes that all uploads use (`stored`), and bytes that they may still use by their declared sizes (`reserved`).
    `firm` is the part of `reserved` that is covered by bytes received: per upload, the smaller of the two.
    """

    stored: int
    reserved: int
    firm: int = 0


class UploadInUse(msgspec.Struct, frozen=True):
    """The upload is in use by this job, and perhaps by others."""

    job_id: str


class JobStore(Protocol):
    """Reads and writes jobs, and the queues that they wait in."""

    def now(self) -> float: ...

    def insert(self, new: Sequence[NewJob]) -> Awaitable[list[Insertion]]: ...

    async def has_key(self, tenant: str, kind: str, key: str) -> bool:
        """Whether this idempotency key has been used."""
        ...

    def apply(self, changes: Sequence[Change]) -> Awaitable[list[Job | Refused | Missing]]:
        """Apply each change to its job, all in one transaction. A refused change has no effect."""
        ...

    def spawn(self, change: Change, new: NewJob) -> Awaitable[Job | Refused | Missing]:
        """Store a parent's `Spawned` and its child together. If the child's key exists already, return that child."""
        ...

    def claim(
        self,
        owner: str,
        requests: Sequence[ClaimRequest],
        limit: int,
        lease: float,
        *,
        stored: OnClaims | None = None,
    ) -> Awaitable[list[Claim]]:
        """Claim up to `limit` due jobs, in the order of the requests. The tenants of a queue take turns; the jobs of a
        tenant start by priority and age (see `core.jobs.fair`). A paused queue returns none. `stored` may be called with the
        claims in another thread, as soon as they are on disk; the returned claims are the same.
        """
        ...

    def share_by(self, weights: Weights, running: RunningLimits | None = None) -> None:
        """Set the shares of the tenants, and how many of their jobs may run. Call it before `open`."""
        ...

    def renew(
        self, owner: str, held: Sequence[tuple[str, int]], lease: float
    ) -> Awaitable[list[tuple[str, int]]]:
        """Renew the owner's leases of (job id, fence). Return those that are lost."""
        ...

    def log(
        self, job_id: str, owner: str, fence: int, lines: Sequence[dict[str, Any]]
    ) -> Awaitable[None]:
        """Add lines to the job's log, if this attempt still holds the job. `at` in a line is when it was logged, by the
        clock of the store.
        """
        ...

    def delete(self, job_id: str, version: int | None = None) -> Awaitable[Job | Refused | Missing]: ...

    async def get(self, ids: Sequence[str]) -> list[Job | Missing]: ...

    async def find(self, filter: Filter) -> list[Job]:
        """The selected jobs. QueryTimeout if that takes too long."""
        ...

    async def ids(self, filter: Filter) -> list[str]:
        """The ids of the selected jobs, all read at one moment. QueryTimeout if that takes too long."""
        ...

    def act(self, page: BulkPage) -> Awaitable[BulkProgress | Refused | Missing]:
        """Act on each job of a page, and store the new state of the bulk action, in one transaction. If the stored state
        is not `page.state`, an earlier call has stored it: change nothing, and return the stored state. Refused if the
        attempt no longer holds the bulk action, or its cancel was requested.
        """
        ...

    async def count(self, filter: Filter, most: int) -> int:
        """The number of selected jobs, at most `most`. QueryTimeout if that takes too long."""
        ...

    async def input(self, job_id: str) -> bytes: ...

    async def step(self, job_id: str, name: str) -> bytes | None:
        """The result of a stored step."""
        ...

    async def queues(self) -> list[QueueState]: ...

    async def waiting_by_tenant(self, queue: str) -> dict[str, int]:
        """How many jobs of each tenant a claim of this queue could find. Reads them all."""
        ...

    def pause(self, queue: str, paused: bool) -> Awaitable[None]: ...

    async def overdue_counts(self) -> dict[str, int]:
        """The number of jobs of each kind that are marked as overdue."""
        ...


class FirstAttempts(msgspec.Struct, frozen=True):
    """First attempts of a kind that a process has started since its last report."""

    kind: str
    budget: RetryBudget
    count: int


class BreakerEntry(msgspec.Struct, frozen=True):
    """Whether an attempt may call a dependency now, and the state of its breaker."""

    allowed: bool
    state: BreakerState


class BreakerReport(msgspec.Struct, frozen=True):
    """Calls of a dependency that have ended. The last one is the failed call of `job`, or the call of a prober."""

    name: str
    settings: BreakerSettings
    jitter: float  # from 0 to 1
    calls: CallCount = CallCount()
    job: str | None = None
    # The fence of the job, if it is the prober, and whether its call succeeded; None: it has no result.
    prober: int | None = None
    success: bool | None = False


class BreakerVerdict(msgspec.Struct, frozen=True):
    """The state of a breaker after a report. `spared`: the attempt of the failed call does not count, because it was a
    probe, or an earlier call of the same job failed and no other call has succeeded since.
    """

    state: BreakerState
    spared: bool


class BreakerStore(Protocol):
    """The breakers of dependencies, and the jobs that wait for them. A breaker is a record in `breakers`. `waiting_jobs` has
    a record per waiting job: its name is the waiting list, the time and the job, its text the fence.
    """

    def now(self) -> float: ...

    async def breaker(self, name: str) -> BreakerState: ...

    def enter_breaker(self, name: str, job_id: str, fence: int) -> Awaitable[BreakerEntry]:
        """Ask whether an attempt may call. If the breaker may be probed, the attempt becomes the prober."""
        ...

    def report_calls(self, report: BreakerReport) -> Awaitable[BreakerVerdict]: ...

    def release_waiting(self, name: str, waiting: Mapping[str, str]) -> Awaitable[int]:
        """Start as many of these waiting jobs as the breaker allows now. `waiting` are records of `waiting_jobs`. Return how
        many of them were removed.
        """
        ...

    def report_first_attempts(self, reports: Sequence[FirstAttempts]) -> Awaitable[None]:
        """Add first attempts to the retry budgets of their kinds."""
        ...

    def release_retries(
        self, kind: str, budget: RetryBudget | None, waiting: Mapping[str, str], *, last: bool
    ) -> Awaitable[int]:
        """Start as many of these waiting jobs as the retry budget allows now; all of them without a budget. `last`: there
        are no other waiting jobs of this kind. Return how many of the records were removed.
        """
        ...


class StatisticsStore(Protocol):
    """Reads the rollups, which the store writes together with the jobs."""

    def now(self) -> float: ...

    async def statistics(self, query: RollupQuery) -> list[tuple[int, str, int]]:
        """(begin of the point, name, count). QueryTimeout if that takes too long."""
        ...


class EventLog(Protocol):
    """Reads the numbered events."""

    async def read_log(self, filter: EventFilter) -> LogPage:
        """The selected events, and the state of the log. The events that are visible are a prefix of the log."""
        ...

    async def events(
        self, after: int = 0, job_id: str | None = None, limit: int = 1000, *, tenant: str = "-"
    ) -> list[Event]:
        """The events with a number greater than `after`, of all jobs or of one job, in order."""
        ...


class UpkeepStore(Protocol):
    """What the upkeep needs: due times, leases and deadlines, expiry, and learned durations."""

    def now(self) -> float: ...

    async def identity(self) -> str:
        """The id of this database. It is stored in the database, so a backup restores it, too."""
        ...

    def apply(self, changes: Sequence[Change]) -> Awaitable[list[Job | Refused | Missing]]:
        """As `JobStore.apply`."""
        ...

    def wake(self) -> Awaitable[tuple[set[tuple[str, str]], float | None]]:
        """Make due jobs claimable. Return their (queue, kind) pairs, and when the next job is due."""
        ...

    def repair_blocked(self) -> Awaitable[set[tuple[str, str]]]:
        """Make jobs claimable that wait for the end of a job with their concurrency key, although workers hold none. Return
        their (queue, kind) pairs.
        """
        ...

    async def leases(self) -> list[Lease]:
        """All held leases, grouped by owner and `until`, without void ones. It does not decide whether a lease is lost."""
        ...

    async def lost_and_late(self, lost: Sequence[Lease] = (), limit: int = 500) -> LostAndLate:
        """The jobs whose lease is void or one of `lost`, and the jobs whose deadline has passed."""
        ...

    async def long_running(self, since: Mapping[str, float], limit: int = 500) -> list[Job]:
        """The running jobs whose attempt began before the instant of their kind, without those that are marked as overdue.
        Jobs of other kinds are left out.
        """
        ...

    def check_writable(self) -> Awaitable[None]:
        """Write a test row. Raise StoreUnavailable if the store accepts no writes."""
        ...

    async def resume_parked(self, after: str = "", limit: int = 200) -> tuple[list[str], str | None]:
        """Make parked jobs due whose `waiting_for` names no job that can still end. An interrupted spawn of an earlier
        release left such rows. Examine up to `limit` running or parked jobs that are older than the job `after`. Return
        the ids that became due, and the `after` of the next page, or None after the last page.
        """
        ...

    def purge(
        self, *, tombstones: float, keys: float, limit: int = 500
    ) -> Awaitable[tuple[list[str], bool]]:
        """Remove expired jobs, old tombstones, and the keys of jobs that ended more than `keys` seconds ago. Return the ids
        of the removed jobs, and whether there are more.
        """
        ...

    async def sample_load(self) -> None:
        """Add how many jobs wait and run to the rollups. QueryTimeout if that takes too long."""
        ...

    def merge_rollups(self) -> Awaitable[bool]:
        """Merge the minutes of an hour, and remove old counts. Return whether there is more to do."""
        ...

    def index_old(self, limit: int = 500) -> Awaitable[bool]:
        """Make some jobs searchable that an earlier release has stored. Return whether there are more."""
        ...

    async def known(self, ids: Sequence[str]) -> set[str]:
        """Those ids that belong to a job; the files of the others are orphans."""
        ...

    async def durations(self) -> dict[str, dict[str, Any]]: ...

    def learn(self, durations: dict[str, dict[str, Any]]) -> Awaitable[None]: ...


class UploadRecords(Protocol):
    """Stores the records of uploads.

    1. A record changes only while the upload is UPLOADING; `received` never decreases.
    2. Complete uploads and the job that uses them are stored in one transaction.
    3. An upload that a job uses does not expire before that job is removed.
    """

    def add_upload(self, upload: Upload) -> Awaitable[Upload]: ...

    def receive(self, received: UploadUpdate) -> Awaitable[Upload | Missing]: ...

    def finish(self, finished: CompletedUploads) -> Awaitable[StoredUploads | Missing]:
        """Store complete uploads, including new ones. An upload that was complete before does not change."""
        ...

    def remove_upload(self, upload_id: str) -> Awaitable[Upload | UploadInUse | Missing]:
        """Remove an upload unless a job uses it. A job that waits for it in UPLOADING fails."""
        ...

    async def expire_uploads(
        self, limit: int = 500, inputs: float | None = None
    ) -> tuple[list[Upload], bool]:
        """Remove expired uploads. Return the removed ones, and whether there are more. A job keeps its uploads for `inputs`
        seconds after its end; None: until the job is removed.
        """
        ...

    async def upload(self, upload_id: str) -> Upload | Missing: ...

    async def list_uploads(
        self, tenant: str, status: UploadStatus | None = None, before: str | None = None, limit: int = 50
    ) -> list[Upload]:
        """The uploads of a tenant, newest first: in any status, or in this one; only with smaller ids than `before`."""
        ...

    async def unfinished(self, replica: str, before: float, limit: int = 500) -> list[Upload]:
        """The incomplete uploads of a replica that have not changed since `before`, oldest first."""
        ...

    async def upload_bytes(self) -> UploadBytes: ...

    async def stored_bytes(self, tenant: str) -> int:
        """The bytes of a tenant's uploads, with those that they reserve, and of the results and files of its jobs."""
        ...

    async def known_uploads(self, ids: Sequence[str]) -> set[str]:
        """Those ids that belong to an upload; the bytes of the others are orphans."""
        ...


class UploadStore(JobStore, UploadRecords, Protocol):
    """Stores jobs, and the uploads that they use."""


class RecordFilter(msgspec.Struct, frozen=True):
    """Selects records of a table, ordered by name."""

    tenant: str | None = None  # None: of all tenants
    names: tuple[str, ...] = ()  # empty: all names
    prefix: str = ""  # of the names
    after: str = ""  # only greater names
    before: str | None = None  # only smaller names
    last: bool = False  # the greatest name first
    limit: int | None = None
    since: float = 0.0  # of workers, which are no records: only heartbeats that are newer


ALL_RECORDS = RecordFilter()


class RecordAccess(Protocol):
    """The records inside a transaction."""

    now: float

    def text(self, table: RecordTable, name: str, tenant: str = "-") -> str | None:
        """A record. No other transaction changes or creates it until this one ends."""
        ...

    def put_text(self, table: RecordTable, name: str, text: str | None, tenant: str = "-") -> None:
        """Write a record; None deletes it."""
        ...

    def remove_events(self, job_id: str, tenant: str) -> None:
        """Remove the events of a job that was removed while `RecordStore.keeps_events` was set."""
        ...


class RecordStore(Protocol):
    """Small records in several collections (`RecordTable`): texts by name."""

    # Whether the events of a job that is removed stay until `RecordAccess.remove_events`. The table `removals` names
    # such jobs.
    keeps_events: bool

    def now(self) -> float: ...

    async def records(self, table: RecordTable, filter: RecordFilter = ALL_RECORDS) -> dict[str, str]:
        """The selected records by name, in order."""
        ...

    def change_records(self, change: Callable[[RecordAccess], T]) -> Awaitable[T]:
        """Run a function in a transaction. It may run twice, so it must depend on its argument only."""
        ...


class StoreDatabase(Protocol):
    """The database of a store, for commands that open no store."""

    @property
    def shown(self) -> str:
        """Its location without secrets, for messages."""
        ...

    def migrate(self) -> list[int]:
        """Update the schema. Return the applied versions."""
        ...

    def begin_epoch(self) -> str:
        """Begin a new epoch of the event log, and return it. Services that use the database notice it."""
        ...

    def describe(self) -> str:
        """Return a description of version and content. Raise SetupError if a store cannot use it. Change nothing."""
        ...

    def identity(self) -> str | None:
        """As `Store.identity`; None if it has none yet, or cannot be read. Changes nothing."""
        ...


class SharedDatabase(StoreDatabase, Protocol):
    """The database of a `SharedStore`."""

    def live_workers(self, age: float) -> list[str]:
        """As `SharedStore.live_workers`, without the names. Raise SetupError if they cannot be read. Change nothing."""
        ...

    def clock(self) -> float:
        """The database's time, as seconds since 1970. Raise SetupError if it does not answer."""
        ...


class RunnerStore(JobStore, BreakerStore, Protocol):
    """What a runner needs: jobs, and the breakers that their handlers use."""


class Store(
    JobStore,
    BreakerStore,
    StatisticsStore,
    EventLog,
    UpkeepStore,
    UploadRecords,
    RecordStore,
    Protocol,
):
    """The whole store of one service."""

    async def open(
        self,
        on_events: OnEvents,
        on_work: OnWork | None = None,
        on_reset: OnReset | None = None,
        on_log: OnLog | None = None,
    ) -> None:
        """Open, migrate and check the store. `on_events` gets every event once, after its commit, on the event loop.

        The events of other processes arrive later there than their own. `on_log` gets the events of all processes in the
        order of their numbers, a little later: first without events, for the epoch and the last number at the start, and
        again without events when the epoch changes. `on_work` is called for new jobs of other processes.
        `on_reset` is called when anything may have changed: after a failover to a standby that had not received the last
        events, and when the response to a commit was lost.
        """
        ...

    async def close(self) -> None: ...

    async def void(self, owner: str | None = None) -> int:
        """Void the leases of an earlier process, so that its jobs are lost immediately: the leases of owners with this
        prefix, or all leases if only one process can use the store. Return their number.
        """
        ...


class SharedStore(Store, Protocol):
    """A store that services and workers on any number of machines share. It also stores the workers' heartbeats."""

    def record_worker(self, name: str, state: str) -> Awaitable[None]:
        """Store a worker's heartbeat; `state` is JSON."""
        ...

    def remove_worker(self, name: str) -> Awaitable[None]: ...

    async def live_workers(self, age: float) -> dict[str, str]:
        """The states, by name, of the workers with a heartbeat within the last `age` seconds."""
        ...

    async def waiting(self) -> set[tuple[str, str]]:
        """The (queue, kind) pairs of jobs that can start now. The cost does not depend on the number of jobs."""
        ...
