"""Upkeep operations of the PostgreSQL store, in batches. Several processes may run them concurrently: each skips rows that
another has locked.
"""

from __future__ import annotations

from typing import Any

from bide.server.store.postgres.cache import PostgresCache
from bide.server.store.postgres.transaction import PostgresTransaction
from bide.server.store.transaction import encode

BATCH = 1000  # rows that one statement changes
_WAKE = (
    "WITH found AS (SELECT id FROM jobs WHERE NOT ready AND due <= %s ORDER BY due LIMIT %s "
    "FOR NO KEY UPDATE SKIP LOCKED) "
    "UPDATE jobs j SET ready = true FROM found f WHERE j.id = f.id RETURNING j.queue, j.kind"
)
_NEXT = "SELECT min(due) FROM jobs WHERE NOT ready AND due IS NOT NULL"
# A child job stays after its retention while its parent may need its result, in a later run too.
_EXPIRED = (
    "SELECT id, tenant FROM jobs WHERE expires_at <= %s AND id <> ALL(%s) AND NOT EXISTS (SELECT 1 FROM jobs p "
    "WHERE p.id = jobs.parent AND p.status <> 'DONE') LIMIT %s FOR NO KEY UPDATE SKIP LOCKED"
)
_OLD_TOMBSTONES = (
    "DELETE FROM tombstones WHERE ctid = ANY(ARRAY(SELECT ctid FROM tombstones WHERE at <= %s LIMIT %s))"
)
# Removes the keys of jobs that ended long enough ago. `at` is the time from which a key is checked again.
_OLD_KEYS = (
    "WITH old AS (SELECT k.ctid AS place, j.id, j.finished_at FROM (SELECT ctid, job_id FROM keys WHERE at <= %s "
    "ORDER BY at LIMIT %s FOR UPDATE SKIP LOCKED) k LEFT JOIN jobs j ON j.id = k.job_id), "
    "kept AS (UPDATE keys SET at = coalesce(old.finished_at, %s) FROM old WHERE keys.ctid = old.place "
    "AND old.id IS NOT NULL AND (old.finished_at IS NULL OR old.finished_at > %s)) "
    "DELETE FROM keys USING old WHERE keys.ctid = old.place AND (old.id IS NULL OR old.finished_at <= %s)"
)
# The redundant condition `status <> 'DONE'` lets the planner use the partial index on the status.
PARKED = (
    "SELECT id, NOT EXISTS (SELECT 1 FROM json_array_elements_text(p.waiting_for::json) AS w(id) "
    "JOIN jobs c ON c.id = w.id WHERE c.finished_at IS NULL) "
    "FROM jobs p WHERE status = 'PROCESSING' AND status <> 'DONE' AND id > %s "
    "AND waiting_for IS NOT NULL AND due IS NULL ORDER BY id LIMIT %s"
)
_VOID = (
    "UPDATE jobs SET lease_until = 0 WHERE lease_until > 0 AND finished_at IS NULL "
    "AND (%s::text IS NULL OR starts_with(owner, %s))"
)


def wake(tx: PostgresTransaction) -> tuple[set[tuple[str, str]], float | None]:
    tx.flush()
    woken = tx.execute(_WAKE, (tx.now, BATCH)).fetchall()
    row = tx.execute(_NEXT).fetchone()
    return {(queue, kind) for queue, kind in woken}, None if row is None else row[0]


def purge(tx: PostgresTransaction, tombstones: float, keys: float, limit: int) -> tuple[list[str], bool]:
    tx.flush()
    rows = [(job_id, tenant) for job_id, tenant in tx.execute(_EXPIRED, (tx.now, tx.removed, limit))]
    if rows:
        tx.delete_all_rows(rows)
    tx.execute(_OLD_TOMBSTONES, (tx.now - tombstones, max(limit, BATCH)))
    ended = tx.now - keys
    tx.execute(_OLD_KEYS, (ended, max(limit, BATCH), tx.now, ended, ended))
    tx.forget_keys()
    return [job_id for job_id, _ in rows], len(rows) == limit


def void(tx: PostgresTransaction, cache: PostgresCache, owner: str | None) -> int:
    """Void leases; with `owner`, only those of owners with this prefix."""
    tx.flush()
    cache.held.clear()
    return tx.execute(_VOID, (owner, owner)).rowcount


def check_writable(tx: PostgresTransaction) -> None:
    """Fail whenever lease renewals fail, because then no lease counts as lost. So a lock on the jobs table counts, too."""
    tx.defer("LOCK TABLE jobs IN ROW EXCLUSIVE MODE")  # the lock that every write takes
    tx.defer(
        "INSERT INTO write_check (id, at) VALUES (1, %s) ON CONFLICT (id) DO UPDATE SET at = excluded.at",
        tx.now,
    )


def learn(tx: PostgresTransaction, durations: dict[str, dict[str, Any]]) -> None:
    rows = [{"kind": kind, "sketch": encode(sketch).decode()} for kind, sketch in durations.items()]
    tx.execute(
        "INSERT INTO durations (tenant, kind, sketch) SELECT '-', kind, sketch "
        "FROM json_to_recordset(%s::json) AS n(kind text, sketch text) "
        "ON CONFLICT (tenant, kind) DO UPDATE SET sketch = excluded.sketch",
        (encode(rows).decode(),),
    )
