"""Bulk actions: cancels, retries, deletes or re-prioritizes all jobs that match a filter, as a job of the kind `bide.bulk`.

The service itself runs these jobs, with every engine, because they need no handler. `BulkRunner` claims them like a worker:
with an owner, a lease and a fence.

1. `JobStore.act` changes a page of jobs and stores the position in the same transaction. So no job is changed twice and none
   is left out, also if the service is killed. After a restart, or on another replica, the action continues behind the last
   page; so does a retry of a cancelled action.
2. The runner walks the jobs in the order of their ids, and stops at `BulkOrder.end`. Jobs that are created after the request
   have a greater id.
3. Pages are small, and the runner pauses after each for longer than the page took, so that other requests hardly wait.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Annotated, TypeVar

import msgspec
from msgspec.structs import replace

from bide.core.clock import render_instant
from bide.core.errors import InvalidInput, NotConfirmed, Problem, QueryTimeout, StorageUnavailable
from bide.core.jobs.lease import renewal_interval
from bide.core.jobs.record import LIVE, Job, Progress, Status
from bide.core.jobs.retry import Outcome, Policy, Raised, Returned, Stopped, settle
from bide.core.jobs.state_machine import Refused
from bide.core.json_log import about_job
from bide.core.wire.http import ID_PATTERN, Event, encode, job_id, read_instant_at
from bide.server.blobs import Blobs
from bide.server.intake import Intake, accepted, new_trace_id
from bide.server.limits import ServiceLimits, too_many
from bide.server.progress import LiveProgress, ProgressSink, attempt_key
from bide.server.registry import BULK, SERVICE_QUEUE, Registry
from bide.server.search import FilterFields, read_filter
from bide.server.store import (
    BULK_STEP,
    BulkAction,
    BulkPage,
    BulkProgress,
    BulkState,
    Claim,
    ClaimRequest,
    Filter,
    Inserted,
    JobStore,
    Missing,
    NewJob,
    Position,
    StoreUnavailable,
)
from bide.server.store.bulk_operations import read_state

log = logging.getLogger("bide.bulk")
T = TypeVar("T")
PAGE = 4  # jobs per transaction, so that other requests wait for less than a millisecond
PAUSE = 2  # times the duration of a page, after each page
IDS = 2000  # ids per query
MAX_IDS = 1000  # ids in a filter
COUNT_IDS = 10_000
MAX_UNENDED = 100  # bulk actions of a tenant
CONCURRENT = 2  # bulk actions that one service runs at the same time
CLAIM_EVERY = 10.0  # seconds, in case that a hint was lost
RETRY_AFTER = 1.0  # seconds after the store was unavailable
QUERY_ATTEMPTS = 10
KEEP = 7 * 86400.0  # seconds after the end
CAN_RETRY = frozenset({Status.ERROR, Status.CANCELLED, Status.PARTIAL_SUCCESS})
# The statuses in which an action can change a job.
POSSIBLE: dict[BulkAction, frozenset[Status]] = {
    "cancel": LIVE,
    "retry": CAN_RETRY,
    "delete": frozenset(Status) - {Status.PROCESSING},
    "priority": LIVE - {Status.PROCESSING},
}


class BulkFilter(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", omit_defaults=True
):
    """The filter of a bulk action, with the fields of GET /jobs. `id` cannot be combined with other fields."""

    id: Annotated[
        tuple[Annotated[str, msgspec.Meta(pattern=f"^{ID_PATTERN}$")], ...],
        msgspec.Meta(max_length=MAX_IDS),
    ] = ()
    q: str | None = None
    status: Status | tuple[Status, ...] = ()
    kind: str | None = None
    queue: str | None = None
    label: Annotated[str, msgspec.Meta(pattern="^[^:]*:")] | None = None  # key:value
    code: str | None = None
    created_after: str | None = None
    created_before: str | None = None


class BulkRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The body of POST /bulk."""

    action: BulkAction
    filter: BulkFilter
    priority: Annotated[int, msgspec.Meta(ge=-1000, le=1000)] | None = None
    dry_run: bool = False
    confirm: Annotated[int, msgspec.Meta(ge=0)] | None = None


class BulkOrder(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The input of a job of the kind `bide.bulk`."""

    action: BulkAction
    filter: BulkFilter
    before: str  # only jobs that were created before this instant
    end: str  # only jobs with a smaller id
    priority: int | None = None


class BulkResult(msgspec.Struct, frozen=True, rename="camel"):
    """The result of a bulk action. `count`: the jobs that matched at the start."""

    action: BulkAction
    count: int | None
    changed: int
    refused: int
    skipped: int
    errors: list[dict[str, str]]


_read_order = msgspec.json.Decoder(BulkOrder)


class BulkActions:
    """Accepts bulk actions: validates, counts and stores them."""

    def __init__(
        self, registry: Registry, store: JobStore, intake: Intake, hint: Callable[[], None]
    ) -> None:
        self._registry = registry
        self._store = store
        self._intake = intake
        self._hint = hint

    async def count(self, request: BulkRequest, tenant: str) -> int:
        """The number of jobs that match now."""
        filter = self._filter(request, tenant, (await self._end())[1])
        return 0 if filter is None else await count(self._store, filter, request.filter.id)

    async def submit(
        self, request: BulkRequest, tenant: str, *, key: str | None = None, trace_id: str | None = None
    ) -> Inserted:
        """Store the job of a bulk action. Raises InvalidInput, NotConfirmed and QuotaExceeded."""
        self._intake.check_open()
        if key is not None and "\0" in key:
            raise InvalidInput("an idempotency key cannot contain NUL")
        before, end = await self._end()
        filter = self._filter(request, tenant, end)
        repeated = key is not None and await self._store.has_key(tenant, BULK, key)
        if (request.action == "delete" or request.confirm is not None) and not repeated:
            found = 0 if filter is None else await count(self._store, filter, request.filter.id)
            if request.confirm != found:
                given = "no confirm" if request.confirm is None else f"confirm={request.confirm}"
                raise NotConfirmed(f"the request has {given}, but {found} jobs match")
        if not repeated:
            await self._check_limit(tenant)
        order = BulkOrder(request.action, request.filter, render_instant(before), end, request.priority)
        now = self._store.now()
        job = Job(
            id=self._intake.id(now),
            kind=BULK,
            queue=SERVICE_QUEUE,
            created_at=now,
            updated_at=now,
            tenant=tenant,
            due=now,
            keep=KEEP,
            trace_id=trace_id or new_trace_id(),
        )
        fingerprint = b"" if key is None else hashlib.sha256(encode(request)).digest()
        new = NewJob(job, encode(order), key=key, fingerprint=fingerprint)
        (outcome,) = await self._store.insert([new])
        self._hint()
        return accepted(outcome, new)

    async def _check_limit(self, tenant: str) -> None:
        """Raise QuotaExceeded if the tenant has too many bulk actions that have not ended."""
        unended = Filter(tenant=tenant, kind=BULK, status=LIVE)
        if await self._store.count(unended, MAX_UNENDED) >= MAX_UNENDED:
            raise too_many(
                "bulk", f"the tenant has {MAX_UNENDED} bulk actions that have not ended, the limit"
            )

    async def _end(self) -> tuple[float, str]:
        """An instant after all jobs that exist, and the smallest id of that instant. Ids have a resolution of 1 ms: wait
        until the next millisecond, so that a job that is created after the response has a greater id.
        """
        ms = int(self._store.now() * 1000) + 1
        for _ in range(10):
            if (rest := ms / 1000 - self._store.now()) <= 0:
                break
            await asyncio.sleep(rest)
        return ms / 1000, job_id((ms + 0.5) / 1000, bytes(16))

    def _filter(self, request: BulkRequest, tenant: str, end: str) -> Filter | None:
        if (request.priority is None) == (request.action == "priority"):
            raise InvalidInput.at("/priority", "needed by the action `priority`, and by no other")
        return filter_of(request.action, request.filter, self._registry, tenant, end)


def filter_of(
    action: BulkAction, fields: BulkFilter, registry: Registry, tenant: str, end: str
) -> Filter | None:
    """The filter of the jobs that an action can change, without its `id`s; None if no job can match. Raises InvalidInput."""
    if fields.id and fields != BulkFilter(id=fields.id):
        raise InvalidInput.at("/filter/id", "cannot be combined with other fields")
    try:
        found = read_filter(_fields(fields), registry, tenant)
    except InvalidInput as error:
        for one in error.errors or ():  # of a query parameter, there
            one["pointer"] = one["pointer"].replace("?", "/filter/", 1)
        raise
    if found is None:
        return None
    possible = POSSIBLE[action]
    status = found.status & possible if found.status else possible
    if not status:
        given, needed = ", ".join(sorted(found.status)), ", ".join(sorted(possible))
        detail = f"{action} has no effect on jobs that are {given}, only on {needed}"
        raise InvalidInput(detail, errors=[{"pointer": "/filter/status", "detail": detail}])
    return replace(
        found, status=status, end=end if found.end is None else min(found.end, end), order="oldest"
    )


def _fields(fields: BulkFilter) -> FilterFields:
    name, _, value = (fields.label or "").partition(":")
    after, before = fields.created_after, fields.created_before
    return FilterFields(
        q=fields.q,
        status=(fields.status,) if isinstance(fields.status, Status) else fields.status,
        kind=fields.kind,
        queue=fields.queue,
        label=None if fields.label is None else (name, value),
        code=fields.code,
        created_after=None if after is None else read_instant_at("/filter/createdAfter", after),
        created_before=None if before is None else read_instant_at("/filter/createdBefore", before),
    )


async def count(store: JobStore, filter: Filter, ids: Sequence[str] = ()) -> int:
    """The exact number of jobs on which a bulk action acts. Each query has the time limit of lists."""
    if ids:
        return len(await _named(store, filter, ids))
    total = await _count(store, filter)
    if filter.kind is None and total:  # bulk actions leave each other out
        total -= await _count(store, replace(filter, kind=BULK))
    return total


async def _count(store: JobStore, filter: Filter) -> int:
    total = 0
    while True:
        ids = await store.ids(replace(filter, limit=COUNT_IDS))
        total += len(ids)
        if len(ids) < COUNT_IDS:
            return total
        filter = replace(filter, after=Position(ids[-1]))


async def _named(store: JobStore, filter: Filter, ids: Sequence[str]) -> list[str]:
    """Those of the ids that an action can change, in the order of a list of the filter."""
    jobs = [job for job in await store.get(sorted(set(ids))) if isinstance(job, Job)]
    return [
        job.id
        for job in jobs
        if job.tenant == filter.tenant
        and job.kind != BULK
        and job.status in filter.status
        and (filter.end is None or job.id < filter.end)
        and (filter.after is None or job.id > filter.after.id)
    ]


class BulkRunner:
    """Claims and runs jobs of the kind `bide.bulk`."""

    def __init__(
        self,
        registry: Registry,
        store: JobStore,
        blobs: Blobs,
        progress: ProgressSink,
        lease: float,
        owner: Callable[[], str],
        limits: ServiceLimits | None = None,
    ) -> None:
        self._registry = registry
        self._limits = limits
        self._store = store
        self._blobs = blobs
        self._progress = progress
        self._lease = lease
        self._make_owner = owner
        self._owner = ""  # set by `start`
        self._running: dict[str, _Run] = {}  # by job id
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._hinted = asyncio.Event()
        self._loops: list[asyncio.Task[None]] = []
        self._stopping = False
        self._rng = random.Random()

    async def start(self) -> None:
        # Not the owner of the engine, which would not know these attempts.
        self._owner = f"{self._make_owner()}.bulk"
        loop = asyncio.get_running_loop()
        self._loops = [loop.create_task(self._claim_loop()), loop.create_task(self._renew_loop())]

    async def stop(self) -> None:
        """Stop claiming, and hand the running actions back to the store after their current page."""
        self._stopping = True
        self._hinted.set()
        for run in self._running.values():
            run.stop()
        if self._loops:
            claiming, renewing = self._loops
            await asyncio.gather(claiming, return_exceptions=True)
            for run in self._running.values():  # claimed meanwhile
                run.stop()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)
            renewing.cancel()
            await asyncio.gather(renewing, return_exceptions=True)

    def hint(self) -> None:
        """Claim now, because there may be a new job."""
        self._hinted.set()

    def on_events(self, events: Sequence[Event]) -> None:
        for event in events:
            known = event.job
            if event.type == "queue":
                self.hint()
            elif event.type == "status" and known["kind"] == BULK:
                run = self._running.get(event.job_id)
                if run is None:
                    self.hint()
                elif known["fence"] == run.job.fence and known.get("cancelAsked"):
                    run.wake()

    def holds(self, job: Job) -> bool:
        """Whether this process runs this attempt."""
        run = self._running.get(job.id)
        return run is not None and (run.job.owner, run.job.fence) == (job.owner, job.fence)

    # --- loops

    async def _claim_loop(self) -> None:
        while not self._stopping:
            self._hinted.clear()
            free = CONCURRENT - len(self._running)
            claims: list[Claim] = []
            if free > 0:
                try:
                    claims = await self._store.claim(
                        self._owner, [ClaimRequest(SERVICE_QUEUE, (BULK,), free)], free, self._lease
                    )
                except StoreUnavailable as error:
                    log.error("cannot claim bulk actions; retrying: %s", error)
                except Exception:
                    log.exception("cannot claim bulk actions; retrying")
            for claim in claims:
                self._start(claim)
            try:
                async with asyncio.timeout(CLAIM_EVERY):
                    await self._hinted.wait()
            except TimeoutError:
                continue

    def _start(self, claim: Claim) -> None:
        earlier = self._running.get(claim.job.id)
        if earlier is not None:  # the store has lost the claim of an attempt that still runs here
            earlier.lose()
        run = _Run(
            *(claim, self._registry, self._store, self._blobs, self._progress, self._rng, self._limits)
        )
        self._running[claim.job.id] = run
        task = asyncio.get_running_loop().create_task(run.run())
        self._tasks[claim.job.id] = task

        def ended(task: asyncio.Task[None]) -> None:
            if self._running.get(claim.job.id) is run:
                del self._running[claim.job.id], self._tasks[claim.job.id]
            if not task.cancelled() and (error := task.exception()) is not None:
                log.error(
                    "bulk action %s failed", claim.job.id, exc_info=error, extra=about_job(claim.job)
                )
            self.hint()

        task.add_done_callback(ended)

    async def _renew_loop(self) -> None:
        while True:
            await asyncio.sleep(renewal_interval(self._lease))
            held = [(run.job.id, run.job.fence) for run in self._running.values()]
            if not held:
                continue
            try:
                lost = await self._store.renew(self._owner, held, self._lease)
            except StoreUnavailable as error:
                log.error("cannot renew the leases of bulk actions; retrying: %s", error)
                continue
            except Exception:
                log.exception("cannot renew the leases of bulk actions; retrying")
                continue
            for lost_id, fence in lost:
                run = self._running.get(lost_id)
                if run is not None and run.job.fence == fence:
                    run.lose()


class _Run:
    """One attempt of a bulk action."""

    def __init__(
        self,
        claim: Claim,
        registry: Registry,
        store: JobStore,
        blobs: Blobs,
        progress: ProgressSink,
        rng: random.Random,
        limits: ServiceLimits | None,
    ) -> None:
        self.job = claim.job
        self._limits = limits
        self._input = claim.input
        self._registry = registry
        self._store = store
        self._blobs = blobs
        self._progress = progress
        self._rng = rng
        self._number = 0  # of reported progress
        self._state = BulkState()
        self._stopping = self._lost = False
        self._woken = asyncio.Event()

    def stop(self) -> None:
        """End after the current page, and hand the job back."""
        self._stopping = True
        self._woken.set()

    def lose(self) -> None:
        """End without another write: another process has the job."""
        self._lost = True
        self._woken.set()

    def wake(self) -> None:
        """End a pause, because a cancel was requested. The next page then finds the request."""
        self._woken.set()

    async def run(self) -> None:
        key = attempt_key(self.job)
        self._progress.publish(key, LiveProgress(0, Progress()))
        try:
            outcome = await self._outcome()
            if outcome is not None:
                await self._settle(outcome)
        finally:
            self._progress.ended(key)

    async def _outcome(self) -> Outcome | None:
        """Act on all jobs. Return how the attempt has ended; None if another process has the job."""
        try:
            order = _read_order.decode(self._input)
            filter = filter_of(order.action, order.filter, self._registry, self.job.tenant, order.end)
            return await self._walk(order, filter)
        except StoreUnavailable:  # only raised while the runner stops
            return self._end()
        except QueryTimeout as error:
            return Raised(code="QUERY_TIMEOUT", message=error.detail, retryable=False)
        except Problem as error:  # for example a path that the app no longer declares
            return Raised(code="INVALID_FILTER", message=error.detail, retryable=False)
        except msgspec.MsgspecError as error:
            return Raised(code="INVALID_INPUT", message=str(error), retryable=False)
        except Exception as error:
            log.exception("bulk action %s failed", self.job.id, extra=about_job(self.job))
            return Raised(code="INTERNAL", message=f"{type(error).__name__}: {error}", retryable=False)

    async def _walk(self, order: BulkOrder, filter: Filter | None) -> Outcome | None:
        stored = read_state(await self._patiently(lambda: self._store.step(self.job.id, BULK_STEP)))
        if stored is not None:
            self._state = stored
            self._report()
        else:
            total = 0
            if filter is not None:
                total = await self._patiently(lambda: count(self._store, filter, order.filter.id))
            self._state = BulkState(total=total)
            if not await self._act(order, filter, ()):
                return self._end()
        while filter is not None:
            wanted = replace(filter, after=_position(self._state), limit=IDS)
            if order.filter.id:
                ids = await self._patiently(partial(_named, self._store, wanted, order.filter.id))
            else:
                ids = await self._patiently(partial(self._store.ids, wanted))
            for begin in range(0, len(ids), PAGE):
                if not await self._act(order, filter, tuple(ids[begin : begin + PAGE])):
                    return self._end()
            if len(ids) < IDS:
                break
        state = self._state
        result = BulkResult(
            order.action,
            state.total,
            state.changed,
            state.refused,
            state.skipped,
            [{"jobId": one.job_id, "detail": one.detail} for one in state.refusals],
        )
        return Returned(result=msgspec.Raw(encode(result)))

    def _end(self) -> Outcome | None:
        """The outcome of an attempt that has ended before its last page."""
        # After a cancel, the state machine makes it CANCELLED.
        return None if self._lost else Stopped()

    async def _act(self, order: BulkOrder, filter: Filter | None, ids: tuple[str, ...]) -> bool:
        """Act on a page, and pause. Return False if the attempt must end."""
        if self._stopping or self._lost:
            return False
        began = time.monotonic()
        waiting = {}
        if self._limits is not None and order.action == "retry" and ids:
            count = partial(self._limits.count_waiting, self.job.tenant, len(ids))
            await self._patiently(count)
            waiting = self._limits.waiting_by_kind(self.job.tenant)
        page = BulkPage(
            job_id=self.job.id,
            owner=self.job.owner or "",
            fence=self.job.fence,
            state=self._state,
            ids=ids,
            action=order.action,
            status=POSSIBLE[order.action] if filter is None else filter.status,
            code=None if filter is None else filter.code,
            kind=None if filter is None else filter.kind,
            priority=order.priority or 0,
            waiting=waiting,
        )
        outcome = await self._patiently(lambda: self._store.act(page))
        if not isinstance(outcome, BulkProgress):
            self._lost = isinstance(outcome, Missing) or outcome.job.cancel_asked_at is None
            return False
        self._state = outcome.state
        self._report()
        if order.action == "delete":
            await self._remove_files(outcome.changed)
        await self._pause(PAUSE * (time.monotonic() - began))
        return not (self._stopping or self._lost)

    async def _remove_files(self, ids: Sequence[str]) -> None:
        for deleted in ids:
            try:
                await self._blobs.remove(deleted)
            except StorageUnavailable as error:
                log.warning(
                    "cannot remove the files of deleted job %s; the upkeep retries: %s", deleted, error
                )

    async def _patiently(self, work: Callable[[], Awaitable[T]]) -> T:
        """Repeat until the store is available. Raise QueryTimeout after QUERY_ATTEMPTS."""
        attempts = 0
        while True:
            try:
                return await work()
            except StoreUnavailable as error:
                if self._stopping or self._lost:
                    raise
                log.error(
                    "bulk action %s cannot continue; retrying: %s",
                    self.job.id,
                    error,
                    extra=about_job(self.job),
                )
            except QueryTimeout:
                attempts += 1
                if attempts == QUERY_ATTEMPTS:
                    raise
            await self._pause(RETRY_AFTER)

    async def _pause(self, seconds: float) -> None:
        self._woken.clear()
        if self._stopping or self._lost:
            return
        try:
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        except TimeoutError:
            return

    def _report(self) -> None:
        self._number += 1
        live = LiveProgress(self._number, self._shown(), self._store.now())
        self._progress.publish(attempt_key(self.job), live)

    def _shown(self) -> Progress:
        state = self._state
        percent = None if state.total is None else 100.0 * min(1.0, state.done / max(1, state.total))
        return Progress(
            percent=None if percent is None else math.floor(percent * 10) / 10,
            message=f"{state.changed} changed, {state.refused} refused, {state.skipped} skipped",
            done=state.done,
            total=None if state.total is None else max(state.total, state.done),
            unit="jobs",
        )

    async def _settle(self, outcome: Outcome) -> None:
        """Store how the attempt has ended, with retries, because otherwise the job would wait for its lease to end."""
        while True:
            shown = self._shown() if self._number else None
            change = settle(
                self.job, outcome, Policy(), now=self._store.now(), rng=self._rng, progress=shown
            )
            try:
                (stored,) = await self._store.apply([change])
            except StoreUnavailable as error:
                if self._stopping or self._lost:
                    return
                log.error(
                    "bulk action %s: cannot store its end; retrying: %s",
                    self.job.id,
                    error,
                    extra=about_job(self.job),
                )
                await asyncio.sleep(RETRY_AFTER)
                continue
            if isinstance(stored, Refused):
                log.warning(
                    "bulk action %s has lost its lease: %s",
                    self.job.id,
                    stored.reason,
                    extra=about_job(self.job),
                )
            return


def _position(state: BulkState) -> Position | None:
    return Position(state.cursor) if state.cursor else None
