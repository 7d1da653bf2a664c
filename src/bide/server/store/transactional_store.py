"""Implements the store's port once for every backend: each write is an operation in a transaction of the writer.

A backend is two classes: a subclass of `TransactionalStore`, which opens the database, runs transactions and reads rows
outside of them, and a subclass of `Transaction`, which reads and writes rows inside. Their abstract methods are the
operations of the backend; `bide.testing.store` tests them.

Reads that are not abstract have an implementation here on top of the others, or in a transaction of the writer. A backend
overrides them if it has a faster way.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from bide.core.clock import Clock
from bide.core.jobs.breaker import BreakerState
from bide.core.jobs.fair import FairTurns, RunningLimits, Turns, Weights
from bide.core.jobs.lease import Lease
from bide.core.jobs.record import Job, Status
from bide.core.jobs.retry_budget import RetryBudget
from bide.core.jobs.state_machine import Change, Refused, Spawned
from bide.core.wire.http import Event
from bide.server.store import (
    ALL_RECORDS,
    BreakerEntry,
    BreakerReport,
    BreakerVerdict,
    BulkPage,
    BulkProgress,
    Claim,
    ClaimRequest,
    CompletedUploads,
    EventFilter,
    Filter,
    FirstAttempts,
    Insertion,
    LogPage,
    LostAndLate,
    Missing,
    NewJob,
    OnClaims,
    OnEvents,
    OnLog,
    OnReset,
    OnWork,
    Position,
    QueueState,
    RecordAccess,
    RecordFilter,
    RecordTable,
    StoredUploads,
    UploadBytes,
    UploadInUse,
    UploadUpdate,
    breaker_operations,
    bulk_operations,
    operations,
    retry_budgets,
    upload_operations,
    waiting_operations,
)
from bide.server.store.rollups import LoadSample, RollupQuery
from bide.server.store.timeouts import Timeouts
from bide.server.store.transaction import USE, TextTable, Transaction, encode, ready
from bide.server.store.writer import GroupCommitWriter, WriteOperation
from bide.server.upload_record import Upload, UploadStatus

T = TypeVar("T")
EVERYTHING = 1 << 62  # bytes; more than all step results of a job have
PAGE = 1000  # jobs
EXPIRE_BATCH = 50  # uploads that one transaction examines, so that other writes do not wait for long


class UploadFilter(msgspec.Struct, frozen=True):
    """Selects uploads. With `replica`, the least recently changed comes first; with `tenant`, the newest; otherwise the
    order does not matter.
    """

    tenant: str | None = None  # only with `status`
    status: UploadStatus | None = None
    before: str | None = None  # only smaller ids

    replica: str | None = None  # only incomplete uploads of this replica
    changed: float | None = None  # only uploads that last changed at that time or earlier
    # Only uploads that expire at that time or earlier, and that no job uses.
    expired: float | None = None
    ended: float | None = None  # with `expired`: a job that ended at that time or earlier does not count
    limit: int | None = None


class TransactionalStore(ABC):
    """`Store` on any backend."""

    # Whether only one process can use the store at a time: every lease is then of a process that has ended, or its own.
    one_process = False

    def __init__(self, clock: Clock) -> None:
        self.now = clock.now
        self.keeps_events = False
        self._turns = FairTurns()  # only the writer's thread uses them
        self._timeouts: Timeouts | None = None  # of writes
        self._writer: GroupCommitWriter

    # --- implemented by each backend

    @abstractmethod
    async def connect(
        self, on_events: OnEvents, on_work: OnWork, on_reset: OnReset, on_log: OnLog
    ) -> None:
        """Open, migrate and check the database. A backend that several processes share delivers their events and work from
        now on, and overrides `own_events`, because only it knows the order of all events. Raise
        SetupError if the database cannot be used.
        """

    @abstractmethod
    def transact(self, operations: Sequence[WriteOperation]) -> tuple[list[Any], list[Event]]:
        """Run all operations in one transaction: create a `Transaction` with the time `now()`, call `run` of each operation
        with it, write `Transaction.take_changes` and `Transaction.events`, and commit. Return the results and the events,
        with their numbers. The writer's thread calls it, while the event loop reads.

        The commit is on disk when it returns. Event numbers are in commit order, and `Event.job` is stored as JSON. If
        anything raises, store nothing and raise it again: the writer then calls `transact` for each operation alone. Raise
        StoreUnavailable if no operation would succeed alone either.
        """

    @abstractmethod
    async def find(self, filter: Filter) -> list[Job]:
        """The selected jobs, in the order of the filter."""

    @abstractmethod
    async def read_log(self, filter: EventFilter) -> LogPage:
        """The selected events in order, and the state of the log, which was read before them."""

    @abstractmethod
    async def input(self, job_id: str) -> bytes:
        """The input of a job; `b"null"` if there is no such job."""

    @abstractmethod
    async def queues(self) -> list[QueueState]:
        """The queues that are paused, or have jobs that wait, are scheduled or are held; sorted by name."""

    @abstractmethod
    async def held_and_late(self, limit: int, owner: str = "") -> tuple[list[Job], list[Job]]:
        """All jobs that workers hold (`Job.held`; a void lease is 0.0 and counts), of owners with this prefix; and up to
        `limit` unfinished jobs whose deadline is now or earlier.
        """

    @abstractmethod
    async def uploads(self, filter: UploadFilter) -> list[Upload]:
        """The selected uploads. An upload without `expires_at` does not expire."""

    @abstractmethod
    async def texts(self, table: TextTable, filter: RecordFilter = ALL_RECORDS) -> dict[str, str]:
        """The selected rows of a small table: texts by name, in order. Not of `tombstones`. `identity` has one row, which is
        created with the database. `log` has the rows `epoch`, a short random text that is created with the database, and
        `floor`.
        """

    # --- beginning and end

    async def open(
        self,
        on_events: OnEvents,
        on_work: OnWork | None = None,
        on_reset: OnReset | None = None,
        on_log: OnLog | None = None,
    ) -> None:
        follow = on_log or _ignore_log
        await self.connect(on_events, on_work or _ignore_work, on_reset or _ignore_reset, follow)
        self._writer = GroupCommitWriter(
            self.transact,
            await self.own_events(on_events, follow),
            self._timeouts,
            self.on_delivered,
        )

    async def own_events(self, on_events: OnEvents, on_log: OnLog) -> OnEvents:
        """What the writer calls with the events of its commits. If this is the only process, these are all events."""
        state = await self.read_log(EventFilter(limit=1))
        on_log(state.epoch, state.last, ())

        def deliver(events: Sequence[Event]) -> None:
            try:
                on_events(events)
            finally:  # a listener that fails must not leave a gap
                on_log(state.epoch, events[-1].id, events)

        return deliver

    def on_delivered(self) -> None:
        """The writer's thread calls it after the results of a transaction were passed to the event loop, for work that they
        need not wait for.
        """
        return

    async def close(self) -> None:
        await self._writer.close()
        await self.disconnect()

    async def disconnect(self) -> None:
        """Close the connections of `connect`. The writer has ended."""
        return

    # --- jobs

    def insert(self, new: Sequence[NewJob]) -> Awaitable[list[Insertion]]:
        return self._writer.submit(
            lambda tx: [operations.insert(tx, item) for item in new],
            keys=[key for n in new for key in n.keys],
            records=[(n.job.tenant, "limits", USE) for n in new if n.limits is not None],
        )

    def apply(self, changes: Sequence[Change]) -> Awaitable[list[Job | Refused | Missing]]:
        return self._writer.submit(
            lambda tx: [operations.apply(tx, change) for change in changes],
            jobs=[change.job_id for change in changes],
        )

    def spawn(self, change: Change, new: NewJob) -> Awaitable[Job | Refused | Missing]:
        assert isinstance(change, Spawned)
        return self._writer.submit(lambda tx: operations.spawn(tx, change, new), jobs=[change.job_id])

    def claim(
        self,
        owner: str,
        requests: Sequence[ClaimRequest],
        limit: int,
        lease: float,
        *,
        stored: OnClaims | None = None,
    ) -> Awaitable[list[Claim]]:
        # First, because starting a job takes longer than responding to a submission. A claim must not time out: its jobs
        # are already this process's.
        begin: Turns | None = None

        def operation(tx: Transaction) -> list[Claim]:
            nonlocal begin
            begin = self._turns.begin(begin)
            return operations.claims(tx, owner, requests, limit, lease, self._turns)

        return self._writer.submit(operation, first=True, stored=stored)

    def share_by(self, weights: Weights, running: RunningLimits | None = None) -> None:
        self._turns.weights, self._turns.running = weights, running

    def renew(
        self, owner: str, held: Sequence[tuple[str, int]], lease: float
    ) -> Awaitable[list[tuple[str, int]]]:
        return self._writer.submit(
            lambda tx: operations.renew(tx, owner, held, lease), jobs=[job_id for job_id, _ in held]
        )

    def log(
        self, job_id: str, owner: str, fence: int, lines: Sequence[dict[str, Any]]
    ) -> Awaitable[None]:
        return self._writer.submit(
            lambda tx: operations.log(tx, job_id, owner, fence, lines), jobs=[job_id]
        )

    def delete(self, job_id: str, version: int | None = None) -> Awaitable[Job | Refused | Missing]:
        keep = self.keeps_events
        return self._writer.submit(
            lambda tx: operations.delete(tx, job_id, version, keep_events=keep), jobs=[job_id]
        )

    async def get(self, ids: Sequence[str]) -> list[Job | Missing]:
        return await self._writer.submit(
            lambda tx: [tx.job(job_id) or operations.gone(tx, job_id) for job_id in ids], jobs=ids
        )

    async def ids(self, filter: Filter) -> list[str]:
        return [job.id for job in await self.find(filter)]

    def act(self, page: BulkPage) -> Awaitable[BulkProgress | Refused | Missing]:
        keep = self.keeps_events
        return self._writer.submit(
            lambda tx: bulk_operations.act(tx, page, keep_events=keep), jobs=[page.job_id, *page.ids]
        )

    async def count(self, filter: Filter, most: int) -> int:
        return len(await self.find(replace(filter, limit=most)))

    async def has_key(self, tenant: str, kind: str, key: str) -> bool:
        full_key = (tenant, kind, key)
        return await self._writer.submit(lambda tx: tx.key(full_key) is not None, keys=[full_key])

    async def step(self, job_id: str, name: str) -> bytes | None:
        result = await self._writer.submit(lambda tx: tx.steps(job_id, EVERYTHING).get(name))
        return None if result is None else bytes(result)

    def pause(self, queue: str, paused: bool) -> Awaitable[None]:
        return self._writer.submit(lambda tx: operations.pause(tx, queue, paused))

    async def events(
        self, after: int = 0, job_id: str | None = None, limit: int = 1000, *, tenant: str = "-"
    ) -> list[Event]:
        jobs = () if job_id is None else (job_id,)
        return (await self.read_log(EventFilter(tenant, after, jobs=jobs, limit=limit))).events

    # --- breakers

    async def breaker(self, name: str) -> BreakerState:
        found = await self.texts("breakers", RecordFilter(tenant="-", names=(name,)))
        return breaker_operations.read_state(found.get(name))

    def enter_breaker(self, name: str, job_id: str, fence: int) -> Awaitable[BreakerEntry]:
        return self._writer.submit(
            lambda tx: breaker_operations.enter(tx, name, job_id, fence),
            records=[("-", "breakers", name)],
        )

    def report_calls(self, report: BreakerReport) -> Awaitable[BreakerVerdict]:
        return self._writer.submit(
            lambda tx: breaker_operations.report(tx, report), records=[("-", "breakers", report.name)]
        )

    def release_waiting(self, name: str, waiting: Mapping[str, str]) -> Awaitable[int]:
        return self._writer.submit(
            lambda tx: waiting_operations.release_breaker(tx, name, waiting),
            jobs=[record.rpartition(" ")[2] for record in waiting],
            records=[("-", "breakers", name)],
        )

    def report_first_attempts(self, reports: Sequence[FirstAttempts]) -> Awaitable[None]:
        return self._writer.submit(
            lambda tx: retry_budgets.report(tx, reports),
            records=[("-", "retry_budgets", one.kind) for one in reports],
        )

    def release_retries(
        self, kind: str, budget: RetryBudget | None, waiting: Mapping[str, str], *, last: bool
    ) -> Awaitable[int]:
        return self._writer.submit(
            lambda tx: waiting_operations.release_retries(tx, kind, budget, waiting, last),
            jobs=[record.rpartition(" ")[2] for record in waiting],
            records=[("-", "retry_budgets", kind)],
        )

    # --- upkeep

    async def identity(self) -> str:
        (store_id,) = (await self.texts("identity")).values()
        return store_id

    async def void(self, owner: str | None = None) -> int:
        prefix = "" if self.one_process or owner is None else owner
        held, _ = await self.held_and_late(0, prefix)
        ids = [job.id for job in held]
        return await self._writer.submit(lambda tx: operations.void(tx, ids, prefix), jobs=ids)

    def wake(self) -> Awaitable[tuple[set[tuple[str, str]], float | None]]:
        def operation(tx: Transaction) -> tuple[set[tuple[str, str]], float | None]:
            tx.flush()
            return tx.wake()

        return self._writer.submit(operation)

    def lease_of(self, job: Job) -> Lease:
        return Lease(job.owner or "", job.lease_until or 0.0, job.lease_seconds)

    async def leases(self) -> list[Lease]:
        held, _ = await self.held_and_late(0)
        return list({self.lease_of(job) for job in held if job.lease_until})

    async def lost_and_late(self, lost: Sequence[Lease] = (), limit: int = 500) -> LostAndLate:
        held, late = await self.held_and_late(limit)
        ended = set(lost)
        found = [job for job in held if not job.lease_until or self.lease_of(job) in ended]
        return LostAndLate(tuple(found[:limit]), tuple(late))

    async def long_running(self, since: Mapping[str, float], limit: int = 500) -> list[Job]:
        held, _ = await self.held_and_late(0)
        found = [
            job
            for job in held
            if job.running
            and job.overdue_at is None
            and job.started_at is not None
            and job.started_at < since.get(job.kind, -math.inf)
        ]
        return found[:limit]

    async def overdue_counts(self) -> dict[str, int]:
        held, _ = await self.held_and_late(0)
        return Counter(job.kind for job in held if job.overdue_at is not None)

    def check_writable(self) -> Awaitable[None]:
        return self._writer.submit(lambda tx: tx.check_writable())

    async def resume_parked(self, after: str = "", limit: int = 200) -> tuple[list[str], str | None]:
        page = await self.find(
            Filter(
                status=frozenset({Status.PROCESSING}),
                after=Position(after) if after else None,
                limit=limit,
            )
        )
        parked = {
            job.id: job.waiting_for for job in page if job.waiting_for is not None and job.due is None
        }
        # Most parked jobs wait for a job that exists. These reads find them without a lock.
        first = dict(
            zip(parked, await self.get([w[0] if w else "" for w in parked.values()]), strict=True)
        )
        stuck = [
            job_id
            for job_id, child in first.items()
            if isinstance(child, Missing) or child.status.terminal
        ]
        resumed: list[str] = []
        if stuck:
            resumed = await self._writer.submit(
                lambda tx: [job_id for job_id in stuck if operations.resume_parked(tx, job_id)],
                jobs=stuck,
            )
        return resumed, page[-1].id if len(page) == limit else None

    def purge(
        self, *, tombstones: float, keys: float, limit: int = 500
    ) -> Awaitable[tuple[list[str], bool]]:
        keep = self.keeps_events

        def operation(tx: Transaction) -> tuple[list[str], bool]:
            removed = tx.purge(tx.now - tombstones, tx.now - keys, limit, keep_events=keep)
            return removed, len(removed) == limit

        return self._writer.submit(operation)

    async def statistics(self, query: RollupQuery) -> list[tuple[int, str, int]]:
        """A backend that stores `RowChanges.rollups` overrides it."""
        return []

    async def load(self) -> list[LoadSample]:
        """Reads all unfinished jobs. A backend with many jobs overrides it."""
        found: dict[tuple[str, str, str], Counter[bool]] = {}
        live = frozenset({Status.PENDING, Status.RETRYING, Status.PROCESSING})
        page = await self.find(Filter(status=live, limit=PAGE))
        while page:
            for job in page:
                counts = found.setdefault((job.tenant, job.kind, job.queue), Counter())
                counts[job.status is Status.PROCESSING] += 1
            page = await self.find(Filter(status=live, after=Position(page[-1].id), limit=PAGE))
        return [LoadSample(*key, counts[False], counts[True]) for key, counts in found.items()]

    async def sample_load(self) -> None:
        samples = await self.load()
        if samples:
            await self._writer.submit(lambda tx: tx.rollups.sampled(samples))

    def repair_blocked(self) -> Awaitable[set[tuple[str, str]]]:
        return self._writer.submit(lambda tx: tx.unblock_stranded())

    def merge_rollups(self) -> Awaitable[bool]:
        return self._writer.submit(lambda tx: tx.merge_rollups())

    def index_old(self, limit: int = 500) -> Awaitable[bool]:
        return self._writer.submit(lambda tx: tx.index_old(limit))

    async def known(self, ids: Sequence[str]) -> set[str]:
        return {job.id for job in await self.get(ids) if isinstance(job, Job)}

    async def durations(self) -> dict[str, dict[str, Any]]:
        return {
            kind: msgspec.json.decode(sketch) for kind, sketch in (await self.texts("durations")).items()
        }

    def learn(self, durations: dict[str, dict[str, Any]]) -> Awaitable[None]:
        def operation(tx: Transaction) -> None:
            for kind, sketch in durations.items():
                tx.put_text("durations", kind, encode(sketch).decode())

        return self._writer.submit(operation)

    # --- records

    async def records(self, table: RecordTable, filter: RecordFilter = ALL_RECORDS) -> dict[str, str]:
        return await self.texts(table, filter)

    def change_records(self, change: Callable[[RecordAccess], T]) -> Awaitable[T]:
        return self._writer.submit(change)

    # --- uploads

    def add_upload(self, upload: Upload) -> Awaitable[Upload]:
        return self._writer.submit(lambda tx: upload_operations.add(tx, upload))

    def receive(self, received: UploadUpdate) -> Awaitable[Upload | Missing]:
        return self._writer.submit(lambda tx: upload_operations.receive(tx, received))

    def finish(self, finished: CompletedUploads) -> Awaitable[StoredUploads | Missing]:
        new = finished.new
        return self._writer.submit(
            lambda tx: upload_operations.finish(tx, finished),
            jobs=[u.job_id for u in finished.uploads if u.job_id is not None and finished.files],
            keys=[] if new is None else new.keys,
            records=[] if new is None or new.limits is None else [(new.job.tenant, "limits", USE)],
        )

    def remove_upload(self, upload_id: str) -> Awaitable[Upload | UploadInUse | Missing]:
        return self._writer.submit(lambda tx: upload_operations.remove(tx, upload_id))

    async def expire_uploads(
        self, limit: int = 500, inputs: float | None = None
    ) -> tuple[list[Upload], bool]:
        now = self.now()
        ended = None if inputs is None else now - inputs
        found = [u.id for u in await self.uploads(UploadFilter(expired=now, ended=ended, limit=limit))]
        removed: list[Upload] = []
        for begin in range(0, len(found), EXPIRE_BATCH):
            some = found[begin : begin + EXPIRE_BATCH]

            def operation(tx: Transaction, some: Sequence[str] = some) -> list[Upload]:
                return upload_operations.expire(tx, some, inputs)

            removed += await self._writer.submit(operation)
        return removed, len(found) == limit

    async def upload(self, upload_id: str) -> Upload | Missing:
        return await self._writer.submit(
            lambda tx: tx.upload(upload_id) or operations.gone(tx, upload_id)
        )

    async def list_uploads(
        self, tenant: str, status: UploadStatus | None = None, before: str | None = None, limit: int = 50
    ) -> list[Upload]:
        # Each status is a sorted range of the index.
        wanted = (status,) if status is not None else tuple(UploadStatus)
        filters = [UploadFilter(tenant=tenant, status=s, before=before, limit=limit) for s in wanted]
        found = [upload for filter in filters for upload in await self.uploads(filter)]
        return sorted(found, key=lambda upload: upload.id, reverse=True)[:limit]

    async def unfinished(self, replica: str, before: float, limit: int = 500) -> list[Upload]:
        return await self.uploads(UploadFilter(replica=replica, changed=before, limit=limit))

    async def upload_bytes(self) -> UploadBytes:
        uploads = await self.uploads(UploadFilter())
        incomplete = [u for u in uploads if u.status is UploadStatus.UPLOADING]
        return UploadBytes(
            stored=sum(u.bytes for u in uploads),
            reserved=sum(u.reserved for u in incomplete),
            firm=sum(min(u.bytes, u.reserved) for u in incomplete),
        )

    async def waiting_by_tenant(self, queue: str) -> dict[str, int]:
        """Reads all jobs of the queue. A backend with many jobs overrides it."""
        now, found = self.now(), Counter[str]()
        page = await self.find(Filter(queue=queue, limit=PAGE))
        while page:
            found.update(job.tenant for job in page if job.due is not None and job.due <= now)
            page = await self.find(Filter(queue=queue, after=Position(page[-1].id), limit=PAGE))
        return found

    async def stored_bytes(self, tenant: str) -> int:
        """Reads all jobs of the tenant. A backend with many jobs overrides it."""
        uploads = await self.uploads(UploadFilter(tenant=tenant))
        size = sum(u.bytes + u.reserved * (u.status is UploadStatus.UPLOADING) for u in uploads)
        page = await self.find(Filter(tenant=tenant, limit=PAGE))
        while page:
            for job in page:
                size += len(memoryview(job.result)) if job.result is not None else 0
                files = (*job.files, *([job.result_file] if job.result_file is not None else []))
                size += sum(file.size for file in files)
            after = Position(page[-1].id)
            page = await self.find(Filter(tenant=tenant, after=after, limit=PAGE))
        return size

    async def known_uploads(self, ids: Sequence[str]) -> set[str]:
        return await self._writer.submit(lambda tx: {i for i in ids if tx.upload(i) is not None})


class SharedTransactionalStore(TransactionalStore):
    """`SharedStore` on a backend that several processes use at the same time."""

    def record_worker(self, name: str, state: str) -> Awaitable[None]:
        return self._writer.submit(lambda tx: tx.put_text("workers", name, state))

    def remove_worker(self, name: str) -> Awaitable[None]:
        return self._writer.submit(lambda tx: tx.put_text("workers", name, None))

    async def live_workers(self, age: float) -> dict[str, str]:
        return await self.texts("workers", RecordFilter(since=self.now() - age))

    async def waiting(self) -> set[tuple[str, str]]:
        """Read all unfinished jobs. A backend with many jobs overrides it."""
        paused = {queue.name for queue in await self.queues() if queue.paused}
        unfinished = frozenset(status for status in Status if not status.terminal)
        pairs: set[tuple[str, str]] = set()
        page = await self.find(Filter(status=unfinished, limit=PAGE))
        while page:
            pairs |= {(job.queue, job.kind) for job in page if ready(job, self.now())}
            after = Position(page[-1].id)
            page = await self.find(Filter(status=unfinished, after=after, limit=PAGE))
        return {(queue, kind) for queue, kind in pairs if queue not in paused}


def _ignore_work(queue: str, kind: str) -> None:
    pass


def _ignore_reset() -> None:
    pass


def _ignore_log(epoch: str, last: int, events: Sequence[Event]) -> None:
    pass
