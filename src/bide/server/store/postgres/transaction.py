"""A transaction of the PostgreSQL store.

1. A row that is read here is locked until the transaction ends, or comes from the cache of held jobs. Writes and responses
   that depend on a cached row are conditional on it: if another process has changed the row, the SQL function `expect`
   fails the transaction, and the session retries it with the current row.
2. Writes are deferred and sent together with the commit: a transaction takes one round trip, and one more for each read.
   If a client stops in between, the server releases its locks after a few seconds.
3. The lock of the event log is the last lock and is held until the commit, so that event numbers are in commit order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar

import msgspec
import psycopg
from msgspec.structs import replace

from bide.core.jobs.record import Job
from bide.server.store import BY_CONTENT, ClaimRequest, upload_rows
from bide.server.store.postgres.cache import PostgresCache
from bide.server.store.postgres.server import held_channel
from bide.server.store.postgres.statements import (
    END_OF_KEYS,
    END_OF_USES,
    EVENTS,
    EXPIRED,
    INSERT,
    INSERT_INPUT,
    KEYS,
    LOCK_LOG,
    LOCKED,
    NEXT_DUE,
    OF_KINDS,
    OF_ONE_KIND,
    OLD_KEYS,
    OLD_TOMBSTONES,
    PAUSE,
    PUT_DURATIONS,
    PUT_WORKERS,
    REPLACED_KEYS,
    SMALL_STEPS,
    STEPS,
    TOMBSTONES,
    UPDATE,
    UPLOAD,
    UPLOADS,
    USER,
    USES,
    VERIFY,
    WAKE,
)
from bide.server.store.rows import FIELDS, job_of, values_of
from bide.server.store.transaction import (
    Due,
    Key,
    KeyRow,
    RowChanges,
    Transaction,
    encode,
    files_of,
    ready,
    text_of,
)
from bide.server.upload_record import Upload

CONFLICT = "BD001"
IDS_PER_NOTIFICATION = 250  # a notification has at most 8,000 bytes
BATCH = 1000  # rows that one statement of the upkeep changes
DEAD_WORKER = 3600.0  # seconds after which the next heartbeat of any worker removes a dead worker's row
Statement = tuple[str, Sequence[Any]]


class PostgresTransaction(Transaction):
    """`Transaction` on the writer's connection. The first statement begins it."""

    __slots__ = (
        *("_begun", "_cache", "_changed", "_connection", "_held_elsewhere", "_known", "_locked"),
        *("_used", "_writes", "commit_sent", "trusted", "uncertain"),
    )

    FEW: ClassVar[int] = 1 << 30

    def __init__(
        self,
        cache: PostgresCache,
        connection: psycopg.Connection[tuple[Any, ...]],
        now: float,
        *,
        uncertain: bool = False,
    ) -> None:
        super().__init__(now)
        self._cache = cache
        self._connection = connection
        self.uncertain = uncertain  # whether the same operations may already be committed
        self.commit_sent = False  # if the connection breaks after this, the commit is uncertain
        self._begun = False
        self._known: dict[str, Job | None] = {}  # rows as this transaction locked them
        self._locked: set[str] = set()  # cached rows that this transaction has written
        self._changed: set[str] = set()  # jobs with a new version, and removed jobs
        self._held_elsewhere: set[str] = set()  # changed jobs that other processes hold
        self._used: dict[Key, tuple[bytes, str] | None] = {}  # idempotency keys as read
        self._writes: list[Statement] = []  # deferred until the commit
        self.trusted: dict[str, Job] = {}  # jobs from the cache, verified by the commit

    def execute(self, sql: str, values: Sequence[Any] = ()) -> psycopg.Cursor[tuple[Any, ...]]:
        """Execute immediately."""
        if not self._begun:
            self._begun = True
            cursor = self._execute_batch([("BEGIN", ()), (sql, values)])
            cursor.nextset()
            return cursor
        return self._connection.execute(sql.encode(), values)

    def defer(self, sql: str, *values: Any) -> None:
        """Execute with the commit, in the order of the calls."""
        self._writes.append((sql, values))

    # --- reads

    def prefetch(self, job_ids: Iterable[str], keys: Iterable[Key]) -> None:
        """Read the jobs and keys that the operations need, with one statement each."""
        wanted = sorted({i for i in job_ids if i not in self._cache.held})
        if wanted:
            found = {row[0]: job_of(row) for row in self.execute(LOCKED, (wanted,))}
            self._known.update((job_id, found.get(job_id)) for job_id in wanted)
        full_keys = sorted(set(keys))
        if full_keys:
            rows = self.execute(
                "SELECT k.tenant, k.kind, k.key, k.fingerprint, k.job_id FROM keys k JOIN "
                "unnest(%s::text[], %s::text[], %s::text[]) AS n(tenant, kind, key) "
                "ON k.tenant = n.tenant AND k.kind = n.kind AND k.key = n.key",
                tuple(map(list, zip(*full_keys, strict=True))),
            )
            self._used.update(dict.fromkeys(full_keys))
            self._used.update(
                ((t, k, key), (bytes.fromhex(print_), job)) for t, k, key, print_, job in rows
            )

    def read_job(self, job_id: str) -> Job | None:
        if job_id in self._known:
            return self._known[job_id]
        job = self.trusted.get(job_id) or self._cache.held.get(job_id)
        if job is not None:
            self.trusted[job_id] = job
            return job
        row = self.execute(LOCKED, ([job_id],)).fetchone()
        job = self._known[job_id] = None if row is None else job_of(row)
        return job

    def existing(self, job_id: str) -> Job | None:
        return self.read_job(job_id) if self.uncertain else None

    def candidates(self, request: ClaimRequest, limit: int) -> list[Due]:
        if any(job is not None and ready(job, self.now) for job in map(self.job, self._stored)):
            self.flush_changes()
        changed = [*self._stored, *self._removed]  # not written yet, and not claimable any more
        if len(request.kinds) == 1:
            rows = self.execute(OF_ONE_KIND, (request.queue, request.kinds[0], changed, limit, limit))
        else:
            rows = self.execute(OF_KINDS, (list(request.kinds), request.queue, changed, limit, limit))
        found = []
        for row in rows:
            job = self._known[row[0]] = job_of(row)
            input_, files = row[len(FIELDS) :]
            found.append((job, input_.encode(), files_of(files)))
        return found

    def read_upload(self, upload_id: str) -> Upload | None:
        row = self.execute(UPLOAD, (upload_id,)).fetchone()
        return None if row is None else upload_rows.upload_of(row)

    def read_key(self, key: Key) -> tuple[bytes, str] | None:
        if key not in self._used:
            self.prefetch((), [key])
        return self._used[key]

    def read_steps(self, job_id: str, limit: int) -> dict[str, msgspec.Raw]:
        rows = self.execute(SMALL_STEPS, (job_id, limit)).fetchall()
        return {msgspec.json.decode(name, type=str): msgspec.Raw(text.encode()) for name, text in rows}

    def read_paused(self, *, sure: bool = False) -> frozenset[str]:
        known = None if sure else self._cache.paused
        if known is None:
            pauses = self._cache.pauses
            rows = self.execute("SELECT name FROM queues WHERE paused").fetchall()
            known = frozenset(name for (name,) in rows)
            if not self._pauses:  # otherwise the table may have rows that are not committed
                self._cache.keep_paused(known, pauses)
        return known

    def read_tombstone(self, removed_id: str) -> bool:
        found = self.execute("SELECT 1 FROM tombstones WHERE id = %s", (removed_id,)).fetchone()
        return found is not None

    def read_uses(self, *, upload: str = "", job: str = "", ended: float | None = None) -> list[str]:
        if job:
            rows = self.execute("SELECT upload_id FROM upload_uses WHERE job_id = %s", (job,))
        else:
            rows = self.execute(USER, (upload, ended, ended))
        return [found for (found,) in rows]

    # --- upkeep

    def wake(self) -> tuple[set[tuple[str, str]], float | None]:
        woken = self.execute(WAKE, (self.now, BATCH)).fetchall()
        row = self.execute(NEXT_DUE).fetchone()
        return {(queue, kind) for queue, kind in woken}, None if row is None else row[0]

    def expire(self, tombstones: float, keys: float, limit: int) -> list[tuple[str, str]]:
        self.execute(OLD_TOMBSTONES, (tombstones, max(limit, BATCH)))
        self.execute(OLD_KEYS, (keys, max(limit, BATCH), self.now, keys, keys))
        self._used.clear()  # some of them may have been removed
        return [(job_id, tenant) for job_id, tenant in self.execute(EXPIRED, (self.now, limit))]

    # --- writes

    def change(self, before: Job, after: Job) -> None:
        if after.version != before.version:
            self._changed.add(after.id)
        if before.held and before.owner not in self._cache.owners:
            self._held_elsewhere.add(after.id)
        super().change(before, after)

    def remove(self, job_id: str, tenant: str) -> None:
        self._changed.add(job_id)
        super().remove(job_id, tenant)

    def lost(self, job_id: str, fence: int) -> None:
        if self._cache.own.get(job_id) == fence:  # not a later claim of the same job
            del self._cache.own[job_id]

    def write(self, changes: RowChanges) -> None:
        for sql, values in self._statements(changes):
            self.execute(sql, values)

    def _statements(self, changes: RowChanges) -> Iterator[Statement]:
        """The statements that write the changes. `finish` sends them together with the commit."""
        now = self.now
        if changes.removed:
            yield from self._deletions(changes.removed)
        if changes.new:
            jobs = [
                _row(new.job)
                | {
                    "ready": ready(new.job, now),
                    "tags": [tag(*label) for label in new.job.labels.items()] or None,
                }
                for new in changes.new
            ]
            yield INSERT, (encode(jobs).decode(),)
            inputs = [(n.job.id, n.job.tenant, n.input.decode(), text_of(n.files)) for n in changes.new]
            yield INSERT_INPUT, (_json(_INPUT, inputs),)
        if changes.uploads or changes.removed_uploads or changes.uses or changes.removed_uses:
            yield from self._upload_statements(changes)
        if changes.keys:
            yield from self._key_statements(changes.keys)
            self._used.update((k.key, (k.fingerprint, k.job_id)) for k in changes.keys)
        if changes.changed:
            changed = [self._changed_row(before, after) for before, after in changes.changed]
            yield UPDATE, (encode(changed).decode(), len(changed))
            self._locked.update(before.id for before, _ in changes.changed)
        for job_id, files in changes.files:
            yield "UPDATE inputs SET files = %s WHERE job_id = %s", (text_of(files), job_id)
        if changes.steps:
            steps = [
                (s.job_id, encode(s.name).decode(), s.tenant, bytes(s.result).decode(), now)
                for s in changes.steps
            ]
            yield STEPS, (_json(_STEP, steps),)
        if changes.paused:
            yield PAUSE, [list(column) for column in zip(*changes.paused, strict=True)]
        if changes.texts:
            yield from self._texts_of(changes)
        if changes.check:
            # The check must fail whenever lease renewals fail, because then no lease counts as lost. So it takes the lock
            # on the jobs table that every write takes.
            yield "LOCK TABLE jobs IN ROW EXCLUSIVE MODE", ()
            yield _CHECK, (now,)

    def _upload_statements(self, changes: RowChanges) -> Iterator[Statement]:
        if changes.uploads:
            rows = [upload_rows.values_of(upload) for upload in changes.uploads]
            yield UPLOADS, (_json(upload_rows.FIELDS, rows),)
        if changes.removed_uploads:
            ids = list(changes.removed_uploads)
            yield "DELETE FROM uploads WHERE id = ANY(%s)", (ids,)
            yield TOMBSTONES, (self.now, ids, ["-"] * len(ids))
        if changes.uses:
            yield USES, [list(column) for column in zip(*changes.uses, strict=True)]
        if changes.removed_uses:
            yield END_OF_USES, [list(column) for column in zip(*changes.removed_uses, strict=True)]

    def _key_statements(self, keys: Sequence[KeyRow]) -> Iterator[Statement]:
        new = [_key_row(row, self.now) for row in keys if row.replaces is None]
        if new:
            yield KEYS, (_json(_KEY, new), len(new))
        replaced = [(*_key_row(row, self.now), row.replaces) for row in keys if row.replaces is not None]
        if replaced:
            yield REPLACED_KEYS, (_json((*_KEY, "replaces"), replaced), len(replaced))

    def _deletions(self, removed: Sequence[tuple[str, str]]) -> Iterator[Statement]:
        ids, tenants = [job_id for job_id, _ in removed], [tenant for _, tenant in removed]
        yield END_OF_KEYS, (self.now, ids)
        yield "DELETE FROM keys WHERE job_id = ANY(%s) AND starts_with(key, %s)", (ids, BY_CONTENT)
        yield "DELETE FROM jobs WHERE id = ANY(%s)", (ids,)
        for table in ("inputs", "steps", "events", "upload_uses"):
            yield f"DELETE FROM {table} WHERE job_id = ANY(%s)", (ids,)
        yield TOMBSTONES, (self.now, ids, tenants)

    def _texts_of(self, changes: RowChanges) -> Iterator[Statement]:
        durations = [(name, text) for table, name, text in changes.texts if table == "durations"]
        if durations:
            yield PUT_DURATIONS, (_json(_TEXT, durations),)
        workers = [(name, text) for table, name, text in changes.texts if table == "workers"]
        if workers:
            live = [(name, state) for name, state in workers if state is not None]
            yield PUT_WORKERS, (self.now, _json(_TEXT, live))
            ended = [name for name, state in workers if state is None]
            yield (
                "DELETE FROM workers WHERE name = ANY(%s) OR seen_at < %s",
                (ended, self.now - DEAD_WORKER),
            )

    def _changed_row(self, before: Job, after: Job) -> dict[str, Any]:
        row = _row(after)
        row.update(_before(before))
        if after.due != before.due:
            row["ready"] = ready(after, self.now)
        return row

    # --- the end

    def finish(self, channel: str, origin: str) -> None:
        """Send all deferred writes and the commit in one message."""
        self._writes += self._statements(self.take_changes())
        unwritten = [job for job_id, job in self.trusted.items() if job_id not in self._locked]
        if unwritten:
            rows = [{"id": job.id, **_before(job)} for job in unwritten]
            self.defer(VERIFY, len(rows), encode(rows).decode())
        self._notify_others(channel, origin)
        if not (self._begun or self._writes or self.events):
            return
        statements = list(self._writes)
        if not self._begun:
            statements.insert(0, ("BEGIN", ()))
        if self.events:
            events = [(e.tenant, e.job_id, e.type, e.at, encode(e.job).decode()) for e in self.events]
            statements.append((LOCK_LOG, ()))
            statements.append((EVENTS, (origin, _json(_EVENT, events), channel, f"e {origin}")))
        statements.append(("COMMIT", ()))
        self.commit_sent = True
        answers = self._execute_batch(statements)
        if self.events:
            for _ in statements[:-2]:
                answers.nextset()
            row = answers.fetchone()
            assert row is not None
            self.events = [replace(event, id=row[0] + i) for i, event in enumerate(self.events)]

    def _execute_batch(
        self, statements: Sequence[tuple[str, Sequence[Any]]]
    ) -> psycopg.ClientCursor[tuple[Any, ...]]:
        """Execute statements in one message. The server starts when it has the whole message, so a client that stops while
        sending cannot leave a lock behind.
        """
        cursor = psycopg.ClientCursor(self._connection)
        text = ";\n".join(sql for sql, _ in statements)
        cursor.execute(text.encode(), [value for _, values in statements for value in values])
        return cursor

    def _notify_others(self, channel: str, origin: str) -> None:
        """Notify other processes of changes that have no event: jobs that changed or were removed without one, and paused
        queues.
        """
        silent = sorted(self._changed - {event.job_id for event in self.events})
        held = held_channel(channel)
        for where, code, ids in ((channel, "x", silent), (held, "h", sorted(self._held_elsewhere))):
            for begin in range(0, len(ids), IDS_PER_NOTIFICATION):
                names = ",".join(ids[begin : begin + IDS_PER_NOTIFICATION])
                self.defer("SELECT pg_notify(%s, %s)", where, f"{code} {origin} {names}")
        if self._pauses:
            for where in (channel, held):
                self.defer("SELECT pg_notify(%s, %s)", where, f"p {origin}")

    def committed(self) -> None:
        """Update the cache; called right after the commit."""
        cache = self._cache
        if self._pauses:
            cache.pauses += 1
        for job_id, job in self._jobs.items():
            if job is not None and job.held and job.owner in cache.owners:
                cache.held[job_id] = job
                cache.own[job_id] = job.fence
            else:
                cache.held.pop(job_id, None)
                cache.own.pop(job_id, None)
        cache.jobs.invalidate(self._jobs)


_INPUT = ("job_id", "tenant", "input", "files")
_KEY = ("tenant", "kind", "key", "fingerprint", "job_id", "at")
_STEP = ("job_id", "name", "tenant", "result", "at")
_TEXT = ("name", "text")
_EVENT = ("tenant", "job_id", "type", "at", "job")
_CHECK = (
    "INSERT INTO write_check (id, at) VALUES (1, %s) ON CONFLICT (id) DO UPDATE SET at = excluded.at"
)


def _json(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Rows as one JSON parameter."""
    return encode([dict(zip(names, row, strict=True)) for row in rows]).decode()


def tag(name: str, value: str) -> str:
    """A label in the form that the index on labels uses."""
    return encode([name, value]).decode()


def _key_row(row: KeyRow, now: float) -> tuple[Any, ...]:
    return (*row.key, row.fingerprint.hex(), row.job_id, now)


def _before(job: Job) -> dict[str, Any]:
    """The values that a write is conditional on."""
    return {
        "was_version": job.version,
        "was_fence": job.fence,
        "was_lease": job.lease_until,
        "was_owner": job.owner,
    }


def _row(job: Job) -> dict[str, Any]:
    """A job's values by column, without NULLs."""
    return {name: value for name, value in zip(FIELDS, values_of(job), strict=True) if value is not None}
