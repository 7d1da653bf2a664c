"""A transaction of the PostgreSQL store.

1. A row that is read here is locked until the transaction ends, or comes from the cache of held jobs. Writes and responses
   that depend on a cached row are conditional on it: if another process has changed the row, the SQL function `expect`
   fails the transaction, and the session retries it with the current row.
2. Writes are deferred and sent together with the commit: a transaction takes one round trip, and one more for each read.
   If a client stops in between, the server releases its locks after a few seconds.
3. The lock of the event log is the last lock and is held until the commit, so that event numbers are in commit order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

import msgspec
import psycopg
from msgspec.structs import replace

from bide.core.jobs.record import Job
from bide.server.store import BY_CONTENT, ClaimRequest, InputFile, NewJob, upload_rows
from bide.server.store.postgres.cache import PostgresCache
from bide.server.store.postgres.server import held_channel
from bide.server.store.postgres.statements import (
    END_OF_KEYS,
    EVENTS,
    INSERT,
    INSERT_INPUT,
    KEYS,
    LOCK_LOG,
    LOCKED,
    OF_KINDS,
    OF_ONE_KIND,
    SMALL_STEPS,
    STEPS,
    UPDATE,
    UPLOADS,
    USES,
    VERIFY,
)
from bide.server.store.rows import FIELDS, job_of, values_of
from bide.server.store.transaction import Due, Transaction, encode, files_of, ready, text_of
from bide.server.upload_record import Upload

CONFLICT = "BD001"
IDS_PER_NOTIFICATION = 250  # a notification has at most 8,000 bytes


class PostgresTransaction(Transaction):
    """`Transaction` on the writer's connection. The first statement begins it."""

    __slots__ = (
        *("_begun", "_connection", "_keys", "_known", "_locked", "_cache", "_changed"),
        *(
            "_held_elsewhere",
            "_removed",
            "_steps",
            "_used",
            "_writes",
            "commit_sent",
            "uncertain",
            "pauses",
        ),
        "trusted",
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
        self._changed: set[str] = set()  # jobs with a new version
        self._removed: set[str] = set()
        self._held_elsewhere: set[str] = set()  # changed jobs that other processes hold
        self._used: dict[tuple[str, str, str], tuple[bytes, str] | None] = {}  # idempotency keys as read
        self._keys: list[dict[str, Any]] = []
        self._steps: dict[tuple[str, str], dict[str, Any]] = {}
        self._writes: list[tuple[str, Sequence[Any]]] = []  # deferred until the commit
        self.trusted: dict[str, Job] = {}  # jobs from the cache, verified by the commit
        self.pauses = False

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

    @property
    def removed(self) -> list[str]:
        """Jobs whose rows the commit deletes."""
        return list(self._removed)

    # --- reads

    def prefetch(self, job_ids: Iterable[str], keys: Iterable[tuple[str, str, str]]) -> None:
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

    def read(self, job_id: str) -> Job | None:
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
        return self.read(job_id) if self.uncertain else None

    def candidates(self, request: ClaimRequest, limit: int) -> list[Due]:
        if any(job is not None and ready(job, self.now) for job in map(self.job, self._stored)):
            self.flush_changes()
        changed = [*self._stored, *self._removed]  # changed here, so they cannot be claimed
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

    def paused(self, *, sure: bool = False) -> frozenset[str]:
        known = None if self.pauses or sure else self._cache.paused
        if known is None:
            pauses = self._cache.pauses
            rows = self.execute("SELECT name FROM queues WHERE paused").fetchall()
            known = frozenset(name for (name,) in rows)
            if not self.pauses:
                self._cache.keep_paused(known, pauses)
        return known

    def key(self, tenant: str, kind: str, key: str) -> tuple[bytes, str] | None:
        full_key = (tenant, kind, key)
        if full_key not in self._used:
            self.prefetch((), [full_key])
        return self._used[full_key]

    def steps(self, job_id: str, limit: int) -> dict[str, msgspec.Raw]:
        rows = self.execute(SMALL_STEPS, (job_id, limit))
        stored: dict[str, str] = dict(rows.fetchall())
        stored.update((name, s["result"]) for (of, name), s in self._steps.items() if of == job_id)
        found: dict[str, msgspec.Raw] = {}
        for name, text in stored.items():
            result = text.encode()
            limit -= len(result)
            if limit < 0:
                break
            found[msgspec.json.decode(name, type=str)] = msgspec.Raw(result)
        return found

    def was_removed(self, job_id: str) -> bool:
        if job_id in self._removed:
            return True
        found = self.execute("SELECT 1 FROM tombstones WHERE id = %s", (job_id,)).fetchone()
        return found is not None

    # --- writes

    def pause(self, queue: str, paused: bool) -> None:
        self.pauses = True
        self.execute(
            "INSERT INTO queues (tenant, name, paused) VALUES ('-', %s, %s) "
            "ON CONFLICT (tenant, name) DO UPDATE SET paused = excluded.paused",
            (queue, paused),
        )

    def forget_keys(self) -> None:
        """Forget the keys that were read, because others were removed since."""
        unwritten = {(k["tenant"], k["kind"], k["key"]) for k in self._keys}
        self._used = {full_key: used for full_key, used in self._used.items() if full_key in unwritten}

    def keep_key(self, new: NewJob) -> None:
        job = new.job
        assert new.key is not None
        full_key = (job.tenant, job.kind, new.key)
        names = ("tenant", "kind", "key", "fingerprint", "job_id", "at")
        values = (*full_key, new.fingerprint.hex(), job.id, self.now)
        self._keys.append(dict(zip(names, values, strict=True)))
        self._used[full_key] = (new.fingerprint, job.id)

    def keep_step(self, job: Job, name: str, result: msgspec.Raw) -> None:
        written = encode(name).decode()
        self._steps[job.id, written] = {
            "job_id": job.id,
            "name": written,
            "tenant": job.tenant,
            "result": bytes(result).decode(),
            "at": self.now,
        }

    def delete_rows(self, job_id: str, tenant: str) -> None:
        self.delete_all_rows([(job_id, tenant)])

    def delete_all_rows(self, jobs: Sequence[tuple[str, str]]) -> None:
        ids = [job_id for job_id, _ in jobs]
        for job_id in ids:
            self._new.pop(job_id, None)
            self._stored.pop(job_id, None)
            self._jobs[job_id] = None
        self._removed.update(ids)
        of_content = {full_key for full_key, used in self._used.items() if used and used[1] in ids}
        of_content = {full_key for full_key in of_content if full_key[2].startswith(BY_CONTENT)}
        self._keys = [k for k in self._keys if (k["tenant"], k["kind"], k["key"]) not in of_content]
        self._used.update(dict.fromkeys(of_content))
        self.defer(END_OF_KEYS, self.now, ids)
        self.defer("DELETE FROM keys WHERE job_id = ANY(%s) AND starts_with(key, %s)", ids, BY_CONTENT)
        self.defer("DELETE FROM jobs WHERE id = ANY(%s)", ids)
        for table in ("inputs", "steps", "events", "upload_uses"):
            self.defer(f"DELETE FROM {table} WHERE job_id = ANY(%s)", ids)
        self.defer(
            "INSERT INTO tombstones (id, tenant, at) SELECT id, tenant, %s "
            "FROM unnest(%s::text[], %s::text[]) AS n(id, tenant) ON CONFLICT (id) DO UPDATE SET at = excluded.at",
            self.now,
            ids,
            [tenant for _, tenant in jobs],
        )

    def create(self, new: NewJob) -> None:
        if new.job.id in self._new:  # the error that the table itself would raise
            raise psycopg.errors.UniqueViolation(f"job {new.job.id} exists already")
        super().create(new)

    def change(self, before: Job, after: Job) -> None:
        if after.version != before.version:
            self._changed.add(after.id)
        if before.held and before.owner not in self._cache.owners:
            self._held_elsewhere.add(after.id)
        super().change(before, after)

    def flush_new(self) -> None:
        self._put_new(self._now)

    def flush_changes(self) -> None:
        self._put_changes(self._now)

    def _now(self, sql: str, *values: Any) -> None:
        self.execute(sql, values)

    def _put_changes(self, put: Callable[..., None]) -> None:
        rows = [self._row_of_change(before) for before in self._stored.values()]
        if rows:
            put(UPDATE, encode(rows).decode(), len(rows))
            self._locked.update(self._stored)
            self._stored.clear()

    def _row_of_change(self, before: Job) -> dict[str, Any]:
        after = self._jobs[before.id]
        assert after is not None
        row = _row(after)
        row.update(_before(before))
        if after.due != before.due:
            row["ready"] = ready(after, self.now)
        return row

    def _put_new(self, put: Callable[..., None]) -> None:
        rows, inputs = [], []
        for job_id, new in self._new.items():
            job = self._jobs[job_id]
            assert job is not None
            row = _row(job)
            row["ready"] = ready(job, self.now)
            if job.labels:
                row["tags"] = [tag(name, value) for name, value in job.labels.items()]
            rows.append(row)
            given = (job_id, job.tenant, new.input.decode(), text_of(new.files))
            inputs.append(dict(zip(("job_id", "tenant", "input", "files"), given, strict=True)))
        if rows:
            put(INSERT, encode(rows).decode())
            put(INSERT_INPUT, encode(inputs).decode())
            self._new.clear()

    # --- uploads

    def keep_files(self, job_id: str, files: Sequence[InputFile]) -> None:
        self.flush_new()
        self.execute("UPDATE inputs SET files = %s WHERE job_id = %s", (text_of(files), job_id))

    def read_upload(self, upload_id: str) -> Upload | None:
        sql = f"SELECT {upload_rows.READ} FROM uploads WHERE id = %s FOR NO KEY UPDATE"
        row = self.execute(sql, (upload_id,)).fetchone()
        return None if row is None else upload_rows.upload_of(row)

    def user_of(self, upload_id: str) -> str | None:
        sql = "SELECT job_id FROM upload_uses WHERE upload_id = %s LIMIT 1"
        row = self.execute(sql, (upload_id,)).fetchone()
        return None if row is None else row[0]

    def flush_uploads(self) -> None:
        self._put_uploads(self._now)

    def _put_uploads(self, put: Callable[..., None]) -> None:
        if not self._touched and not self._uses:
            return
        changed, removed = self.take_touched()
        if changed:
            rows = [
                dict(zip(upload_rows.FIELDS, upload_rows.values_of(u), strict=True)) for u in changed
            ]
            put(UPLOADS, encode(rows).decode())
        if removed:
            put("DELETE FROM uploads WHERE id = ANY(%s)", removed)
            put(
                "INSERT INTO tombstones (id, tenant, at) SELECT id, '-', %s FROM unnest(%s::text[]) AS n(id) "
                "ON CONFLICT (id) DO UPDATE SET at = excluded.at",
                self.now,
                removed,
            )
        uses = self.take_uses()
        if uses:
            put(USES, *(list(column) for column in zip(*uses, strict=True)))

    # --- the end

    def finish(self, channel: str, origin: str) -> None:
        """Send all deferred writes and the commit in one message."""
        self._put_new(self.defer)
        self._put_uploads(self.defer)
        if self._keys:
            self.defer(KEYS, encode(self._keys).decode(), len(self._keys))
        self._put_changes(self.defer)
        unwritten = [job for job_id, job in self.trusted.items() if job_id not in self._locked]
        if unwritten:
            rows = [{"id": job.id, **_before(job)} for job in unwritten]
            self.defer(VERIFY, len(rows), encode(rows).decode())
        if self._steps:
            self.defer(STEPS, encode(list(self._steps.values())).decode())
        self._notify_others(channel, origin)
        if self._begun or self._writes or self.events:
            self._commit(channel, origin)

    def _commit(self, channel: str, origin: str) -> None:
        statements = list(self._writes)
        if not self._begun:
            statements.insert(0, ("BEGIN", ()))
        if self.events:
            statements.append((LOCK_LOG, ()))
            statements.append((EVENTS, (origin, self._events_json(), channel, f"e {origin}")))
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

    def _events_json(self) -> str:
        """The events as JSON rows."""
        names = ("tenant", "job_id", "type", "at", "job")
        values = [(e.tenant, e.job_id, e.type, e.at, encode(e.job).decode()) for e in self.events]
        return encode([dict(zip(names, given, strict=True)) for given in values]).decode()

    def _notify_others(self, channel: str, origin: str) -> None:
        """Notify other processes of changes that have no event: jobs that changed or were removed without one, and paused
        queues.
        """
        silent = sorted((self._changed | self._removed) - {event.job_id for event in self.events})
        held = held_channel(channel)
        for where, code, ids in ((channel, "x", silent), (held, "h", sorted(self._held_elsewhere))):
            for begin in range(0, len(ids), IDS_PER_NOTIFICATION):
                names = ",".join(ids[begin : begin + IDS_PER_NOTIFICATION])
                self.defer("SELECT pg_notify(%s, %s)", where, f"{code} {origin} {names}")
        if self.pauses:
            for where in (channel, held):
                self.defer("SELECT pg_notify(%s, %s)", where, f"p {origin}")

    def committed(self) -> None:
        """Update the cache; called right after the commit."""
        cache = self._cache
        if self.pauses:
            cache.pauses += 1
        for job_id, job in self._jobs.items():
            if job is not None and job.held and job.owner in cache.owners:
                cache.held[job_id] = job
                cache.own[job_id] = job.fence
            else:
                cache.held.pop(job_id, None)
                cache.own.pop(job_id, None)
        cache.jobs.invalidate(self._jobs)


def tag(name: str, value: str) -> str:
    """A label in the form that the index on labels uses."""
    return encode([name, value]).decode()


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
