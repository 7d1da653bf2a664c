"""A store in memory, written from CONTRIBUTING.md: the smallest backend that passes the suite. Nothing in it is fast."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from bide.core.clock import Clock
from bide.core.jobs.fair import Slice, start_order
from bide.core.jobs.record import Job, Status
from bide.core.wire.http import Event
from bide.server.store import (
    ALL_RECORDS,
    BY_CONTENT,
    RECORDS,
    ClaimRequest,
    EventFilter,
    Filter,
    InputFile,
    LogPage,
    OnEvents,
    OnLog,
    OnReset,
    OnWork,
    QueueState,
    RecordFilter,
    Term,
    rank_of,
    rollups,
)
from bide.server.store.transaction import (
    LASTING,
    Due,
    Key,
    RowChanges,
    TextTable,
    Transaction,
    encode,
    ready,
)
from bide.server.store.transactional_store import TransactionalStore, UploadFilter
from bide.server.store.writer import WriteOperation
from bide.server.upload_record import Upload, UploadStatus


class Tables:
    """The data of one store. It outlives the store, as a file does."""

    def __init__(self) -> None:
        self.jobs: dict[str, Job] = {}  # in the order of submission
        self.inputs: dict[str, tuple[bytes, tuple[InputFile, ...]]] = {}
        self.rollups: dict[tuple[str, int, int, str, str, str], int] = {}
        self.search: dict[str, tuple[tuple[str, str], ...]] = {}
        self.steps: dict[tuple[str, str], msgspec.Raw] = {}
        # Fingerprint, job, when it was used or its job ended.
        self.keys: dict[Key, tuple[bytes, str, float]] = {}
        self.tombstones: dict[str, tuple[float, str]] = {}  # when it was removed, and its tenant
        self.uploads: dict[str, Upload] = {}
        self.uses: set[tuple[str, str]] = set()  # upload, job
        self.paused: set[str] = set()
        self.blocked: set[str] = set()  # jobs
        self.texts: dict[tuple[TextTable, str, str], str] = {
            ("identity", "-", ""): "memory",
            ("log", "-", "epoch"): "m1",
            ("log", "-", "floor"): "0",
        }
        self.events: list[Event] = []
        self.numbers = 0  # of events; a number is used once
        self.woken = 0.0  # jobs that are due until then have been reported

    def users(self, upload_id: str, ended: float | None) -> Iterable[str]:
        for used, job_id in sorted(self.uses):
            job = self.jobs.get(job_id)
            over = job is not None and job.finished_at is not None and job.finished_at <= (ended or 0.0)
            if used == upload_id and not over:
                yield job_id


class MemoryTransaction(Transaction):
    def __init__(self, tables: Tables, now: float) -> None:
        super().__init__(now)
        self.tables = tables

    def number(self) -> int:
        self.tables.numbers += 1
        return self.tables.numbers

    def read_job(self, job_id: str) -> Job | None:
        return self.tables.jobs.get(job_id)

    def read_upload(self, upload_id: str) -> Upload | None:
        return self.tables.uploads.get(upload_id)

    def read_key(self, key: Key) -> tuple[bytes, str] | None:
        used = self.tables.keys.get(key)
        return None if used is None else used[:2]

    def read_steps(self, job_id: str, limit: int) -> dict[str, msgspec.Raw]:
        found = {}
        for (of, name), result in self.tables.steps.items():
            if of == job_id and (limit := limit - len(memoryview(result))) >= 0:
                found[name] = result
        return found

    def read_paused(self, *, sure: bool = False) -> frozenset[str]:
        return frozenset(self.tables.paused)

    def read_text(self, table: TextTable, name: str, tenant: str = "-") -> str | None:
        if table == "tombstones":
            found = self.tables.tombstones.get(name)
            return None if found is None else found[1]
        return self.tables.texts.get((table, tenant, name))

    def read_uses(self, *, upload: str = "", job: str = "", ended: float | None = None) -> list[str]:
        if job:
            return [upload_id for upload_id, used_by in self.tables.uses if used_by == job]
        return list(self.tables.users(upload, ended))

    def last_output(self, job: Job) -> dict[str, Any] | None:
        found = [e.job for e in self.tables.events if e.job_id == job.id and e.type == "output"]
        return found[-1] if found else None

    def running_counts(self, tenants: Sequence[str]) -> Counter[tuple[str, str]]:
        counts = super().running_counts(tenants)
        stored = (job for job in self.tables.jobs.values() if job.held and job.id not in self._jobs)
        counts.update((job.tenant, job.kind) for job in stored if job.tenant in tenants)
        return counts

    def candidates(self, request: ClaimRequest, slice_: Slice) -> list[Due]:
        self.flush_changes()
        found: dict[str, list[Job]] = {}
        for job in self.tables.jobs.values():
            if (
                job.queue == request.queue
                and job.kind in request.kinds
                and ready(job, self.now)
                and job.id not in self.tables.blocked
            ):
                found.setdefault(job.tenant, []).append(job)
        ring = sorted(found, key=lambda tenant: (tenant <= slice_.after, tenant))
        return [
            Due(job, *self.tables.inputs[job.id], self._running(job))
            for tenant in ring[: slice_.tenants]
            for job in sorted(found[tenant], key=start_order)[: slice_.limit(tenant)]
        ]

    def _running(self, job: Job) -> int:
        return sum(
            other.held and other.concurrency_key == job.concurrency_key is not None
            for other in self.tables.jobs.values()
        )

    def unblock_stranded(self) -> set[tuple[str, str]]:
        held = {job.concurrency_key for job in self.tables.jobs.values() if job.held}
        waiting = [self.tables.jobs[i] for i in self.tables.blocked]
        stranded = [job for job in waiting if job.concurrency_key not in held]
        self.tables.blocked.difference_update(job.id for job in stranded)
        return {(job.queue, job.kind) for job in stranded}

    def wake(self) -> tuple[set[tuple[str, str]], float | None]:
        since, self.tables.woken = self.tables.woken, self.now
        dues = [(job.due, job) for job in self.tables.jobs.values() if job.due is not None]
        woken = {(job.queue, job.kind) for due, job in dues if since < due <= self.now}
        return woken, min((due for due, _ in dues if due > self.now), default=None)

    def expire(self, tombstones: float, keys: float, limit: int) -> list[Job]:
        tables = self.tables
        old = [e for e in tables.events if e.type in LASTING and e.at <= tombstones]
        if old:
            floor = int(tables.texts["log", "-", "floor"])
            tables.texts["log", "-", "floor"] = str(max(floor, old[-1].id))
            tables.events = [event for event in tables.events if event not in old]
        tables.tombstones = {i: t for i, t in tables.tombstones.items() if t[0] > tombstones}
        for key, (_, job_id, at) in list(tables.keys.items()):
            job = tables.jobs.get(job_id)
            ended = at if job is None else job.finished_at
            if ended is not None and ended <= keys:
                del tables.keys[key]
        expired = [
            job
            for job in tables.jobs.values()
            if job.expires_at is not None and job.expires_at <= self.now and not self._is_needed(job)
        ]
        return expired[:limit]

    def _is_needed(self, job: Job) -> bool:
        parent = self.tables.jobs.get(job.parent or "")
        return parent is not None and parent.status is not Status.DONE

    def write(self, changes: RowChanges) -> None:
        tables = self.tables
        for removed in changes.removed:
            self._delete(removed.id)
        tables.events = [
            event
            for event in tables.events
            if (event.tenant, event.job_id) not in changes.removed_events or event.type == "deleted"
        ]
        for new in changes.new:
            if new.job.id in tables.jobs:
                raise KeyError(f"job {new.job.id} exists already")
            tables.jobs[new.job.id] = new.job
            tables.inputs[new.job.id] = (new.input, new.files)
            tables.search[new.job.id] = new.search
        tables.uploads.update((upload.id, upload) for upload in changes.uploads)
        for upload_id, tenant in changes.removed_uploads:
            tables.uploads.pop(upload_id, None)
            tables.tombstones[upload_id] = (self.now, tenant)
        tables.uses.update((upload_id, job_id) for upload_id, job_id, _ in changes.uses)
        tables.uses.difference_update(changes.removed_uses)
        tables.keys.update((row.key, (row.fingerprint, row.job_id, self.now)) for row in changes.keys)
        tables.jobs.update((after.id, after) for _, after in changes.changed)
        tables.blocked.difference_update(a.id for b, a in changes.changed if a.due != b.due)
        for job_id, files in changes.files:
            tables.inputs[job_id] = (tables.inputs[job_id][0], files)
        tables.steps.update(((step.job_id, step.name), step.result) for step in changes.steps)
        tables.blocked.update(changes.blocked)
        for key, number in changes.unblocked:
            waiting = [tables.jobs[i] for i in tables.jobs if i in tables.blocked]
            of_key = sorted((job for job in waiting if job.concurrency_key == key), key=start_order)
            tables.blocked.difference_update(job.id for job in of_key[:number])
        for queue, paused in changes.paused:
            (tables.paused.add if paused else tables.paused.discard)(queue)
        for one in changes.rollups:
            place = (one.tenant, rollups.MINUTE, one.at, one.kind, one.queue, one.name)
            tables.rollups[place] = tables.rollups.get(place, 0) + one.count
        for row in changes.texts:
            if row.text is None:
                tables.texts.pop((row.table, row.tenant, row.name), None)
            else:
                tables.texts[row.table, row.tenant, row.name] = row.text

    def _delete(self, job_id: str) -> None:
        tables = self.tables
        job = tables.jobs.pop(job_id, None)
        ended = self.now if job is None or job.finished_at is None else job.finished_at
        tables.inputs.pop(job_id, None)
        tables.steps = {step: result for step, result in tables.steps.items() if step[0] != job_id}
        tables.uses = {use for use in tables.uses if use[1] != job_id}
        for key, (fingerprint, used, _) in list(tables.keys.items()):
            if used == job_id:
                tables.keys[key] = (fingerprint, job_id, ended)
                if key[2].startswith(BY_CONTENT):
                    del tables.keys[key]
        tables.tombstones[job_id] = (self.now, "-" if job is None else job.tenant)


class MemoryStore(TransactionalStore):
    """`Store` on a `Tables`. A commit is not on disk, so it is of use in tests only."""

    def __init__(self, tables: Tables, clock: Clock) -> None:
        super().__init__(clock)
        self._tables = tables

    async def connect(
        self, on_events: OnEvents, on_work: OnWork, on_reset: OnReset, on_log: OnLog
    ) -> None:
        self._tables.blocked.clear()  # the limits may be higher than before

    def transact(self, operations: Sequence[WriteOperation]) -> tuple[list[Any], list[Event]]:
        tables = Tables()  # readers see the changes when they are committed
        tables.__dict__.update((name, copy.copy(value)) for name, value in vars(self._tables).items())
        tx = MemoryTransaction(tables, self.now())
        results = [operation.run(tx) for operation in operations]
        tx.flush()
        tables.events += [replace(e, job=msgspec.json.decode(encode(e.job))) for e in tx.events]
        vars(self._tables).update(vars(tables))
        return results, tx.events

    async def find(self, filter: Filter) -> list[Job]:
        def matches(job: Job) -> bool:
            return (
                filter.tenant in (None, job.tenant)
                and (not filter.status or job.status in filter.status)
                and filter.kind in (None, job.kind)
                and filter.queue in (None, job.queue)
                and filter.code in (None, job.error and job.error.code)
                and (filter.first or "") <= job.id < (filter.end or "~")
                and all(self._has(job, term) for term in filter.terms)
            )

        def place(job: Job) -> tuple[float, str]:
            return (rank_of(job) or 0.0 if filter.order == "longest" else 0.0, job.id)

        found = [job for job in self._tables.jobs.values() if matches(job)]
        if filter.order == "longest":
            found = [job for job in found if rank_of(job) is not None]
        found.sort(key=place, reverse=filter.order != "oldest")
        if filter.after is not None:
            last = (filter.after.rank or 0.0, filter.after.id)
            found = [
                job
                for job in found
                if (place(job) > last if filter.order == "oldest" else place(job) < last)
            ]
        return found[: filter.limit]

    def _has(self, job: Job, term: Term) -> bool:
        if not term.field:
            return term.value in job.labels.values() or job.id.startswith(term.value.upper())
        if term.field == "step":
            return term.value in [step.name for step in job.steps]
        labels = [(f"label.{name}", value) for name, value in job.labels.items()]
        return (term.field, term.value) in (*labels, *self._tables.search[job.id])

    async def read_log(self, filter: EventFilter) -> LogPage:
        def matches(event: Event) -> bool:
            return (
                event.tenant == filter.tenant
                and filter.after < event.id <= (event.id if filter.until is None else filter.until)
                and (not filter.jobs or event.job_id in filter.jobs)
                and (not filter.types or event.type in filter.types)
            )

        tables = self._tables
        found = [event for event in tables.events if matches(event)]
        state = await self.texts("log")
        return LogPage(state["epoch"], int(state["floor"]), tables.numbers, found[: filter.limit])

    async def statistics(self, query: rollups.RollupQuery) -> list[tuple[int, str, int]]:
        found: Counter[tuple[int, str]] = Counter()
        for (tenant, _, at, kind, queue, name), count in self._tables.rollups.items():
            if tenant == query.tenant and query.start <= at < query.end:
                of_kind = query.kind in (None, kind) and query.queue in (None, queue)
                if of_kind or name == "samples":
                    found[at - at % query.width, name] += count
        return [(at, name, count) for (at, name), count in found.items()]

    async def input(self, job_id: str) -> bytes:
        return self._tables.inputs.get(job_id, (b"null", ()))[0]

    async def queues(self) -> list[QueueState]:
        found = {name: QueueState(name, paused=True) for name in self._tables.paused}
        for job in self._tables.jobs.values():
            queue = found.get(job.queue, QueueState(job.queue))
            if ready(job, self.now()):
                assert job.due is not None
                oldest = job.due if queue.oldest is None else min(queue.oldest, job.due)
                found[job.queue] = replace(queue, waiting=queue.waiting + 1, oldest=oldest)
            elif job.due is not None:
                found[job.queue] = replace(queue, scheduled=queue.scheduled + 1)
            elif job.held:
                found[job.queue] = replace(queue, running=queue.running + 1)
        return [found[name] for name in sorted(found)]

    async def held_and_late(self, limit: int, owner: str = "") -> tuple[list[Job], list[Job]]:
        live = [job for job in self._tables.jobs.values() if not job.status.terminal]
        held = [job for job in live if job.held and (job.owner or "").startswith(owner)]
        late = [job for job in live if job.deadline is not None and job.deadline <= self.now()]
        return held, late[:limit]

    async def uploads(self, filter: UploadFilter) -> list[Upload]:
        def matches(upload: Upload) -> bool:
            if filter.tenant not in (None, upload.tenant) or filter.status not in (None, upload.status):
                return False
            if filter.before is not None and upload.id >= filter.before:
                return False
            if filter.replica is not None and upload.status is not UploadStatus.UPLOADING:
                return False
            if filter.expired is not None and (
                upload.expires_at is None
                or upload.expires_at > filter.expired
                or any(self._tables.users(upload.id, filter.ended))
            ):
                return False
            return filter.replica in (None, upload.replica) and (
                filter.changed is None or upload.updated_at <= filter.changed
            )

        found = [upload for upload in self._tables.uploads.values() if matches(upload)]
        if filter.tenant is not None:
            return sorted(found, key=lambda upload: upload.id, reverse=True)[: filter.limit]
        return sorted(found, key=lambda upload: upload.updated_at)[: filter.limit]

    async def texts(self, table: TextTable, filter: RecordFilter = ALL_RECORDS) -> dict[str, str]:
        found = [
            (name, text)
            for (of, tenant, name), text in self._tables.texts.items()
            if of == table
            and filter.tenant in (None, tenant)
            and (not filter.names or name in filter.names)
            and name.startswith(filter.prefix)
            and (name > filter.after or table not in RECORDS)
            and (filter.before is None or name < filter.before)
        ]
        return dict(sorted(found, reverse=filter.last)[: filter.limit])
