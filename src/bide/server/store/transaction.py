"""A transaction as the operations see it: each job is read once and written once, and events are collected.

`Transaction` keeps the state of the transaction in memory. A backend's subclass reads rows from its tables, and writes
`RowChanges` to them. The operations in `operations` and `upload_operations` use the rest.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from bide.core.jobs.fair import Slice
from bide.core.jobs.record import Job
from bide.core.wire.http import Event, EventType, facts
from bide.core.wire.query import MAX_VALUE
from bide.server.store import BY_CONTENT, ClaimRequest, InputFile, NewJob, RecordTable, TenantUse
from bide.server.store.rollups import RollupCounter, RollupRow
from bide.server.upload_record import Upload


class Due(NamedTuple):
    """A claimable job, its input and its files, and how many jobs with its concurrency key workers hold."""

    job: Job
    input: bytes
    files: tuple[InputFile, ...]
    running: int = 0


Key = tuple[str, str, str]  # tenant, kind, idempotency key
RecordKey = tuple[str, RecordTable, str]  # tenant, table, name
TextTable = Literal["identity", "durations", "workers", "log", "tombstones"] | RecordTable
# Seconds in which a client repeats the last request of an upload whose response was lost. If the upload were gone, the
# client would send the file again, and create a second job.
REPEAT_TIME = 60.0
STRANDED = 100
LASTING = ("deleted", "queue")  # types of events that are not removed with a job
encode: Callable[[Any], bytes] = msgspec.json.Encoder().encode
USE = "use"  # the name of the record of a tenant's use
_read_use = msgspec.json.Decoder(TenantUse).decode
_read_files = msgspec.json.Decoder(tuple[InputFile, ...])


def text_of(files: Sequence[InputFile]) -> str | None:
    return encode(files).decode() if files else None


def files_of(text: str | None) -> tuple[InputFile, ...]:
    return _read_files.decode(text) if text else ()


def ready(job: Job, now: float) -> bool:
    """Whether the job can be claimed now."""
    return job.due is not None and job.due <= now


class StepRow(msgspec.Struct, frozen=True):
    job_id: str
    name: str
    tenant: str
    result: msgspec.Raw


class TermRow(msgspec.Struct, frozen=True, array_like=True):
    """A term by which lists find a job. It has kind and queue, so that a list of one kind or queue reads no other."""

    tenant: str
    value: str
    field: str
    kind: str
    queue: str
    job_id: str


class KeyRow(msgspec.Struct, frozen=True):
    """An idempotency key, the fingerprint of the body that it was used with, and its job. If another process has changed the
    row since it was read, raise, or repeat the transaction.
    """

    key: Key
    fingerprint: bytes
    job_id: str
    replaces: str | None = None  # the job in the stored row of this key; None: there is no row


class TextRow(msgspec.Struct, frozen=True):
    """A row of a small table. Only rows of RECORDS have a tenant."""

    table: TextTable
    name: str
    text: str | None  # None: delete the row
    tenant: str = "-"


class RowChanges(msgspec.Struct, frozen=True):
    """Rows to write, in the order of the fields."""

    # Removed jobs: delete their rows from all tables but the events, and write a tombstone. Of their keys, delete those
    # that start with BY_CONTENT. The others stay until `expire` deletes them, so store with them when the job ended: its
    # `finished_at`, or `now` if it has none.
    removed: Sequence[Job] = ()
    # (tenant, job): delete the events of the job, without those of the type `deleted`.
    removed_events: Sequence[tuple[str, str]] = ()
    new: Sequence[NewJob] = ()  # raise if the id exists; see `changed_terms` for what lists find
    uploads: Sequence[Upload] = ()  # new and changed ones
    # Write tombstones. Uses by jobs that have ended may remain; they are deleted with their job.
    removed_uploads: Sequence[tuple[str, str]] = ()  # upload, tenant
    uses: Sequence[tuple[str, str, str]] = ()  # upload, job, tenant; some may be stored already
    removed_uses: Sequence[tuple[str, str]] = ()  # upload, job
    keys: Sequence[KeyRow] = ()
    # Before and after. If the row has another version or fence than `before`, raise, or repeat the transaction.
    changed: Sequence[tuple[Job, Job]] = ()
    # Files of inputs that arrived after their job.
    files: Sequence[tuple[str, tuple[InputFile, ...]]] = ()
    steps: Sequence[StepRow] = ()
    # Ids of jobs that become not claimable, because workers hold as many jobs with their concurrency key as are allowed.
    blocked: Sequence[str] = ()
    # Concurrency keys, and how many of their blocked jobs become claimable, by `start_order`.
    unblocked: Sequence[tuple[str, int]] = ()
    paused: Sequence[tuple[str, bool]] = ()  # queues that are paused or resumed
    texts: Sequence[TextRow] = ()
    rollups: Sequence[RollupRow] = ()  # add them to the counts of their minutes
    check: bool = False  # write any row, to find out whether the database accepts writes


def label_terms(job: Job) -> list[TermRow]:
    """The terms of a job's labels."""
    return [_term(job, f"label.{name}", value) for name, value in job.labels.items()]


def step_terms(job: Job, before: Job | None = None) -> list[TermRow]:
    """The terms of a job's steps, without those that it had before."""
    known = {step.name for step in before.steps} if before is not None else ()
    return [
        _term(job, "step", step.name)
        for step in job.steps
        if step.name not in known and 0 < len(step.name) <= MAX_VALUE and "\0" not in step.name
    ]


def input_terms(new: NewJob) -> list[TermRow]:
    """The terms of the paths into the input that the kind declares."""
    return [_term(new.job, path, value) for path, value in new.search]


def _term(job: Job, field: str, value: str) -> TermRow:
    return TermRow(job.tenant, value, field, job.kind, job.queue, job.id)


def changed_terms(changes: RowChanges) -> list[TermRow]:
    """The terms that these changes add, without those of labels. Some may be stored already."""
    found: list[TermRow] = []
    for new in changes.new:
        if new.search:
            found += input_terms(new)
        if new.job.steps:
            found += step_terms(new.job)
    for before, after in changes.changed:
        if after.steps is not before.steps:
            found += step_terms(after, before)
    return found


class Transaction(ABC):
    """One transaction and its timestamp.

    This class collects the changes of the operations and passes them to `write`. The abstract methods see only the rows that
    are committed, and those that `write` has written in this transaction.
    """

    __slots__ = (
        *(
            "_blocked",
            "_changed_files",
            "_check",
            "_freed",
            "_gone",
            "_jobs",
            "_keys",
            "_new",
            "_pauses",
            "_removed",
        ),
        *("_steps", "_stored", "_texts", "_touched", "_unwritten_keys", "_unwritten_pauses"),
        *("_removed_events", "_removed_uses", "_uploads", "_uses", "events", "now", "rollups"),
        *("_changed_tenant_uses", "_tenant_uses"),
    )

    FEW: ClassVar[int] = 8  # up to this many new jobs, a claim searches them in memory

    def __init__(self, now: float) -> None:
        self.now = now
        self.rollups = RollupCounter(now)
        self.events: list[Event] = []
        # The current state. None: removed, or does not exist.
        self._jobs: dict[str, Job | None] = {}
        self._uploads: dict[str, Upload | None] = {}
        self._keys: dict[Key, tuple[bytes, str]] = {}
        self._pauses: dict[str, bool] = {}
        self._gone: dict[str, str] = {}  # the tenants of removed jobs and uploads
        # What is not in the tables yet.
        self._stored: dict[str, Job] = {}  # changed jobs as they are in the table
        self._new: dict[str, NewJob] = {}
        self._removed: dict[str, Job] = {}
        self._removed_events: list[tuple[str, str]] = []
        self._touched: set[str] = set()  # uploads that differ from the table
        self._uses: list[tuple[str, str, str]] = []
        self._removed_uses: list[tuple[str, str]] = []
        self._unwritten_keys: dict[Key, KeyRow] = {}
        self._steps: dict[tuple[str, str], StepRow] = {}
        self._changed_files: dict[str, tuple[InputFile, ...]] = {}
        self._unwritten_pauses: dict[str, bool] = {}
        self._texts: dict[tuple[TextTable, str, str], str | None] = {}  # by table, tenant and name
        self._blocked: list[str] = []
        self._freed: Counter[str] = Counter()  # by concurrency key
        self._tenant_uses: dict[str, TenantUse] = {}
        self._changed_tenant_uses: set[str] = set()
        self._check = False

    # --- implemented by each backend

    @abstractmethod
    def read_job(self, job_id: str) -> Job | None:
        """A job. No other transaction changes it until this one ends."""

    @abstractmethod
    def read_upload(self, upload_id: str) -> Upload | None:
        """An upload. No other transaction changes it until this one ends."""

    @abstractmethod
    def read_key(self, key: Key) -> tuple[bytes, str] | None:
        """The fingerprint with which an idempotency key was used, and the id of its job."""

    @abstractmethod
    def read_steps(self, job_id: str, limit: int) -> dict[str, msgspec.Raw]:
        """The results of the job's steps, as many as fit into `limit` bytes."""

    @abstractmethod
    def read_paused(self, *, sure: bool = False) -> frozenset[str]:
        """The paused queues; with `sure`, read from the table and not from a cache."""

    @abstractmethod
    def read_text(self, table: TextTable, name: str, tenant: str = "-") -> str | None:
        """A row of RECORDS. No other transaction changes or creates it until this one ends. Or, of `tombstones`, the
        tenant of a job or an upload with this id that has been removed.
        """

    @abstractmethod
    def read_uses(self, *, upload: str = "", job: str = "", ended: float | None = None) -> list[str]:
        """The first job that uses the upload, or the uploads that the job uses. With `ended`, a job that ended at that time
        or earlier does not count.
        """

    @abstractmethod
    def candidates(self, request: ClaimRequest, slice_: Slice) -> list[Due]:
        """The claimable jobs of the request's queue and kinds that `Slice` describes, those of each tenant by `start_order`,
        then in the order in which they were stored. A job is claimable if it was due when it was written, or since `wake`.
        Names of tenants are compared by their characters, as Python does. If the slice has `alone` and no other tenant
        has claimable jobs, return those of `after` without looking for more tenants. If the request has `concurrency`,
        `Due.running` is exact until this transaction ends: no other transaction claims jobs with these keys.

        Call `flush_changes` before reading, or leave out the jobs that this transaction has changed or removed. Lock the
        jobs; skip the jobs that another transaction has locked. The caller handles paused queues and `only`.
        """

    @abstractmethod
    def wake(self) -> tuple[set[tuple[str, str]], float | None]:
        """Make jobs claimable that have become due since they were written. Return their (queue, kind) pairs, and the
        earliest `due` of the jobs that are due later. Do not report the jobs that are claimable already.
        """

    @abstractmethod
    def expire(self, tombstones: float, keys: float, limit: int) -> list[Job]:
        """Delete the tombstones and the events of the types LASTING that are not newer than `tombstones`, and the keys whose
        job ended at `keys` or earlier. Set the text `floor` of the table `log` to the greatest number of such an event.
        Return up to `limit` jobs whose `expires_at` is `now` or earlier, without those whose parent exists and is not
        DONE. The caller removes them.
        """

    @abstractmethod
    def write(self, changes: RowChanges) -> None:
        """Write rows; `now` is their timestamp. It may be called several times in a transaction."""

    # --- overridden if a backend needs it

    # Whether an earlier run of this transaction may have been committed, because the response to its commit was lost.
    uncertain: bool = False

    def running_counts(self, tenants: Sequence[str]) -> Counter[tuple[str, str]]:
        """How many jobs of these tenants workers hold, by tenant and kind, with the changes of this transaction. No other
        transaction claims jobs of these tenants until this one ends.
        """
        held = (job for job in self._jobs.values() if job is not None and job.held)
        return Counter((job.tenant, job.kind) for job in held if job.tenant in tenants)

    def last_output(self, job: Job) -> dict[str, Any] | None:
        """`Event.job` of the last committed `output` event of the job."""
        return None

    def existing(self, job_id: str) -> Job | None:
        """The job, if an earlier run of this transaction has stored it. For a backend that repeats a transaction when the
        response to its commit was lost.
        """
        return None

    def unblock_stranded(self) -> set[tuple[str, str]]:
        """Make up to STRANDED blocked jobs of each concurrency key claimable of which workers hold no job. Claims block
        those again that are beyond the limit. Return their (queue, kind) pairs.
        """
        return set()

    def merge_rollups(self) -> bool:
        """Merge minutes into hours, and remove old counts. Return whether there is more to do."""
        return False

    def index_old(self, limit: int) -> bool:
        """Make up to `limit` jobs searchable that an earlier release has stored. Return whether there are more. A backend
        without an index needs nothing.
        """
        return False

    def number(self) -> int:
        """The number of the next event; 0 if the backend assigns numbers at the commit."""
        return 0

    def lost(self, job_id: str, fence: int) -> None:
        """Called when this process no longer holds a job."""
        return

    # --- writing

    def flush(self) -> None:
        """Write everything to the tables; needed before queries over whole tables."""
        self.write(self.take_changes())

    def flush_new(self) -> None:
        """Write the new jobs only."""
        if self._new:
            self.write(RowChanges(new=self._take_new()))

    def flush_changes(self) -> None:
        """Write the changed and removed jobs only."""
        if self._stored or self._removed or self._changed_files or self._blocked or self._freed:
            self.write(
                RowChanges(
                    removed=self._take_removed(),
                    removed_events=self._take_removed_events(),
                    changed=self._take_changed(),
                    files=self._take_files(),
                    blocked=self._take_blocked(),
                    unblocked=self._take_freed(),
                )
            )

    def take_changes(self) -> RowChanges:
        """Everything that is not in the tables yet. The caller writes it."""
        for tenant in self._changed_tenant_uses:
            self.put_text("limits", USE, encode(self._tenant_uses[tenant]).decode(), tenant)
        self._changed_tenant_uses.clear()
        uploads, removed_uploads = self._take_uploads() if self._touched else ((), ())
        changes = RowChanges(
            removed=self._take_removed() if self._removed else (),
            removed_events=self._take_removed_events() if self._removed_events else (),
            new=self._take_new() if self._new else (),
            uploads=uploads,
            removed_uploads=removed_uploads,
            uses=[use for use in self._uses if self.job(use[1]) is not None],  # by jobs that still exist
            removed_uses=tuple(self._removed_uses),
            keys=list(self._unwritten_keys.values()) if self._unwritten_keys else (),
            changed=self._take_changed() if self._stored else (),
            files=self._take_files() if self._changed_files else (),
            steps=list(self._steps.values()) if self._steps else (),
            blocked=self._take_blocked() if self._blocked else (),
            unblocked=self._take_freed() if self._freed else (),
            paused=list(self._unwritten_pauses.items()) if self._unwritten_pauses else (),
            texts=[
                TextRow(table, name, text, tenant) for (table, tenant, name), text in self._texts.items()
            ]
            if self._texts
            else (),
            rollups=self.rollups.take(),
            check=self._check,
        )
        self._uses.clear()
        self._removed_uses.clear()
        self._unwritten_keys.clear()
        self._steps.clear()
        self._unwritten_pauses.clear()
        self._texts.clear()
        self._check = False
        return changes

    def _take_removed(self) -> Sequence[Job]:
        removed = list(self._removed.values())
        self._removed.clear()
        return removed

    def _take_removed_events(self) -> Sequence[tuple[str, str]]:
        removed = list(self._removed_events)
        self._removed_events.clear()
        return removed

    def _take_new(self) -> Sequence[NewJob]:
        jobs = self._jobs
        new = [n if n.job is jobs[i] else replace(n, job=jobs[i]) for i, n in self._new.items()]
        self._new.clear()
        return new

    def _take_changed(self) -> Sequence[tuple[Job, Job]]:
        changed = [(before, self._jobs[before.id]) for before in self._stored.values()]
        self._stored.clear()
        return changed  # type: ignore[return-value]  # a removed job is not in _stored

    def _take_files(self) -> Sequence[tuple[str, tuple[InputFile, ...]]]:
        files = list(self._changed_files.items())
        self._changed_files.clear()
        return files

    def _take_blocked(self) -> Sequence[str]:
        blocked, self._blocked = self._blocked, []
        return blocked

    def _take_freed(self) -> Sequence[tuple[str, int]]:
        freed = sorted(self._freed.items())
        self._freed.clear()
        return freed

    def _take_uploads(self) -> tuple[Sequence[Upload], Sequence[tuple[str, str]]]:
        touched = sorted(self._touched)
        self._touched.clear()
        found = [(upload_id, self._uploads[upload_id]) for upload_id in touched]
        return [u for _, u in found if u is not None], [
            (i, self._gone[i]) for i, u in found if u is None
        ]

    # --- jobs

    def job(self, job_id: str) -> Job | None:
        if job_id in self._jobs:
            return self._jobs[job_id]
        return self.read_job(job_id)

    def create(self, new: NewJob) -> None:
        if new.job.id in self._new:  # write the first, so that the table rejects the second
            self.flush_new()
        self._new[new.job.id] = new
        self._jobs[new.job.id] = new.job
        self.rollups.submitted(new.job)

    def change(self, before: Job, after: Job) -> None:
        if after.id not in self._new:
            self._stored.setdefault(after.id, before)
        self._jobs[after.id] = after
        key = after.concurrency_key
        if key is not None and not after.held and (before.held or after.due != before.due):
            # The job gives back its place, or, if it waited, the one that a released job may have left to it.
            self._freed[key] += 1

    def block(self, job: Job) -> None:
        """Make a claimable job wait until a job with the same concurrency key ends."""
        self._blocked.append(job.id)

    def remove(self, job: Job, *, keep_events: bool = False) -> None:
        """Remove a job. With `keep_events`, its events stay until `remove_events`, and the table `removals` has the time of
        its removal.
        """
        job_id = job.id
        if job.concurrency_key is not None and job.due is not None:
            self._freed[job.concurrency_key] += 1  # as in `change`
        if keep_events:
            self.put_text("removals", job_id, repr(self.now), job.tenant)
        else:
            # Their rows are written last, so they would stay.
            self.events = [event for event in self.events if event.job_id != job_id]
            self._removed_events.append((job.tenant, job_id))
        self._new.pop(job_id, None)
        self._stored.pop(job_id, None)
        self._changed_files.pop(job_id, None)
        self._jobs[job_id] = None
        self._gone[job_id] = job.tenant
        self._removed[job_id] = job
        for step in [step for step in self._steps if step[0] == job_id]:
            del self._steps[step]
        for key, row in self._unwritten_keys.items():
            # The row of a content key is deleted with the job.
            if row.replaces == job_id and key[2].startswith(BY_CONTENT):
                self._unwritten_keys[key] = replace(row, replaces=None)
        for key, (_, first) in list(self._keys.items()):
            if first == job_id and key[2].startswith(BY_CONTENT):
                del self._keys[key]
                self._unwritten_keys.pop(key, None)
        self.add_event(job, "deleted")

    def remove_events(self, job_id: str, tenant: str) -> None:
        """Remove the events of a job that was removed with `keep_events`."""
        self._removed_events.append((tenant, job_id))
        self.put_text("removals", job_id, None, tenant)

    def was_removed(self, removed_id: str) -> bool:
        return self.tombstone(removed_id) is not None

    def tombstone(self, removed_id: str) -> str | None:
        """The tenant of a removed job or upload; None if no such one was removed."""
        return self._gone.get(removed_id) or self.read_text("tombstones", removed_id)

    def fresh(self, request: ClaimRequest) -> list[Due]:
        """The new jobs that match a request. Up to FEW new jobs stay out of the table until the end, so that a job that is
        claimed immediately is written only once, as a running job. More of them are written to the table first.
        """
        if len(self._new) > self.FEW or (request.concurrency and self._new):
            self.flush_new()
        found = []
        for job_id, new in self._new.items():
            job = self._jobs[job_id]
            assert job is not None
            if job.queue == request.queue and job.kind in request.kinds and ready(job, self.now):
                found.append(Due(job, new.input, new.files))
        return found

    def keep_files(self, job_id: str, files: tuple[InputFile, ...]) -> None:
        """Store the files of an input that arrived after the job."""
        new = self._new.get(job_id)
        if new is None:
            self._changed_files[job_id] = files
        else:
            self._new[job_id] = replace(new, files=files)

    # --- keys and steps

    def key(self, key: Key) -> tuple[bytes, str] | None:
        """The fingerprint with which an idempotency key was used, and the id of its job."""
        used = self._keys.get(key) or self.read_key(key)
        if used is not None and used[1] in self._gone and key[2].startswith(BY_CONTENT):
            return None
        return used

    def keep_key(
        self, key: Key, fingerprint: bytes, job_id: str, *, replaces: str | None = None
    ) -> None:
        """Store a key. `replaces`: the job that it belongs to now."""
        self._keys[key] = (fingerprint, job_id)
        unwritten = self._unwritten_keys.get(key)
        if unwritten is not None:
            replaces = unwritten.replaces
        self._unwritten_keys[key] = KeyRow(key, fingerprint, job_id, replaces)

    def purge(
        self, tombstones: float, keys: float, limit: int, *, keep_events: bool = False
    ) -> list[str]:
        """Remove expired jobs, and tombstones and keys from before these times. Return the ids of the jobs."""
        self.flush()
        self._keys.clear()
        expired = self.expire(tombstones, keys, limit)
        for job in expired:
            self.remove(job, keep_events=keep_events)
        return [job.id for job in expired]

    def steps(self, job_id: str, limit: int) -> dict[str, msgspec.Raw]:
        """The results of the job's steps, as many as fit into `limit` bytes."""
        found = self.read_steps(job_id, limit)
        if self._steps:
            for step in self._steps.values():
                if step.job_id == job_id:
                    found[step.name] = step.result
            while sum(len(memoryview(result)) for result in found.values()) > limit:
                found.popitem()
        return found

    def keep_step(self, job: Job, name: str, result: msgspec.Raw) -> None:
        self._steps[job.id, name] = StepRow(job.id, name, job.tenant, result)

    # --- queues and small tables

    def paused(self, *, sure: bool = False) -> frozenset[str]:
        """The paused queues; with `sure`, read from the table and not from a cache."""
        stored = self.read_paused(sure=sure)
        if not self._pauses:
            return stored
        resumed = {queue for queue, paused in self._pauses.items() if not paused}
        return (stored | self._pauses.keys()) - resumed

    def pause(self, queue: str, paused: bool) -> None:
        self._pauses[queue] = self._unwritten_pauses[queue] = paused

    def text(self, table: TextTable, name: str, tenant: str = "-") -> str | None:
        """A row of RECORDS, with the changes of this transaction."""
        row = (table, tenant, name)
        return self._texts[row] if row in self._texts else self.read_text(table, name, tenant)

    def put_text(self, table: TextTable, name: str, text: str | None, tenant: str = "-") -> None:
        """Write a row of a small table; None deletes it."""
        self._texts[table, tenant, name] = text

    def tenant_use(self, tenant: str) -> TenantUse:
        """What a tenant has used of its limits. It is decoded once per transaction, because one may store many jobs."""
        use = self._tenant_uses.get(tenant)
        if use is None:
            text = self.text("limits", USE, tenant)
            use = self._tenant_uses[tenant] = TenantUse() if text is None else _read_use(text)
        return use

    def change_tenant_use(self, tenant: str) -> None:
        """Write the use of a tenant, which the caller has changed."""
        self._changed_tenant_uses.add(tenant)

    def check_writable(self) -> None:
        """Write a test row."""
        self._check = True

    # --- uploads

    def upload(self, upload_id: str) -> Upload | None:
        if upload_id not in self._uploads:
            self._uploads[upload_id] = self.read_upload(upload_id)
        return self._uploads[upload_id]

    def put_upload(self, upload: Upload) -> None:
        self._uploads[upload.id] = upload
        self._touched.add(upload.id)

    def drop_upload(self, upload: Upload) -> None:
        self._uploads[upload.id] = None
        self._touched.add(upload.id)
        self._gone[upload.id] = upload.tenant

    def use_upload(self, upload_id: str, job: Job) -> None:
        self._uses.append((upload_id, job.id, job.tenant))

    def release_uploads(self, job_id: str) -> None:
        """Record that a job no longer uses its uploads. They expire when no other job uses them."""
        for upload_id in self.read_uses(job=job_id):
            self._removed_uses.append((upload_id, job_id))
            upload = self.upload(upload_id)
            if upload is not None:
                repeated = 0.0 if upload.job_id is None else upload.updated_at + REPEAT_TIME
                self.put_upload(replace(upload, expires_at=max(self.now, repeated)))

    # --- events

    def add_event(self, job: Job, type_: EventType, more: dict[str, Any] | None = None) -> None:
        known = facts(job, type_)
        if more:
            known.update(more)
        self.events.append(Event(self.number(), job.id, type_, self.now, known, job.tenant))

    def add_queue_event(self, queue: str, paused: bool) -> None:
        known = {"queue": queue, "paused": paused}
        self.events.append(Event(self.number(), "", "queue", self.now, known))
