"""A transaction of the PostgreSQL store.

1. A row that is read here is locked until the transaction ends, or comes from the cache of held jobs. Writes and responses
   that depend on a cached row are conditional on it: if another process has changed the row, the SQL function `expect`
   fails the transaction, and the session retries it with the current row.
2. Writes are deferred and sent together with the commit: a transaction takes one round trip, and one more for each read.
   If a client stops in between, the server releases its locks after a few seconds.
3. The lock of the event log is the last lock and is held until the commit, so that event numbers are in commit order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import msgspec
import psycopg
from msgspec.structs import astuple, replace

from bide.core.jobs.fair import PRIORITY_STEP, Slice
from bide.core.jobs.record import Job
from bide.server.store import BY_CONTENT, RECORDS, ClaimRequest, rollups, upload_rows
from bide.server.store.postgres.cache import PostgresCache
from bide.server.store.postgres.server import NUMBERING, held_channel
from bide.server.store.rollups import RollupRow
from bide.server.store.rows import COLUMNS, FIELDS, job_of, values_of
from bide.server.store.transaction import (
    STRANDED,
    Due,
    Key,
    KeyRow,
    RecordKey,
    RowChanges,
    TermRow,
    TextTable,
    Transaction,
    changed_terms,
    encode,
    files_of,
    label_terms,
    ready,
    step_terms,
    text_of,
)
from bide.server.upload_record import Upload

CONFLICT = "BD001"
IDS_PER_NOTIFICATION = 250  # a notification has at most 8,000 bytes
BATCH = 1000  # rows that one statement of the upkeep changes
DEAD_WORKER = 3600.0  # seconds after which the next heartbeat of any worker removes a dead worker's row
Statement = tuple[str, Sequence[Any]]

# --- the statements
#
# Rows are one JSON parameter, so a statement does not depend on their number. Several processes may run the statements of
# the upkeep concurrently: each skips rows that another has locked.

_INTEGERS = {"version", "run", "priority", "attempt", "max_attempts", "failures", "losses", "fence"}
_INSTANTS = {
    *("created_at", "updated_at", "run_at", "due", "deadline", "lease_until", "started_at"),
    *("next_attempt_at", "cancel_asked_at", "finished_at", "keep", "expires_at", "lease_seconds"),
    "overdue_at",
}
# Fields that never change.
_FIXED = {
    *("id", "kind", "created_at", "tenant", "labels", "parent", "trace_id", "webhook"),
    *("concurrency_key", "tracestate"),
}


def _typed(names: Iterable[str]) -> str:
    def kind(name: str) -> str:
        return "bigint" if name in _INTEGERS else "float8" if name in _INSTANTS else "text"

    return ", ".join(f"{name} {kind(name)}" for name in names)


_CHANGED = [name for name in FIELDS if name not in _FIXED]
_OF_JOB = ", ".join(f"j.{name}" for name in FIELDS)
_INSERT = (
    f"INSERT INTO jobs ({COLUMNS}, ready, tags) SELECT {COLUMNS}, ready, tags "
    f"FROM json_to_recordset(%s::json) AS n({_typed(FIELDS)}, ready boolean, tags text[])"
)
_INSERT_INPUT = (
    "INSERT INTO inputs (job_id, tenant, input, files) SELECT job_id, tenant, input, files "
    "FROM json_to_recordset(%s::json) AS n(job_id text, tenant text, input text, files text)"
)
# Those of labels are written by a trigger.
_TERMS = (
    "INSERT INTO search_terms (tenant, value, field, kind, queue, job_id) SELECT tenant, value, field, kind, queue, job_id "
    "FROM json_to_recordset(%s::json) AS n(tenant text, value text, field text, kind text, queue text, job_id text) "
    "ON CONFLICT DO NOTHING"
)
_ADD_ROLLUPS = (
    "INSERT INTO rollups (tenant, span, at, kind, queue, name, count) "
    f"SELECT tenant, {rollups.MINUTE}, at, kind, queue, name, count FROM json_to_recordset(%s::json) AS "
    "n(tenant text, at bigint, kind text, queue text, name text, count bigint) " + rollups.ADD
)
_OLD = f"SELECT {COLUMNS} FROM jobs WHERE id > %s AND id <= %s ORDER BY id LIMIT %s FOR KEY SHARE"
_BEFORE = "was_version bigint, was_fence bigint, was_lease float8, was_owner text"
_WAS = (
    "j.id = n.id AND j.version = n.was_version AND j.fence = n.was_fence "
    "AND j.lease_until IS NOT DISTINCT FROM n.was_lease AND j.owner IS NOT DISTINCT FROM n.was_owner"
)
_UPDATE = (
    f"WITH done AS (UPDATE jobs j SET {', '.join(f'{name} = n.{name}' for name in _CHANGED)}, "
    "ready = coalesce(n.ready, j.ready), blocked = CASE WHEN n.ready IS NULL THEN j.blocked END "
    "FROM json_to_recordset(%s::json) AS "
    f"n(id text, {_typed(_CHANGED)}, ready boolean, {_BEFORE}) "
    f"WHERE {_WAS} RETURNING 1) "
    "SELECT expect(count(*), %s) FROM done"
)
_VERIFY = (
    "SELECT expect(count(*), %s) FROM jobs j, "
    f"json_to_recordset(%s::json) AS n(id text, {_BEFORE}) WHERE {_WAS}"
)
_KEYS = (
    "WITH done AS (INSERT INTO keys (tenant, kind, key, fingerprint, job_id, at) "
    "SELECT tenant, kind, key, fingerprint, job_id, at FROM json_to_recordset(%s::json) AS "
    "n(tenant text, kind text, key text, fingerprint text, job_id text, at float8) "
    "ON CONFLICT DO NOTHING RETURNING 1) SELECT expect(count(*), %s) FROM done"
)
_REPLACED_KEYS = (
    "WITH done AS (UPDATE keys k SET fingerprint = n.fingerprint, job_id = n.job_id, at = n.at "
    "FROM json_to_recordset(%s::json) AS n(tenant text, kind text, key text, fingerprint text, job_id text, at float8, "
    "replaces text) WHERE k.tenant = n.tenant AND k.kind = n.kind AND k.key = n.key AND k.job_id = n.replaces "
    "RETURNING 1) SELECT expect(count(*), %s) FROM done"
)
_END_OF_KEYS = "UPDATE keys k SET at = coalesce(j.finished_at, %s) FROM jobs j WHERE j.id = k.job_id AND j.id = ANY(%s)"
_STEPS = (
    "INSERT INTO steps (job_id, name, tenant, result, at) SELECT job_id, name, tenant, result, at "
    "FROM json_to_recordset(%s::json) AS n(job_id text, name text, tenant text, result text, at float8) "
    "ON CONFLICT (job_id, name) DO UPDATE SET result = excluded.result, at = excluded.at"
)
# The sizes are known without reading the values, so results that do not fit are not read.
_SMALL_STEPS = (
    "SELECT name, result FROM (SELECT name, result, sum(octet_length(result)) OVER (ORDER BY name) AS total "
    "FROM steps WHERE job_id = %s) s WHERE total <= %s"
)
_LOCK_LOG = f"SELECT pg_advisory_xact_lock({NUMBERING}, hashtext(current_schema()))"
_EVENTS = (
    "WITH e AS (INSERT INTO events (id, tenant, job_id, type, at, job, origin) "
    "SELECT nextval('event_numbers'), tenant, job_id, type, at, job, %s FROM json_to_recordset(%s::json) AS "
    "n(tenant text, job_id text, type text, at float8, job text) RETURNING id), "
    "r AS (SELECT min(id) AS first, max(id) AS last FROM e) "
    "SELECT first, pg_notify(%s, %s::text || ' ' || first || ' ' || last) FROM r"
)
_LAST_OUTPUT = "SELECT job FROM events WHERE tenant = %s AND job_id = %s AND type = 'output' ORDER BY id DESC LIMIT 1"
_LOCKED = f"SELECT {COLUMNS} FROM jobs WHERE id = ANY(%s) ORDER BY id FOR NO KEY UPDATE"
_ORDER = (  # the expression of the index
    "(CASE WHEN {0}run > 1 THEN {0}due ELSE greatest({0}created_at, {0}run_at) END - "
    f"{PRIORITY_STEP:.0f}.0 * {{0}}priority)"
)
_LAST_NAME = "\U0010ffff"  # greater than the name of any tenant


def _claimable(kind: str, tenant: str, limit: str) -> str:
    """The first claimable jobs of a tenant and a kind, locked."""
    return (
        f'SELECT * FROM jobs WHERE ready AND queue = %(queue)s AND kind = {kind} AND tenant COLLATE "C" = {tenant} '
        f"AND id <> ALL(%(changed)s) ORDER BY {_ORDER.format('')}, seq LIMIT {limit} FOR NO KEY UPDATE SKIP LOCKED"
    )


def _exists(condition: str, kinds: bool) -> str:
    kind = "kind = ANY(%(kinds)s)" if kinds else "kind = %(kind)s"
    return f'EXISTS (SELECT 1 FROM jobs WHERE ready AND queue = %(queue)s AND {kind} AND tenant COLLATE "C" {condition})'


def _next(tenant: str, until: str, kinds: bool) -> str:
    """The next tenant with claimable jobs."""
    name = 'tenant COLLATE "C"'
    found = (
        f"SELECT tenant FROM jobs WHERE ready AND queue = %(queue)s AND kind = {'k.kind' if kinds else '%(kind)s'} "
        f"AND {name} > {tenant} {until} ORDER BY {name} LIMIT 1"
    )
    if not kinds:
        return f"({found})"
    return f"(SELECT min(f.{name}) FROM unnest(%(kinds)s::text[]) AS k(kind) CROSS JOIN LATERAL ({found}) f)"


def _first_jobs(tenant: str, limit: str, kinds: bool, limited: bool, condition: str = "") -> str:
    """The first jobs of a tenant, with their inputs."""
    running = (
        "(SELECT count(*) FROM jobs h WHERE h.concurrency_key = j.concurrency_key AND h.lease_until IS NOT NULL)"
        if limited
        else "0"
    )
    if kinds:
        claimable = (
            f"SELECT found.* FROM unnest(%(kinds)s::text[]) AS k(kind) CROSS JOIN LATERAL "
            f"({_claimable('k.kind', tenant, limit)}) found"
        )
    else:
        claimable = _claimable("%(kind)s", tenant, limit)
    return (
        f"SELECT {_OF_JOB}, i.input, i.files, {running} AS running, {_ORDER.format('j.')} AS place, j.seq "
        f"FROM ({claimable}) j JOIN inputs i ON i.job_id = j.id {condition}"
    )


def _of_one_tenant(kinds: bool, limited: bool) -> str:
    """The jobs of one tenant, or one row without a job; the first column: whether other tenants have claimable jobs."""
    others = f"{_exists('> %(after)s', kinds)} OR {_exists('< %(after)s', kinds)}"
    jobs = _first_jobs("%(after)s", "%(each)s", kinds, limited, "WHERE NOT o.others")
    return (
        f"SELECT j.*, o.others FROM (SELECT {others} AS others) o LEFT JOIN LATERAL ({jobs}) j ON true "
        "ORDER BY j.place, j.seq"
    )


def _of_tenants(kinds: bool, limited: bool) -> str:
    """The jobs of several tenants, in the order of `Slice`; a row without a job for a tenant whose jobs are all locked."""
    until = 'AND tenant COLLATE "C" <= %(until)s'
    limit = "coalesce((%(limits)s::json ->> r.tenant)::int, %(each)s)"
    jobs = _first_jobs("r.tenant", limit, kinds, limited)
    return (
        f"WITH RECURSIVE later(tenant, n) AS (SELECT {_next('%(after)s', '', kinds)}, 1 UNION ALL "
        f"SELECT {_next('l.tenant', '', kinds)}, l.n + 1 FROM later l WHERE l.tenant IS NOT NULL AND l.n < %(tenants)s), "
        f"earlier(tenant, n) AS (SELECT {_next('%(again)s', until, kinds)}, 1 UNION ALL "
        f"SELECT {_next('e.tenant', until, kinds)}, e.n + 1 FROM earlier e "
        "WHERE e.tenant IS NOT NULL AND e.n < %(tenants)s), "
        "ring AS (SELECT tenant, n FROM later WHERE tenant IS NOT NULL UNION ALL "
        "SELECT tenant, %(tenants)s + n FROM earlier WHERE tenant IS NOT NULL LIMIT %(tenants)s) "
        f"SELECT j.*, r.tenant FROM ring r LEFT JOIN LATERAL ({jobs}) j ON true "
        "ORDER BY r.n, j.place, j.seq"
    )


# By whether there are several kinds, and whether some have a limit on concurrent jobs.
_CASES = [(several, limited) for several in (False, True) for limited in (False, True)]
_OF_ONE_TENANT = {case: _of_one_tenant(*case) for case in _CASES}
_OF_TENANTS = {case: _of_tenants(*case) for case in _CASES}
# Claims and releases of kinds with such a limit happen one after the other, in all processes.
_LOCK_KINDS = (
    "SELECT pg_advisory_xact_lock(hashtextextended(current_schema() || ' concurrency ' || kind, 0)) "
    "FROM unnest(%s::text[]) AS k(kind)"
)
_BLOCK = "UPDATE jobs SET ready = false, blocked = true WHERE id = ANY(%s)"
_UNBLOCK = (
    "UPDATE jobs SET ready = true, blocked = NULL WHERE id IN (SELECT f.id FROM unnest(%s::text[], %s::bigint[]) "
    "AS n(key, number) CROSS JOIN LATERAL (SELECT id FROM jobs WHERE blocked AND concurrency_key = n.key "
    f"ORDER BY {_ORDER.format('')}, seq LIMIT n.number FOR NO KEY UPDATE SKIP LOCKED) f)"
)
_UNBLOCK_STRANDED = (
    "UPDATE jobs SET ready = true, blocked = NULL WHERE id IN (SELECT f.id FROM (SELECT DISTINCT concurrency_key AS key "
    "FROM jobs WHERE blocked) n CROSS JOIN LATERAL (SELECT id FROM jobs WHERE blocked AND concurrency_key = n.key "
    f"ORDER BY {_ORDER.format('')}, seq LIMIT {STRANDED} FOR NO KEY UPDATE SKIP LOCKED) f WHERE NOT EXISTS (SELECT 1 "
    "FROM jobs h WHERE h.concurrency_key = n.key AND h.lease_until IS NOT NULL)) RETURNING queue, kind"
)
# Of an existing row only the columns that can change; the sender's part is written once.
_UPLOADS = (
    f"INSERT INTO uploads ({upload_rows.COLUMNS}) SELECT {upload_rows.COLUMNS} "
    "FROM json_to_recordset(%s::json) AS n(id text, tenant text, status text, replica text, bytes bigint, reserved bigint, "
    "updated_at float8, expires_at float8, record text, submission text) ON CONFLICT (id) DO UPDATE SET "
    + ", ".join(f"{name} = excluded.{name}" for name in upload_rows.CHANGED)
)
_USES = (
    "INSERT INTO upload_uses (upload_id, job_id, tenant) SELECT upload_id, job_id, tenant "
    "FROM unnest(%s::text[], %s::text[], %s::text[]) AS n(upload_id, job_id, tenant) ON CONFLICT DO NOTHING"
)
_END_OF_USES = (
    "DELETE FROM upload_uses u USING unnest(%s::text[], %s::text[]) AS n(upload_id, job_id) "
    "WHERE u.upload_id = n.upload_id AND u.job_id = n.job_id"
)
_END_OF_EVENTS = (
    "DELETE FROM events e USING unnest(%s::text[], %s::text[]) AS n(tenant, job_id) "
    "WHERE e.tenant = n.tenant AND e.job_id = n.job_id AND e.type <> 'deleted'"
)
_PUT_LOG = (
    "INSERT INTO log_state (name, text) SELECT name, text FROM json_to_recordset(%s::json) AS n(name text, text text) "
    "ON CONFLICT (name) DO UPDATE SET text = excluded.text"
)
_PUT_DURATIONS = (
    "INSERT INTO durations (tenant, kind, sketch) SELECT '-', name, text "
    "FROM json_to_recordset(%s::json) AS n(name text, text text) "
    "ON CONFLICT (tenant, kind) DO UPDATE SET sketch = excluded.sketch"
)
_PUT_WORKERS = (
    "INSERT INTO workers (name, tenant, state, seen_at) SELECT name, '-', text, %s "
    "FROM json_to_recordset(%s::json) AS n(name text, text text) "
    "ON CONFLICT (name) DO UPDATE SET state = excluded.state, seen_at = excluded.seen_at"
)
_LOCK_RECORD = "SELECT pg_advisory_xact_lock(hashtextextended(current_schema() || %s, 0))"
# Reads the partial index of held jobs.
_RUNNING = (
    "SELECT tenant, kind, count(*) FROM jobs WHERE lease_until IS NOT NULL AND finished_at IS NULL AND tenant = ANY(%s) "
    "AND id <> ALL(%s) GROUP BY tenant, kind"
)
_LOCK_RECORDS = (
    "SELECT pg_advisory_xact_lock(hashtextextended(current_schema() || name, 0)) "
    "FROM unnest(%s::text[]) AS n(name)"
)
_RECORDS = (
    "SELECT r.tenant, r.collection, r.name, r.text FROM records r JOIN unnest(%s::text[], %s::text[], %s::text[]) "
    "AS n(tenant, collection, name) ON r.tenant = n.tenant AND r.collection = n.collection AND r.name = n.name"
)
_RECORD = "SELECT text FROM records WHERE tenant = %s AND collection = %s AND name = %s"
_PUT_RECORDS = (
    "INSERT INTO records (tenant, collection, name, text) SELECT tenant, collection, name, text "
    "FROM json_to_recordset(%s::json) AS n(tenant text, collection text, name text, text text) "
    "ON CONFLICT (tenant, collection, name) DO UPDATE SET text = excluded.text"
)
_END_OF_RECORDS = (
    "DELETE FROM records r USING json_to_recordset(%s::json) AS n(tenant text, collection text, name text) "
    "WHERE r.tenant = n.tenant AND r.collection = n.collection AND r.name = n.name"
)
_PAUSE = (
    "INSERT INTO queues (tenant, name, paused) SELECT '-', name, paused "
    "FROM unnest(%s::text[], %s::boolean[]) AS n(name, paused) "
    "ON CONFLICT (tenant, name) DO UPDATE SET paused = excluded.paused"
)
_TOMBSTONES = (
    "INSERT INTO tombstones (id, tenant, at) SELECT id, tenant, %s "
    "FROM unnest(%s::text[], %s::text[]) AS n(id, tenant) ON CONFLICT (id) DO UPDATE SET at = excluded.at"
)
_UPLOAD = f"SELECT {upload_rows.READ} FROM uploads WHERE id = %s FOR NO KEY UPDATE"
_USER = (
    "SELECT u.job_id FROM upload_uses u LEFT JOIN jobs j ON j.id = u.job_id WHERE u.upload_id = %s "
    "AND (%s::float8 IS NULL OR j.finished_at IS NULL OR j.finished_at > %s) LIMIT 1"
)
# --- upkeep
_WAKE = (
    "WITH found AS (SELECT id FROM jobs WHERE NOT ready AND blocked IS NULL AND due <= %s ORDER BY due LIMIT %s "
    "FOR NO KEY UPDATE SKIP LOCKED) "
    "UPDATE jobs j SET ready = true FROM found f WHERE j.id = f.id RETURNING j.queue, j.kind"
)
_NEXT_DUE = "SELECT min(due) FROM jobs WHERE NOT ready AND blocked IS NULL AND due IS NOT NULL"
# A child job stays after its retention while its parent may need its result, in a later run too.
_EXPIRED = (
    f"SELECT {COLUMNS} FROM jobs WHERE expires_at <= %s AND NOT EXISTS (SELECT 1 FROM jobs p "
    "WHERE p.id = jobs.parent AND p.status <> 'DONE') LIMIT %s FOR NO KEY UPDATE SKIP LOCKED"
)
_OLD_TOMBSTONES = (
    "DELETE FROM tombstones WHERE ctid = ANY(ARRAY(SELECT ctid FROM tombstones WHERE at <= %s LIMIT %s))"
)
# The condition on the type is that of the partial index.
_OLD_EVENTS = (
    "WITH old AS (DELETE FROM events WHERE ctid = ANY(ARRAY(SELECT ctid FROM events "
    "WHERE type IN ('deleted', 'queue') AND at <= %s ORDER BY at LIMIT %s)) RETURNING id) "
    "UPDATE log_state SET text = (SELECT greatest(max(id), text::bigint)::text FROM old) "
    "WHERE name = 'floor' AND EXISTS (SELECT 1 FROM old)"
)
# Removes the keys of jobs that ended long enough ago. `at` is the time from which a key is checked again.
_OLD_KEYS = (
    "WITH old AS (SELECT k.ctid AS place, j.id, j.finished_at FROM (SELECT ctid, job_id FROM keys WHERE at <= %s "
    "ORDER BY at LIMIT %s FOR UPDATE SKIP LOCKED) k LEFT JOIN jobs j ON j.id = k.job_id), "
    "kept AS (UPDATE keys SET at = coalesce(old.finished_at, %s) FROM old WHERE keys.ctid = old.place "
    "AND old.id IS NOT NULL AND (old.finished_at IS NULL OR old.finished_at > %s)) "
    "DELETE FROM keys USING old WHERE keys.ctid = old.place AND (old.id IS NULL OR old.finished_at <= %s)"
)
_CHECK = (
    "INSERT INTO write_check (id, at) VALUES (1, %s) ON CONFLICT (id) DO UPDATE SET at = excluded.at"
)
# The names of the columns in these parameters.
_INPUT = ("job_id", "tenant", "input", "files")
_KEY = ("tenant", "kind", "key", "fingerprint", "job_id", "at")
_STEP = ("job_id", "name", "tenant", "result", "at")
_TERM = TermRow.__struct_fields__
_ROLLUP = RollupRow.__struct_fields__
_TEXT = ("name", "text")
_RECORD_FIELDS = ("tenant", "collection", "name", "text")
_EVENT = ("tenant", "job_id", "type", "at", "job")


class PostgresTransaction(Transaction):
    """`Transaction` on the writer's connection. The first statement begins it."""

    __slots__ = (
        *(
            "_added",
            "_begun",
            "_cache",
            "_changed",
            "_connection",
            "_held_elsewhere",
            "_known",
            "_locked",
            "_records",
        ),
        *("_locked_kinds", "_used", "_writes", "commit_sent", "trusted", "uncertain"),
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
        self._locked_kinds: set[str] = set()
        self._changed: set[str] = set()  # jobs with a new version, and removed jobs
        self._held_elsewhere: set[str] = set()  # changed jobs that other processes hold
        self._used: dict[Key, tuple[bytes, str] | None] = {}  # idempotency keys as read
        self._records: dict[RecordKey, str | None] = {}  # as read, and locked
        self._writes: list[Statement] = []  # deferred until the commit
        self._added: list[RollupRow] = []
        self.trusted: dict[str, Job] = {}  # jobs from the cache, verified by the commit

    def execute(
        self, sql: str, values: Sequence[Any] | Mapping[str, Any] = ()
    ) -> psycopg.Cursor[tuple[Any, ...]]:
        """Execute immediately."""
        if not self._begun:
            self._begun = True
            cursor = psycopg.ClientCursor(self._connection)
            cursor.execute(f"BEGIN;\n{sql}".encode(), values)
            cursor.nextset()
            return cursor
        return self._connection.execute(sql.encode(), values)

    def defer(self, sql: str, *values: Any) -> None:
        """Execute with the commit, in the order of the calls."""
        self._writes.append((sql, values))

    # --- reads

    def prefetch(
        self, job_ids: Iterable[str], keys: Iterable[Key], records: Iterable[RecordKey] = ()
    ) -> None:
        """Read the jobs, keys and records that the operations need, with one statement each."""
        names = sorted(set(records))
        if names:
            # In one order, so that two processes never wait for each other.
            locks = [" ".join(name) for name in names]
            self.execute(_LOCK_RECORDS, (locks,))
            rows = self.execute(_RECORDS, tuple(map(list, zip(*names, strict=True))))
            self._records.update(dict.fromkeys(names))
            self._records.update(((tenant, table, name), text) for tenant, table, name, text in rows)
        wanted = sorted({i for i in job_ids if i not in self._cache.held})
        if wanted:
            found = {row[0]: job_of(row) for row in self.execute(_LOCKED, (wanted,))}
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
        row = self.execute(_LOCKED, ([job_id],)).fetchone()
        job = self._known[job_id] = None if row is None else job_of(row)
        return job

    def existing(self, job_id: str) -> Job | None:
        return self.read_job(job_id) if self.uncertain else None

    def running_counts(self, tenants: Sequence[str]) -> Counter[tuple[str, str]]:
        # The locks stand for the jobs that other processes would claim.
        locks = [f"{tenant} limits running" for tenant in sorted(tenants)]
        self.execute(_LOCK_RECORDS, (locks,))
        counts = super().running_counts(tenants)
        changed = list(self._jobs)
        for tenant, kind, count in self.execute(_RUNNING, (list(tenants), changed)):
            counts[tenant, kind] += count
        return counts

    def last_output(self, job: Job) -> dict[str, Any] | None:
        row = self.execute(_LAST_OUTPUT, (job.tenant, job.id)).fetchone()
        return None if row is None else msgspec.json.decode(row[0])

    def candidates(self, request: ClaimRequest, slice_: Slice) -> list[Due]:
        if any(job is not None and ready(job, self.now) for job in map(self.job, self._stored)):
            self.flush_changes()
        if request.concurrency:
            self._lock_kinds(request.concurrency)
            self.flush_changes()
        kinds = list(request.kinds)
        case = (len(kinds) > 1, bool(request.concurrency))
        values: dict[str, Any] = {
            "queue": request.queue,
            "kind": kinds[0],
            "kinds": kinds,
            "changed": [*self._stored, *self._removed],  # not written yet, and not claimable any more
            "after": slice_.after,
            "each": slice_.each,
        }
        if slice_.alone:
            rows = self.execute(_OF_ONE_TENANT[case], values).fetchall()
            if not rows[0][-1]:
                return self._dues(rows, slice_)
        found: list[Due] = []
        values |= {"again": "", "until": slice_.after, "tenants": slice_.tenants}
        values["limits"] = encode(slice_.other_limits).decode()
        while values["tenants"] > 0:
            rows = self.execute(_OF_TENANTS[case], values).fetchall()
            found += self._dues(rows, slice_)
            ring = {row[-1]: row[0] is not None for row in rows}
            if len(ring) < values["tenants"]:
                break
            # Continue instead of those tenants whose jobs other processes have locked.
            values["tenants"] = len(ring) - sum(ring.values())
            last = list(ring)[-1]
            values["after"], values["again"] = (
                (last, "") if last > slice_.after and not values["again"] else (_LAST_NAME, last)
            )
        return found

    def _dues(self, rows: Iterable[tuple[Any, ...]], slice_: Slice) -> list[Due]:
        found: list[Due] = []
        counts: Counter[str] = Counter()
        for row in rows:
            if row[0] is None:
                continue
            job = self._known[row[0]] = job_of(row)
            counts[job.tenant] += 1
            if counts[job.tenant] <= slice_.limit(job.tenant):  # several kinds may have more
                input_, files, running = row[len(FIELDS) : len(FIELDS) + 3]
                found.append(Due(job, input_.encode(), files_of(files), running))
        return found

    def _lock_kinds(self, kinds: Iterable[str]) -> None:
        """Lock kinds with a limit on concurrent jobs, all at once and in order, so that no deadlock is possible."""
        missing = sorted(set(kinds) - self._locked_kinds)
        if missing:
            self._locked_kinds.update(missing)
            self.execute(_LOCK_KINDS, (missing,))

    def read_upload(self, upload_id: str) -> Upload | None:
        row = self.execute(_UPLOAD, (upload_id,)).fetchone()
        return None if row is None else upload_rows.upload_of(row)

    def read_key(self, key: Key) -> tuple[bytes, str] | None:
        if key not in self._used:
            self.prefetch((), [key])
        return self._used[key]

    def read_steps(self, job_id: str, limit: int) -> dict[str, msgspec.Raw]:
        rows = self.execute(_SMALL_STEPS, (job_id, limit)).fetchall()
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

    def read_text(self, table: TextTable, name: str, tenant: str = "-") -> str | None:
        if table == "tombstones":
            found = self.execute("SELECT tenant FROM tombstones WHERE id = %s", (name,)).fetchone()
            return None if found is None else found[0]
        if (tenant, table, name) in self._records:
            return self._records[tenant, table, name]  # type: ignore[index]
        # A row that does not exist cannot be locked, so an advisory lock stands for each row.
        self.execute(_LOCK_RECORD, (f"{tenant} {table} {name}",))
        row = self.execute(_RECORD, (tenant, table, name)).fetchone()
        return None if row is None else row[0]

    def read_uses(self, *, upload: str = "", job: str = "", ended: float | None = None) -> list[str]:
        if job:
            rows = self.execute("SELECT upload_id FROM upload_uses WHERE job_id = %s", (job,))
        else:
            rows = self.execute(_USER, (upload, ended, ended))
        return [found for (found,) in rows]

    # --- upkeep

    def wake(self) -> tuple[set[tuple[str, str]], float | None]:
        woken = self.execute(_WAKE, (self.now, BATCH)).fetchall()
        row = self.execute(_NEXT_DUE).fetchone()
        return {(queue, kind) for queue, kind in woken}, None if row is None else row[0]

    def unblock_stranded(self) -> set[tuple[str, str]]:
        return {(queue, kind) for queue, kind in self.execute(_UNBLOCK_STRANDED).fetchall()}

    def expire(self, tombstones: float, keys: float, limit: int) -> list[Job]:
        self.execute(_OLD_TOMBSTONES, (tombstones, max(limit, BATCH)))
        self.execute(_OLD_EVENTS, (tombstones, max(limit, BATCH)))
        self.execute(_OLD_KEYS, (keys, max(limit, BATCH), self.now, keys, keys))
        self._used.clear()  # some of them may have been removed
        expired = [job_of(row) for row in self.execute(_EXPIRED, (self.now, limit))]
        self._known.update((job.id, job) for job in expired)
        return expired

    def merge_rollups(self) -> bool:
        return rollups.merge(lambda sql, values: self.execute(sql.replace("?", "%s"), values), self.now)

    def index_old(self, limit: int) -> bool:
        # Of several services, one does it.
        row = self.execute("SELECT after, last FROM search_backfill FOR UPDATE SKIP LOCKED").fetchone()
        if row is None:
            return False
        jobs = [job_of(found) for found in self.execute(_OLD, (*row, limit))]
        terms = [astuple(term) for job in jobs for term in (*label_terms(job), *step_terms(job))]
        if terms:
            self.execute(_TERMS, (_json(_TERM, terms),))
        if len(jobs) < limit:
            self.execute("DELETE FROM search_backfill")
            return False
        self.execute("UPDATE search_backfill SET after = %s", (jobs[-1].id,))
        return True

    # --- writes

    def change(self, before: Job, after: Job) -> None:
        if after.version != before.version:
            self._changed.add(after.id)
        if before.held and before.owner not in self._cache.owners:
            self._held_elsewhere.add(after.id)
        super().change(before, after)

    def remove(self, job: Job, *, keep_events: bool = False) -> None:
        self._changed.add(job.id)
        super().remove(job, keep_events=keep_events)

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
        if changes.removed_events:
            yield _END_OF_EVENTS, [list(column) for column in zip(*changes.removed_events, strict=True)]
        if changes.new:
            jobs = [
                _row(new.job)
                | {
                    "ready": ready(new.job, now),
                    "tags": [tag(*label) for label in new.job.labels.items()] or None,
                }
                for new in changes.new
            ]
            yield _INSERT, (encode(jobs).decode(),)
            inputs = [(n.job.id, n.job.tenant, n.input.decode(), text_of(n.files)) for n in changes.new]
            yield _INSERT_INPUT, (_json(_INPUT, inputs),)
        terms = changed_terms(changes)
        if terms:
            yield _TERMS, (_json(_TERM, [astuple(term) for term in terms]),)
        if changes.uploads or changes.removed_uploads or changes.uses or changes.removed_uses:
            yield from self._upload_statements(changes)
        if changes.keys:
            yield from self._key_statements(changes.keys)
            self._used.update((k.key, (k.fingerprint, k.job_id)) for k in changes.keys)
        if changes.changed:
            changed = [self._changed_row(before, after) for before, after in changes.changed]
            yield _UPDATE, (encode(changed).decode(), len(changed))
            self._locked.update(before.id for before, _ in changes.changed)
        yield from (
            ("UPDATE inputs SET files = %s WHERE job_id = %s", (text_of(files), job_id))
            for job_id, files in changes.files
        )
        if changes.steps:
            steps = [
                (s.job_id, encode(s.name).decode(), s.tenant, bytes(s.result).decode(), now)
                for s in changes.steps
            ]
            yield _STEPS, (_json(_STEP, steps),)
        if changes.blocked or changes.unblocked:
            yield from self._blocking_statements(changes)
        if changes.paused:
            yield _PAUSE, [list(column) for column in zip(*changes.paused, strict=True)]
        if changes.texts:
            yield from self._texts_of(changes)
        self._added += changes.rollups
        if changes.check:
            # The check must fail whenever lease renewals fail, because then no lease counts as lost. So it takes the lock
            # on the jobs table that every write takes.
            yield "LOCK TABLE jobs IN ROW EXCLUSIVE MODE", ()
            yield _CHECK, (now,)

    def _blocking_statements(self, changes: RowChanges) -> Iterator[Statement]:
        if changes.blocked:
            yield _BLOCK, (list(changes.blocked),)
        if changes.unblocked:
            kinds = sorted({key.partition(" ")[0] for key, _ in changes.unblocked} - self._locked_kinds)
            if kinds:
                self._locked_kinds.update(kinds)
                yield _LOCK_KINDS, (kinds,)
            yield _UNBLOCK, [list(column) for column in zip(*changes.unblocked, strict=True)]

    def _upload_statements(self, changes: RowChanges) -> Iterator[Statement]:
        if changes.uploads:
            rows = [upload_rows.values_of(upload) for upload in changes.uploads]
            yield _UPLOADS, (_json(upload_rows.FIELDS, rows),)
        if changes.removed_uploads:
            ids = [upload_id for upload_id, _ in changes.removed_uploads]
            yield "DELETE FROM uploads WHERE id = ANY(%s)", (ids,)
            yield _TOMBSTONES, (self.now, ids, [tenant for _, tenant in changes.removed_uploads])
        if changes.uses:
            yield _USES, [list(column) for column in zip(*changes.uses, strict=True)]
        if changes.removed_uses:
            yield _END_OF_USES, [list(column) for column in zip(*changes.removed_uses, strict=True)]

    def _key_statements(self, keys: Sequence[KeyRow]) -> Iterator[Statement]:
        new = [_key_row(row, self.now) for row in keys if row.replaces is None]
        if new:
            yield _KEYS, (_json(_KEY, new), len(new))
        replaced = [(*_key_row(row, self.now), row.replaces) for row in keys if row.replaces is not None]
        if replaced:
            yield _REPLACED_KEYS, (_json((*_KEY, "replaces"), replaced), len(replaced))

    def _deletions(self, removed: Sequence[Job]) -> Iterator[Statement]:
        ids, tenants = [job.id for job in removed], [job.tenant for job in removed]
        yield _END_OF_KEYS, (self.now, ids)
        yield "DELETE FROM keys WHERE job_id = ANY(%s) AND starts_with(key, %s)", (ids, BY_CONTENT)
        yield "DELETE FROM jobs WHERE id = ANY(%s)", (ids,)
        for table in ("inputs", "steps", "upload_uses"):
            yield f"DELETE FROM {table} WHERE job_id = ANY(%s)", (ids,)
        yield _TOMBSTONES, (self.now, ids, tenants)

    def _texts_of(self, changes: RowChanges) -> Iterator[Statement]:
        durations = [(row.name, row.text) for row in changes.texts if row.table == "durations"]
        if durations:
            yield _PUT_DURATIONS, (_json(_TEXT, durations),)
        log_state = [(row.name, row.text) for row in changes.texts if row.table == "log"]
        if log_state:
            yield _PUT_LOG, (_json(_TEXT, log_state),)
        workers = [(row.name, row.text) for row in changes.texts if row.table == "workers"]
        if workers:
            live = [(name, state) for name, state in workers if state is not None]
            yield _PUT_WORKERS, (self.now, _json(_TEXT, live))
            ended = [name for name, state in workers if state is None]
            yield (
                "DELETE FROM workers WHERE name = ANY(%s) OR seen_at < %s",
                (ended, self.now - DEAD_WORKER),
            )

        # Sorted, so that two processes lock rows in the same order.
        records = sorted(
            (
                (row.tenant, row.table, row.name, row.text)
                for row in changes.texts
                if row.table in RECORDS
            ),
            key=lambda row: row[:3],
        )
        for row in changes.texts:
            if (row.tenant, row.table, row.name) in self._records:
                self._records[row.tenant, row.table, row.name] = row.text  # type: ignore[index]
        put = [row for row in records if row[3] is not None]
        if put:
            yield _PUT_RECORDS, (_json(_RECORD_FIELDS, put),)
        deleted = [row[:3] for row in records if row[3] is None]
        if deleted:
            yield _END_OF_RECORDS, (_json(_RECORD_FIELDS[:3], deleted),)

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
            expected = [{"id": job.id, **_before(job)} for job in unwritten]
            self.defer(_VERIFY, len(expected), encode(expected).decode())
        self._notify_others(channel, origin)
        if not (self._begun or self._writes or self.events or self._added):
            return
        statements = list(self._writes)
        if not self._begun:
            statements.insert(0, ("BEGIN", ()))
        if self.events:
            events = [(e.tenant, e.job_id, e.type, e.at, encode(e.job).decode()) for e in self.events]
            statements.append((_LOCK_LOG, ()))
        if self._added:
            # Behind that lock, so that two processes never wait for each other's counts.
            rows = [astuple(row) for row in self._added]
            statements.append((_ADD_ROLLUPS, (_json(_ROLLUP, rows),)))
        if self.events:
            statements.append((_EVENTS, (origin, _json(_EVENT, events), channel, f"e {origin}")))
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
