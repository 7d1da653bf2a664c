"""What happens inside a transaction of the SQLite store, one function an operation.

Every write to a job that exists goes through `core.job.advance`, and is conditional on the version and fence that were read.
"""

from __future__ import annotations

import sqlite3
from itertools import takewhile
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from bide.core.job import (
    Change,
    ChildEnded,
    Claimed,
    Refused,
    Rerun,
    Reserved,
    Spawned,
    StepKept,
    StepStarted,
    WrongStatus,
    WrongVersion,
    advance,
    cancel,
    ripples,
    target,
)
from bide.core.record import Job, Status
from bide.core.wire import Event, facts
from bide.server.store import Claim, InputFile, Inserted, KeyConflict, Missing, NewJob, Want
from bide.server.store.recent import Recent
from bide.server.store.rows import COLUMNS, FIELDS, difference, job_of, values_of
from bide.server.store.writer import Tx

_encode = msgspec.json.Encoder().encode
_read_files = msgspec.json.Decoder(tuple[InputFile, ...])
_INSERT = f"INSERT INTO jobs ({COLUMNS}, ready) VALUES ({', '.join('?' * (len(FIELDS) + 1))})"
PAUSED = "SELECT name FROM queues WHERE paused"
BY_ID = f"SELECT {COLUMNS} FROM jobs WHERE id = ?"
_CANDIDATES = (
    f"SELECT {', '.join('j.' + name for name in FIELDS)}, i.input, i.files, j.seq "
    "FROM jobs j JOIN inputs i ON i.job_id = j.id "
    "WHERE j.ready = 1 AND j.queue = ? AND j.kind = ? ORDER BY j.priority DESC, j.seq LIMIT ?"
)
_INSERT_INPUT = "INSERT INTO inputs (job_id, tenant, input, files) VALUES (?, ?, ?, ?)"
_LIVE = ", ".join(f"'{status.value}'" for status in Status if not status.terminal)
# The first condition is there for the index: the planner does not see that the second one implies it.
_HELD = f"SELECT {COLUMNS} FROM jobs WHERE status <> 'DONE' AND status IN ({_LIVE}) AND lease_until IS NOT NULL"
_EVENT = "INSERT INTO events (id, tenant, job_id, type, at, job) VALUES (?, ?, ?, ?, ?, ?)"
FEW = 8  # new jobs that a claim looks through in memory

Due = tuple[Job, bytes, tuple[InputFile, ...]]


class Memory:
    """What is remembered between transactions: all jobs that workers hold, the last event's number, what polls have read.

    The writer alone changes jobs, so that what it remembers is what is stored.
    """

    def __init__(self) -> None:
        self.held: dict[str, Job] = {}
        self.recent = Recent()
        self.paused: frozenset[str] | None = None  # None: to be read
        self.last_event: int | None = None  # None: nothing has been recalled yet

    def recall(self, connection: sqlite3.Connection) -> int:
        """Reads what the last process knew; the number of the last event."""
        if self.last_event is None:
            self.held = {job.id: job for job in map(job_of, connection.execute(_HELD))}
            row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'events'").fetchone()
            self.last_event = row[0] if row is not None else 0
        return self.last_event


class Work(Tx):
    """A transaction that reads each job once, writes it once, and writes all its events in one go."""

    __slots__ = ("_jobs", "_memory", "_new", "_number", "_stored", "pauses")

    def __init__(self, memory: Memory, connection: sqlite3.Connection, now: float) -> None:
        super().__init__(connection, now)
        self._memory = memory
        self._jobs: dict[str, Job | None] = {}  # as they are now; None: removed
        self._stored: dict[str, Job] = {}  # as they are in the table, of those that differ
        self._new: dict[str, NewJob] = {}  # not in the table yet
        self._number = memory.recall(connection)
        self.pauses = False  # a queue was paused or resumed

    def job(self, job_id: str) -> Job | None:
        if job_id in self._jobs:
            return self._jobs[job_id]
        job = self._memory.held.get(job_id)
        if job is None:
            row = self.execute(BY_ID, (job_id,)).fetchone()
            job = None if row is None else job_of(row)
        return job

    def held(self) -> list[Job]:
        """Every job that a worker has."""
        known = [
            *self._memory.held,
            *(job_id for job_id in self._jobs if job_id not in self._memory.held),
        ]
        return [job for job_id in known if (job := self.job(job_id)) is not None and job.held]

    def paused(self) -> frozenset[str]:
        """The queues that nothing is to be claimed from."""
        known = None if self.pauses else self._memory.paused
        if known is None:
            known = frozenset(name for (name,) in self.execute(PAUSED))
            if not self.pauses:
                self._memory.paused = known
        return known

    def create(self, new: NewJob) -> None:
        if new.job.id in self._new:  # as the table itself would say
            raise sqlite3.IntegrityError(f"there is a job {new.job.id}")
        self._new[new.job.id] = new
        self._jobs[new.job.id] = new.job

    def change(self, before: Job, after: Job) -> None:
        if after.id not in self._new:
            self._stored.setdefault(after.id, before)
        self._jobs[after.id] = after

    def removed(self, job_id: str) -> None:
        self._new.pop(job_id, None)
        self._stored.pop(job_id, None)
        self._jobs[job_id] = None

    def tell(
        self, job: Job, type_: Literal["status", "step", "log"], more: dict[str, Any] | None = None
    ) -> None:
        known = facts(job)
        if more:
            known.update(more)
        self._number += 1
        self.events.append(Event(self._number, job.id, type_, self.now, known, job.tenant))

    def flush(self) -> None:
        """Puts new and changed jobs into the table: before a question about all of them, and at the end."""
        for job_id, new in self._new.items():
            job = self._jobs[job_id]
            assert job is not None
            files = _encode(new.files).decode() if new.files else None
            self.execute(_INSERT, (*values_of(job), ready(job, self.now)))
            self.execute(_INSERT_INPUT, (job_id, job.tenant, new.input.decode(), files))
        self._new.clear()
        self._flush_changes()

    def fresh(self, want: Want) -> list[Due]:
        """What is wanted of the new jobs. Where they are few they stay out of the table until the end, so that one that is
        claimed at once is written once, as a job that runs. All others are in the table after this.
        """
        if len(self._new) > FEW:
            self.flush()
        self._flush_changes()
        found = []
        for job_id, new in self._new.items():
            job = self._jobs[job_id]
            assert job is not None
            if job.queue == want.queue and job.kind in want.kinds and ready(job, self.now):
                found.append((job, new.input, new.files))
        return found

    def _flush_changes(self) -> None:
        for job_id, before in self._stored.items():
            after = self._jobs[job_id]
            assert after is not None
            save(self, before, after)
        self._stored.clear()

    def finish(self) -> None:
        self.flush()
        if self.events:
            rows = [
                (e.id, e.tenant, e.job_id, e.type, e.at, _encode(e.job).decode()) for e in self.events
            ]
            self.executemany(_EVENT, rows)

    def committed(self) -> None:
        self._memory.last_event = self._number
        if self.pauses:
            self._memory.paused = None
        held = self._memory.held
        for job_id, job in self._jobs.items():
            if job is not None and job.held:
                held[job_id] = job
            else:
                held.pop(job_id, None)
        self._memory.recent.changed(self._jobs)


def pause(tx: Work, queue: str, paused: bool) -> None:
    tx.pauses = True
    tx.execute(
        "INSERT INTO queues (tenant, name, paused) VALUES ('-', ?, ?) "
        "ON CONFLICT DO UPDATE SET paused = excluded.paused",
        (queue, paused),
    )


def insert(tx: Work, new: NewJob) -> Inserted | KeyConflict:
    job = new.job
    if new.key is not None:
        row = tx.execute(
            "SELECT fingerprint, job_id FROM keys WHERE tenant = ? AND kind = ? AND key = ?",
            (job.tenant, job.kind, new.key),
        ).fetchone()
        if row is not None:
            fingerprint, first = row
            earlier = tx.job(first)
            if earlier is not None:
                return (
                    Inserted(earlier, created=False)
                    if fingerprint == new.fingerprint
                    else KeyConflict(first)
                )
        tx.execute(
            "INSERT OR REPLACE INTO keys (tenant, kind, key, fingerprint, job_id, at) "
            "VALUES (?, ?, ?, ?, ?, ?)",
            (job.tenant, job.kind, new.key, new.fingerprint, job.id, tx.now),
        )
    tx.create(new)
    tx.tell(job, "status")
    return Inserted(job, created=True)


def ready(job: Job, now: float) -> bool:
    return job.due is not None and job.due <= now


def save(tx: Work, before: Job, after: Job) -> None:
    columns = difference(before, after)
    if not columns:  # a lease that was renewed twice within one instant
        return
    if "due" in columns:
        columns["ready"] = ready(after, tx.now)
    assignments = ", ".join(f"{name} = ?" for name in columns)
    cursor = tx.execute(
        f"UPDATE jobs SET {assignments} WHERE id = ? AND version = ? AND fence = ?",
        (*columns.values(), before.id, before.version, before.fence),
    )
    assert cursor.rowcount == 1, f"{before.id} changed within its own transaction"


def apply(tx: Work, change: Change) -> Job | Refused | Missing:
    before = tx.job(change.job_id)
    if before is None:
        return gone(tx, change.job_id)
    try:
        after = advance(before, change, tx.now)
    except Refused as refusal:
        return refusal
    tx.change(before, after)
    if isinstance(change, StepStarted | StepKept):
        status = Status.DONE if isinstance(change, StepKept) else Status.PROCESSING
        tx.tell(after, "step", {"step": {"name": change.name, "status": status}})
    elif isinstance(change, Reserved):
        pass  # nothing that anyone outside can see
    elif not before.status.terminal or after.run > before.run:
        # A child's end is noted on an ended parent without an event: a run has one terminal event.
        tx.tell(after, "status")
    if isinstance(change, StepKept):
        tx.execute(
            "INSERT OR REPLACE INTO steps (job_id, name, tenant, result, at) VALUES (?, ?, ?, ?, ?)",
            (after.id, change.name, after.tenant, bytes(change.result).decode(), tx.now),
        )
    # A child that ends at once is noted on this row again.
    return (tx.job(after.id) or after) if ripple(tx, before, after) else after


def ripple(tx: Work, before: Job, after: Job) -> bool:
    """Carries a change on to the job's relatives; whether there was anything to do."""
    effects = ripples(before, after)
    for relative, what in effects:
        if what == "ended":
            apply(tx, ChildEnded(job_id=relative, child_id=after.id, status=after.status))
        elif what == "rerun":
            if isinstance(apply(tx, Rerun(job_id=relative)), Missing):
                # Deleted meanwhile: it ends nevermore, so its parent must not wait for it.
                gone = ChildEnded(job_id=after.id, child_id=relative, status=Status.CANCELLED)
                apply(tx, gone)
        else:
            job = tx.job(relative)
            if job is not None and not job.status.terminal:
                apply(tx, cancel(job))
    return bool(effects)


def gone(tx: Work, job_id: str) -> Missing:
    row = tx.execute("SELECT 1 FROM tombstones WHERE id = ?", (job_id,)).fetchone()
    return Missing(gone=row is not None)


def spawn(tx: Work, change: Spawned, new: NewJob) -> Job | Refused | Missing:
    parent = tx.job(change.job_id)
    if parent is None:
        return gone(tx, change.job_id)
    try:
        target(parent, change)
    except Refused as refusal:
        return refusal
    for child in parent.children:
        if child.key == change.child.key and (earlier := tx.job(child.job_id)) is not None:
            return earlier
    insert(tx, new)
    after = advance(parent, change, tx.now)
    tx.change(parent, after)
    tx.tell(after, "status")
    return new.job


def due(tx: Work, want: Want, limit: int) -> list[Due]:
    """The first `limit` of all the wanted kinds, with their inputs: by priority, then in the order of submission."""
    fresh = tx.fresh(want)
    rows = [
        row
        for kind in want.kinds
        for row in tx.execute(_CANDIDATES, (want.queue, kind, limit)).fetchall()
    ]
    if len(want.kinds) > 1:
        priority = FIELDS.index("priority")
        rows.sort(key=lambda row: (-row[priority], row[-1]))
    found = [_due(row) for row in rows[:limit]]
    if fresh:  # submitted after all others; the order of those of one priority stays
        found = sorted(found + fresh, key=lambda due: -due[0].priority)[:limit]
    only = want.only
    return found if only is None else list(takewhile(lambda due: due[0].kind in only, found))


def _due(row: tuple[Any, ...]) -> Due:
    input_, files = row[len(FIELDS) : len(FIELDS) + 2]
    return job_of(row), input_.encode(), _read_files.decode(files) if files else ()


def claim(tx: Work, due: Due, owner: str, lease_until: float, *, reserve: bool) -> Claim:
    before, input_, files = due
    change = (Reserved if reserve and not before.parked else Claimed)(
        job_id=before.id, owner=owner, lease_until=lease_until
    )
    after = advance(before, change, tx.now)
    tx.change(before, after)
    if isinstance(change, Claimed):
        tx.tell(after, "status")
    kept = "SELECT name, result FROM steps WHERE job_id = ?"
    return Claim(
        after,
        input_,
        files,
        {name: msgspec.Raw(text) for name, text in tx.execute(kept, (after.id,))} if after.steps else {},
        {
            c.job_id: child
            for c in after.children
            if c.status is not None and (child := tx.job(c.job_id)) is not None
        },
    )


def renew(tx: Work, job_id: str, fence: int, lease_until: float) -> bool:
    """Prolongs a lease; whether it was still held. Not a change of the job: its version stays."""
    job = tx.job(job_id)
    if job is None or job.fence != fence or not job.lease_until:
        return False
    tx.change(job, replace(job, lease_until=lease_until))
    return True


def remove(tx: Work, job_id: str, tenant: str) -> None:
    tx.removed(job_id)
    tx.execute("DELETE FROM jobs WHERE id = ?", (job_id,))
    for table in ("inputs", "steps", "events", "keys"):
        tx.execute(f"DELETE FROM {table} WHERE job_id = ?", (job_id,))
    tx.execute(
        "INSERT OR REPLACE INTO tombstones (id, tenant, at) VALUES (?, ?, ?)",
        (job_id, tenant, tx.now),
    )


def delete(tx: Work, job_id: str, version: int | None) -> Job | Refused | Missing:
    job = tx.job(job_id)
    if job is None:
        return gone(tx, job_id)
    wish = Change(job_id=job_id, version=version)
    if version is not None and version != job.version:
        return WrongVersion(job, wish, f"the job is at version {job.version}")
    if job.status is Status.PROCESSING or job.held:
        return WrongStatus(job, wish, "a worker has the job; cancel it first")
    parent = tx.job(job.parent) if job.parent is not None else None
    if parent is not None and not parent.status.terminal:
        return WrongStatus(job, wish, f"job {parent.id} still needs it; cancel or delete that one")
    for child in job.children:
        running = tx.job(child.job_id)
        if running is not None and not running.status.terminal:
            apply(tx, cancel(running))
    remove(tx, job_id, job.tenant)
    return job
