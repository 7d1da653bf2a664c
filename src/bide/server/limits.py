"""The limits of tenants: which of them a new job must fit into, and what a response says about them.

The store counts submissions and waiting jobs together with the job (`store.tenant_use`), so these limits are exact. Streams,
uploads and bytes are `allowances`. Here is what needs no transaction:

1. After a refusal, the next submissions are refused without the store until the time at which one fits, because only time
   makes room. A submission with a key goes to the store: it may repeat an earlier one, which is never refused.
2. Waiting jobs are counted when the last count no longer proves that there is room, by one request at a time.
3. Without limits, `ServiceLimits` costs one look-up per submission.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import lru_cache, partial
from typing import Protocol, TypeVar

from msgspec.structs import replace

from bide.core.errors import Problem, QuotaExceeded
from bide.core.jobs.record import Job, Status
from bide.core.jobs.state_machine import Refused
from bide.core.pacing.budget import Limit
from bide.core.pacing.rate_limit import RateReport, RateState, report
from bide.server.allowances import Allowance, Processes
from bide.server.config import LimitsConfig
from bide.server.store import (
    ALL_RECORDS,
    Filter,
    Inserted,
    Insertion,
    JobLimits,
    LimitReached,
    Missing,
    NewJob,
    OverLimit,
    RecordAccess,
    RecordFilter,
    RecordTable,
    TenantUse,
)
from bide.server.store.tenant_use import admit_later, free_key, read_use, set_free
from bide.server.store.transaction import USE
from bide.server.upload_record import Upload, UploadStatus

T = TypeVar("T")
Waiting = tuple[tuple[str, int], ...]  # policies of waiting jobs, and their limits
DEFAULT = "default"  # the policy of the tenant
KIND = "kind:"  # the begin of the policy of a kind
WAITING = frozenset({Status.PENDING, Status.RETRYING})
FULL = 0.2  # seconds for which a count that leaves no room is not repeated
RETRY_LATER = 10  # seconds of Retry-After, if it is unknown when there is room
MOST_SERIES = 100  # tenants that /metrics names
OTHER_TENANTS = "other"
MOST_TENANTS = 10_000  # whose use is known without a transaction


class LimitsStore(Protocol):
    def now(self) -> float: ...

    async def count(self, filter: Filter, most: int) -> int: ...

    async def list_uploads(
        self, tenant: str, status: UploadStatus | None, before: str | None, limit: int
    ) -> list[Upload]: ...

    async def stored_bytes(self, tenant: str) -> int: ...

    async def records(
        self, table: RecordTable, filter: RecordFilter = ALL_RECORDS
    ) -> dict[str, str]: ...

    def change_records(self, change: Callable[[RecordAccess], T]) -> Awaitable[T]: ...


class ServiceLimits:
    """The limits of one service."""

    def __init__(self, config: LimitsConfig, store: LimitsStore, *, shared: bool = False) -> None:
        """`shared`: there may be other replicas with the same store."""
        self.on = config != LimitsConfig()
        self._config = config
        self._store = store
        self._of = lru_cache(maxsize=MOST_TENANTS)(self._find)
        # As of the latest submission; the oldest first.
        self._use: OrderedDict[str, TenantUse] = OrderedDict()
        self._refused: dict[
            tuple[str, str], tuple[float, Limit]
        ] = {}  # until when, by tenant and policy
        self._full: dict[tuple[str, str], float] = {}  # until when no job is counted
        processes = self.processes = Processes(store, shared=shared and config.has_allowances)
        self._streams = Allowance("streams", store, processes)
        pause = FULL if shared else 0.0
        self._uploads = Allowance("uploads", store, processes, self._count_uploads, pause)
        self._bytes = Allowance("bytes", store, processes, self._count_bytes, FULL)
        self.refused: Counter[str] = Counter()  # requests, by limit or by code
        self.throttled: Counter[tuple[str, str]] = Counter()  # requests, by tenant and limit
        self._throttled_tenants: set[str] = set()
        self._counts: dict[tuple[str, str], asyncio.Future[bool]] = {}  # that run now

    # --- submissions

    def of_job(self, tenant: str, kind: str) -> JobLimits | None:
        """The limits of a new job; None if there are none."""
        return self._of(tenant, kind)

    def _find(self, tenant: str, kind: str) -> JobLimits | None:
        whole, part = self._config.of(tenant), self._config.of_kind(tenant, kind)
        policies = ((DEFAULT, whole), (KIND + kind, part))
        rates = tuple((name, of.submit) for name, of in policies if of.submit is not None)
        waiting = tuple((name, of.waiting) for name, of in policies if of.waiting is not None)
        return JobLimits(rates, waiting) if rates or waiting else None

    def check(self, tenant: str, kind: str) -> None:
        """Raise QuotaExceeded if it is known that a submission would be refused now."""
        limits = self._of(tenant, kind)
        if limits is None or not self._refused:
            return
        now = self._store.now()
        for policy, limit in limits.rates:
            until = self._refused.get((tenant, policy))
            if until is not None and until[1] == limit:
                if now < until[0]:
                    use = self._use.get(tenant) or TenantUse()
                    wait = until[0] - now
                    raise quota_exceeded(
                        limits, LimitReached("submit", policy, limit.requests, wait, use), now
                    )
                del self._refused[tenant, policy]

    async def settle(
        self,
        new: Sequence[NewJob],
        outcomes: list[Insertion],
        insert: Callable[[Sequence[NewJob]], Awaitable[list[Insertion]]],
    ) -> list[Insertion]:
        """Learn from the outcomes of insertions. Insert the jobs again that may fit after their tenant's waiting jobs are
        counted.
        """
        self.learn(new, outcomes)
        if not any(isinstance(outcome, LimitReached) for outcome in outcomes):
            return outcomes
        again = [
            index
            for index, (job, outcome) in enumerate(zip(new, outcomes, strict=True))
            if isinstance(outcome, LimitReached)
            and outcome.limit == "waiting"
            and await self._has_room(job.job.tenant, outcome)
        ]
        if again:
            repeated = [new[index] for index in again]
            results = await insert(repeated)
            self.learn(repeated, results)
            for index, result in zip(again, results, strict=True):
                outcomes[index] = result
        return outcomes

    async def make_room(self, new: NewJob) -> None:
        """Count the waiting jobs if that is needed to insert a job. Raise QuotaExceeded if there is no room. For a job whose
        insertion cannot be repeated.
        """
        limits, tenant = new.limits, new.job.tenant
        if limits is None or not limits.waiting:
            return
        records = await self._store.records("limits", RecordFilter(tenant=tenant, names=(USE,)))
        use = read_use(records.get(USE))
        for policy, most in limits.waiting:
            reached = LimitReached("waiting", policy, most, 0.0, use)
            if use.free.get(free_key(policy, most), 0) < 1 and not await self._has_room(tenant, reached):
                raise quota_exceeded(limits, reached, self._store.now())

    async def admit_later(self, new: NewJob) -> None:
        """Count the submission of an upload that begins now. Raises QuotaExceeded."""
        limits, tenant = new.limits, new.job.tenant
        if limits is None or not limits.rates:
            return
        change = partial(admit_later, tenant=tenant, limits=limits)
        outcome = await self._store.change_records(change)
        self.learn([new], [outcome])
        if isinstance(outcome, LimitReached):
            raise quota_exceeded(limits, outcome, self._store.now())

    def waiting_by_kind(self, tenant: str) -> dict[str, Waiting]:
        """The limits of waiting jobs of each kind that has one of its own, and of the others with the name ""."""
        kinds = ("", *self._config.of(tenant).kinds) if self.on else ()
        found = {kind: self._of(tenant, kind) for kind in kinds}
        return {kind: limits.waiting for kind, limits in found.items() if limits is not None}

    async def admit_again(
        self,
        tenant: str,
        kind: str,
        rerun: Callable[[Waiting], Awaitable[Job | Refused | Missing]],
    ) -> Job | Refused | Missing:
        """Run a job again, with the limits of waiting jobs. Raises QuotaExceeded."""
        limits = self._of(tenant, kind) if self.on else None
        while isinstance(outcome := await rerun(() if limits is None else limits.waiting), OverLimit):
            assert limits is not None
            if not await self._has_room(tenant, outcome.reached):
                raise quota_exceeded(limits, outcome.reached, self._store.now())
        return outcome

    async def count_waiting(self, tenant: str, number: int) -> None:
        """Count the waiting jobs, if the last count does not prove that there is room for `number` more."""
        policies = {p for limits in self.waiting_by_kind(tenant).values() for p in limits}
        if not policies:
            return
        records = await self._store.records("limits", RecordFilter(tenant=tenant, names=(USE,)))
        use = read_use(records.get(USE))
        for policy, most in sorted(policies):
            if use.free.get(free_key(policy, most), 0) < number:
                await self._has_room(tenant, LimitReached("waiting", policy, most, 0.0, use))

    def learn(self, new: Sequence[NewJob], outcomes: Sequence[Insertion | TenantUse | None]) -> None:
        for job, outcome in zip(new, outcomes, strict=True):
            use = outcome if isinstance(outcome, TenantUse) else None
            if isinstance(outcome, Inserted | LimitReached):
                use = outcome.use
            if use is None:
                continue
            tenant = job.job.tenant
            known = self._use.get(tenant)
            if known is None or use.inserted >= known.inserted:
                self._use[tenant] = use
            self._use.move_to_end(tenant)
            if len(self._use) > MOST_TENANTS:
                self._use.popitem(last=False)
            if isinstance(outcome, LimitReached) and outcome.limit == "submit":
                assert job.limits is not None
                limit = dict(job.limits.rates)[outcome.policy]
                if len(self._refused) >= MOST_TENANTS:
                    self._refused.clear()
                until = self._store.now() + outcome.wait
                self._refused[tenant, outcome.policy] = (until, limit)

    async def _has_room(self, tenant: str, reached: LimitReached) -> bool:
        """Count the waiting jobs of a tenant. Return whether the limit allows more."""
        key = (tenant, reached.policy)
        if self._store.now() < self._full.get(key, -math.inf):
            return False
        counting = self._counts.get(key)
        if counting is None:
            counting = self._counts[key] = asyncio.ensure_future(self._count(key, reached))
            counting.add_done_callback(lambda _: self._counts.pop(key, None))
        return await asyncio.shield(counting)

    async def _count(self, key: tuple[str, str], reached: LimitReached) -> bool:
        tenant, policy = key
        most = int(reached.most)
        kind = policy.removeprefix(KIND) if policy.startswith(KIND) else None
        waiting = await self._store.count(Filter(tenant=tenant, status=WAITING, kind=kind), most)
        change = partial(
            set_free,
            tenant=tenant,
            policy=policy,
            most=most,
            waiting=waiting,
            inserted=reached.use.inserted,
        )
        use = await self._store.change_records(change)
        room = use.free[free_key(policy, most)] > 0
        if not room:
            if len(self._full) >= MOST_TENANTS:
                self._full.clear()
            self._full[key] = self._store.now() + FULL
        return room

    # --- uploads and streams

    @asynccontextmanager
    async def upload(self, upload: Upload) -> AsyncIterator[None]:
        """Store a new upload inside of it. Raise QuotaExceeded if the tenant has too many uploads, or too many bytes."""
        tenant, limits = upload.tenant, self._config.of(upload.tenant)
        if (
            limits.uploads is None and limits.bytes is None
        ) or upload.status is not UploadStatus.UPLOADING:
            yield
            return
        most = limits.uploads
        if most is not None and await self._uploads.take(tenant, 1, most) is not None:
            raise too_many(
                "uploads",
                f"the limit of the tenant is {most} incomplete uploads. Complete or delete one",
            )
        try:
            async with self.receiving(tenant) as received:
                await received.add(upload.reserved)
                yield
        finally:
            if most is not None:
                self._uploads.settle(tenant, 1, most)

    def receiving(self, tenant: str) -> ReceivedBytes:
        """Receive bytes of a tenant inside of it, until they are in the store or given up."""
        return ReceivedBytes(self._bytes, tenant, self._config.of(tenant).bytes if self.on else None)

    async def _count_uploads(self, tenant: str, most: int) -> int:
        return len(await self._store.list_uploads(tenant, UploadStatus.UPLOADING, None, most))

    async def _count_bytes(self, tenant: str, most: int) -> int:
        return await self._store.stored_bytes(tenant)

    async def open_stream(self, tenant: str) -> Callable[[], None]:
        """Count an open stream of a tenant. Return what to call at its end. Raise QuotaExceeded if there are too many."""
        most = self._config.of(tenant).streams if self.on else None
        if most is None:
            return _nothing
        if await self._streams.take(tenant, 1, most) is not None:
            raise too_many("streams", f"the limit of the tenant is {most} open streams. Close one")
        return partial(self._streams.give_back, tenant, 1, most)

    # --- responses

    def count(self, problem: Problem, tenant: str) -> None:
        """Count a refused request, for /metrics. Only the first MOST_SERIES tenants are counted by their names."""
        limit = (problem.members or {}).get("limit")
        self.refused[limit or problem.code] += 1
        if limit is not None:
            named = self._throttled_tenants
            if tenant not in named:
                tenant = tenant if len(named) < MOST_SERIES else OTHER_TENANTS
                named.add(tenant)
            self.throttled[tenant, limit] += 1

    def headers(self, tenant: str, kind: str = "") -> dict[str, str]:
        """RateLimit and RateLimit-Policy of the tenant and of one kind; empty without such limits."""
        limits = self._of(tenant, kind) if self.on else None
        if limits is None:
            return {}
        return _headers(limits, self._use.get(tenant), self._store.now())


class ReceivedBytes:
    """The bytes that one request sends. They count from the time at which their size is known, or they arrive."""

    def __init__(self, allowance: Allowance, tenant: str, most: int | None) -> None:
        self._allowance = allowance
        self._tenant = tenant
        self._most = most  # None: there is no limit
        self._size = 0

    async def add(self, size: int) -> None:
        """Raise QuotaExceeded if `size` more bytes do not fit."""
        most = self._most
        if most is None:
            return
        used = await self._allowance.take(self._tenant, size, most)
        if used is not None:
            detail = f"the tenant stores {used} of {most} bytes; {size} more do not fit. Delete uploads or jobs"
            raise too_many("bytes", detail)
        self._size += size

    async def __aenter__(self) -> ReceivedBytes:
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._most is not None:
            self._allowance.settle(self._tenant, self._size, self._most)


def _nothing() -> None:
    pass


def too_many(limit: str, detail: str) -> QuotaExceeded:
    """The problem of a limit that only other requests can make room in."""
    return QuotaExceeded(
        detail,
        headers={"Retry-After": str(RETRY_LATER)},
        members={"limit": limit, "retryAfter": RETRY_LATER, "violated-policies": [DEFAULT]},
    )


def forced(limits: JobLimits) -> JobLimits:
    """The limits of a job that the service has promised to accept when its upload began, and counted as a submission then.
    It is not refused.
    """
    return replace(limits, rates=(), force=True)


def quota_exceeded(limits: JobLimits, reached: LimitReached, now: float) -> QuotaExceeded:
    """The problem of a job that a limit refused."""
    policy, seconds = reached.policy, max(1, math.ceil(reached.wait - 1e-6))
    whose = f"of kind {policy.removeprefix(KIND)}" if policy.startswith(KIND) else "of the tenant"
    if reached.limit == "submit":
        rate = render_limit(dict(limits.rates)[policy])
        detail = f"the limit {whose} is {rate} submissions; the next one fits in {reached.wait:.1f} s"
    else:
        detail = f"the limit {whose} is {reached.most:g} waiting jobs; try again when some have started"
    return QuotaExceeded(
        detail,
        headers={"Retry-After": str(seconds), **_headers(limits, reached.use, now)},
        members={"limit": reached.limit, "retryAfter": seconds, "violated-policies": [policy]},
    )


def render_limit(limit: Limit) -> str:
    """A limit as bide.toml has it."""
    seconds = limit.per
    unit = next((u for u, s in _UNITS if seconds >= s and (seconds / s).is_integer()), "s")
    length = seconds / dict(_UNITS)[unit]
    burst = "" if limit.burst is None else f":{limit.burst:g}"
    return f"{limit.requests:g}/{length:g}{unit}{burst}"


_UNITS = (("d", 86400.0), ("h", 3600.0), ("m", 60.0), ("s", 1.0))


def _headers(limits: JobLimits, use: TenantUse | None, now: float) -> dict[str, str]:
    if not limits.rates:
        return {}
    headers = {"RateLimit-Policy": _render_policies(limits.rates)}
    if use is not None:
        headers["RateLimit"] = ", ".join(
            [
                _render_report(report(name, limit, use.rates.get(name) or RateState(), now))
                for name, limit in limits.rates
            ]
        )
    return headers


@lru_cache(maxsize=1024)
def _render_policies(rates: tuple[tuple[str, Limit], ...]) -> str:
    return ", ".join(_render_policy(*rate) for rate in rates)


def _render_policy(policy: str, limit: Limit) -> str:
    # A structured field has whole numbers; a window without them is not reported.
    window = f";w={limit.per:.0f}" if limit.per >= 1 and limit.per.is_integer() else ""
    return f'"{policy}";q={math.floor(limit.requests)}{window}'


def _render_report(report: RateReport) -> str:
    return f'"{report.policy}";r={report.remaining};t={max(1, math.ceil(report.reset - 1e-6))}'
