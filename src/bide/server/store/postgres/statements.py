"""The SQL statements of a transaction. Rows are one JSON parameter, so a statement does not depend on their number.

Several processes may run the upkeep's statements concurrently: each skips rows that another has locked.
"""

from __future__ import annotations

from collections.abc import Iterable

from bide.server.store import upload_rows
from bide.server.store.postgres.server import NUMBERING
from bide.server.store.rows import COLUMNS, FIELDS

_INTEGERS = {"version", "run", "priority", "attempt", "max_attempts", "failures", "losses", "fence"}
_INSTANTS = {
    *("created_at", "updated_at", "run_at", "due", "deadline", "lease_until", "started_at"),
    *("next_attempt_at", "cancel_asked_at", "finished_at", "keep", "expires_at", "lease_seconds"),
    "overdue_at",
}
# Fields that never change.
_FIXED = {"id", "kind", "created_at", "tenant", "labels", "parent", "trace_id"}


def _typed(names: Iterable[str]) -> str:
    def kind(name: str) -> str:
        return "bigint" if name in _INTEGERS else "float8" if name in _INSTANTS else "text"

    return ", ".join(f"{name} {kind(name)}" for name in names)


_CHANGED = [name for name in FIELDS if name not in _FIXED]
_OF_JOB = ", ".join(f"j.{name}" for name in FIELDS)
INSERT = (
    f"INSERT INTO jobs ({COLUMNS}, ready, tags) SELECT {COLUMNS}, ready, tags "
    f"FROM json_to_recordset(%s::json) AS n({_typed(FIELDS)}, ready boolean, tags text[])"
)
INSERT_INPUT = (
    "INSERT INTO inputs (job_id, tenant, input, files) SELECT job_id, tenant, input, files "
    "FROM json_to_recordset(%s::json) AS n(job_id text, tenant text, input text, files text)"
)
_BEFORE = "was_version bigint, was_fence bigint, was_lease float8, was_owner text"
_WAS = (
    "j.id = n.id AND j.version = n.was_version AND j.fence = n.was_fence "
    "AND j.lease_until IS NOT DISTINCT FROM n.was_lease AND j.owner IS NOT DISTINCT FROM n.was_owner"
)
UPDATE = (
    f"WITH done AS (UPDATE jobs j SET {', '.join(f'{name} = n.{name}' for name in _CHANGED)}, "
    "ready = coalesce(n.ready, j.ready) FROM json_to_recordset(%s::json) AS "
    f"n(id text, {_typed(_CHANGED)}, ready boolean, {_BEFORE}) "
    f"WHERE {_WAS} RETURNING 1) "
    "SELECT expect(count(*), %s) FROM done"
)
VERIFY = (
    "SELECT expect(count(*), %s) FROM jobs j, "
    f"json_to_recordset(%s::json) AS n(id text, {_BEFORE}) WHERE {_WAS}"
)
KEYS = (
    "WITH done AS (INSERT INTO keys (tenant, kind, key, fingerprint, job_id, at) "
    "SELECT tenant, kind, key, fingerprint, job_id, at FROM json_to_recordset(%s::json) AS "
    "n(tenant text, kind text, key text, fingerprint text, job_id text, at float8) "
    "ON CONFLICT DO NOTHING RETURNING 1) SELECT expect(count(*), %s) FROM done"
)
REPLACED_KEYS = (
    "WITH done AS (UPDATE keys k SET fingerprint = n.fingerprint, job_id = n.job_id, at = n.at "
    "FROM json_to_recordset(%s::json) AS n(tenant text, kind text, key text, fingerprint text, job_id text, at float8, "
    "replaces text) WHERE k.tenant = n.tenant AND k.kind = n.kind AND k.key = n.key AND k.job_id = n.replaces "
    "RETURNING 1) SELECT expect(count(*), %s) FROM done"
)
END_OF_KEYS = "UPDATE keys k SET at = coalesce(j.finished_at, %s) FROM jobs j WHERE j.id = k.job_id AND j.id = ANY(%s)"
STEPS = (
    "INSERT INTO steps (job_id, name, tenant, result, at) SELECT job_id, name, tenant, result, at "
    "FROM json_to_recordset(%s::json) AS n(job_id text, name text, tenant text, result text, at float8) "
    "ON CONFLICT (job_id, name) DO UPDATE SET result = excluded.result, at = excluded.at"
)
# The sizes are known without reading the values, so results that do not fit are not read.
SMALL_STEPS = (
    "SELECT name, result FROM (SELECT name, result, sum(octet_length(result)) OVER (ORDER BY name) AS total "
    "FROM steps WHERE job_id = %s) s WHERE total <= %s"
)
LOCK_LOG = f"SELECT pg_advisory_xact_lock({NUMBERING}, hashtext(current_schema()))"
EVENTS = (
    "WITH e AS (INSERT INTO events (id, tenant, job_id, type, at, job, origin) "
    "SELECT nextval('event_numbers'), tenant, job_id, type, at, job, %s FROM json_to_recordset(%s::json) AS "
    "n(tenant text, job_id text, type text, at float8, job text) RETURNING id), "
    "r AS (SELECT min(id) AS first, max(id) AS last FROM e) "
    "SELECT first, pg_notify(%s, %s::text || ' ' || first || ' ' || last) FROM r"
)
LOCKED = f"SELECT {COLUMNS} FROM jobs WHERE id = ANY(%s) ORDER BY id FOR NO KEY UPDATE"
_DUE = "ready AND queue = %s AND kind = {kind} AND id <> ALL(%s)"
_FIRST = "ORDER BY priority DESC, seq LIMIT %s FOR NO KEY UPDATE SKIP LOCKED"
_WITH_INPUT = f"SELECT {_OF_JOB}, i.input, i.files FROM ({{}}) j JOIN inputs i ON i.job_id = j.id "
_IN_ORDER = "ORDER BY j.priority DESC, j.seq LIMIT %s"
OF_ONE_KIND = (
    _WITH_INPUT.format(f"SELECT * FROM jobs WHERE {_DUE.format(kind='%s')} {_FIRST}") + _IN_ORDER
)
OF_KINDS = (
    _WITH_INPUT.format(
        "SELECT found.* FROM unnest(%s::text[]) AS k(kind) CROSS JOIN LATERAL "
        f"(SELECT * FROM jobs WHERE {_DUE.format(kind='k.kind')} {_FIRST}) found"
    )
    + _IN_ORDER
)
# Of an existing row only the columns that can change; the sender's part is written once.
UPLOADS = (
    f"INSERT INTO uploads ({upload_rows.COLUMNS}) SELECT {upload_rows.COLUMNS} "
    "FROM json_to_recordset(%s::json) AS n(id text, tenant text, status text, replica text, bytes bigint, reserved bigint, "
    "updated_at float8, expires_at float8, record text, submission text) ON CONFLICT (id) DO UPDATE SET "
    + ", ".join(f"{name} = excluded.{name}" for name in upload_rows.CHANGED)
)
USES = (
    "INSERT INTO upload_uses (upload_id, job_id, tenant) SELECT upload_id, job_id, tenant "
    "FROM unnest(%s::text[], %s::text[], %s::text[]) AS n(upload_id, job_id, tenant) ON CONFLICT DO NOTHING"
)
END_OF_USES = (
    "DELETE FROM upload_uses u USING unnest(%s::text[], %s::text[]) AS n(upload_id, job_id) "
    "WHERE u.upload_id = n.upload_id AND u.job_id = n.job_id"
)
PUT_DURATIONS = (
    "INSERT INTO durations (tenant, kind, sketch) SELECT '-', name, text "
    "FROM json_to_recordset(%s::json) AS n(name text, text text) "
    "ON CONFLICT (tenant, kind) DO UPDATE SET sketch = excluded.sketch"
)
PUT_WORKERS = (
    "INSERT INTO workers (name, tenant, state, seen_at) SELECT name, '-', text, %s "
    "FROM json_to_recordset(%s::json) AS n(name text, text text) "
    "ON CONFLICT (name) DO UPDATE SET state = excluded.state, seen_at = excluded.seen_at"
)
PAUSE = (
    "INSERT INTO queues (tenant, name, paused) SELECT '-', name, paused "
    "FROM unnest(%s::text[], %s::boolean[]) AS n(name, paused) "
    "ON CONFLICT (tenant, name) DO UPDATE SET paused = excluded.paused"
)
TOMBSTONES = (
    "INSERT INTO tombstones (id, tenant, at) SELECT id, tenant, %s "
    "FROM unnest(%s::text[], %s::text[]) AS n(id, tenant) ON CONFLICT (id) DO UPDATE SET at = excluded.at"
)
UPLOAD = f"SELECT {upload_rows.READ} FROM uploads WHERE id = %s FOR NO KEY UPDATE"
USER = (
    "SELECT u.job_id FROM upload_uses u LEFT JOIN jobs j ON j.id = u.job_id WHERE u.upload_id = %s "
    "AND (%s::float8 IS NULL OR j.finished_at IS NULL OR j.finished_at > %s) LIMIT 1"
)
# --- upkeep
WAKE = (
    "WITH found AS (SELECT id FROM jobs WHERE NOT ready AND due <= %s ORDER BY due LIMIT %s "
    "FOR NO KEY UPDATE SKIP LOCKED) "
    "UPDATE jobs j SET ready = true FROM found f WHERE j.id = f.id RETURNING j.queue, j.kind"
)
NEXT_DUE = "SELECT min(due) FROM jobs WHERE NOT ready AND due IS NOT NULL"
# A child job stays after its retention while its parent may need its result, in a later run too.
EXPIRED = (
    "SELECT id, tenant FROM jobs WHERE expires_at <= %s AND NOT EXISTS (SELECT 1 FROM jobs p "
    "WHERE p.id = jobs.parent AND p.status <> 'DONE') LIMIT %s FOR NO KEY UPDATE SKIP LOCKED"
)
OLD_TOMBSTONES = (
    "DELETE FROM tombstones WHERE ctid = ANY(ARRAY(SELECT ctid FROM tombstones WHERE at <= %s LIMIT %s))"
)
# Removes the keys of jobs that ended long enough ago. `at` is the time from which a key is checked again.
OLD_KEYS = (
    "WITH old AS (SELECT k.ctid AS place, j.id, j.finished_at FROM (SELECT ctid, job_id FROM keys WHERE at <= %s "
    "ORDER BY at LIMIT %s FOR UPDATE SKIP LOCKED) k LEFT JOIN jobs j ON j.id = k.job_id), "
    "kept AS (UPDATE keys SET at = coalesce(old.finished_at, %s) FROM old WHERE keys.ctid = old.place "
    "AND old.id IS NOT NULL AND (old.finished_at IS NULL OR old.finished_at > %s)) "
    "DELETE FROM keys USING old WHERE keys.ctid = old.place AND (old.id IS NULL OR old.finished_at <= %s)"
)
