"""Workers' heartbeats, and the queues with waiting jobs, in PostgreSQL."""

from __future__ import annotations

from bide.server.store.postgres.transaction import PostgresTransaction

MAX_AGE = 3600.0  # seconds after which the next heartbeat of any worker removes a dead worker's row
_RECORD = (
    "INSERT INTO workers (name, tenant, state, seen_at) VALUES (%s, '-', %s, %s) "
    "ON CONFLICT (name) DO UPDATE SET state = excluded.state, seen_at = excluded.seen_at"
)
LIVE = "SELECT name, state FROM workers WHERE seen_at > %s ORDER BY name"
# Jumps from one (queue, kind) pair to the next along the index of claims, so the number of jobs does not matter.
_NEXT = "SELECT queue, kind FROM jobs WHERE ready {} ORDER BY queue, kind LIMIT 1"
WAITING = (
    f"WITH RECURSIVE pairs AS (({_NEXT.format('')}) UNION ALL SELECT n.queue, n.kind FROM pairs p CROSS JOIN LATERAL "
    f"({_NEXT.format('AND (queue, kind) > (p.queue, p.kind)')}) n) SELECT queue, kind FROM pairs "
    "WHERE queue NOT IN (SELECT name FROM queues WHERE paused)"
)


def record_worker(tx: PostgresTransaction, name: str, state: str) -> None:
    tx.defer(_RECORD, name, state, tx.now)
    tx.defer("DELETE FROM workers WHERE seen_at < %s", tx.now - MAX_AGE)


def remove_worker(tx: PostgresTransaction, name: str) -> None:
    tx.defer("DELETE FROM workers WHERE name = %s", name)
