"""Who runs jobs, and where there is work for them, in PostgreSQL."""

from __future__ import annotations

from bide.server.store.postgres.transaction import PostgresTransaction

LONG_AGO = 3600.0  # a row that nobody has renewed for so long is removed by whoever writes next
_ENLIST = (
    "INSERT INTO workers (name, tenant, state, seen_at) VALUES (%s, '-', %s, %s) "
    "ON CONFLICT (name) DO UPDATE SET state = excluded.state, seen_at = excluded.seen_at"
)
ROSTER = "SELECT name, state FROM workers WHERE seen_at > %s ORDER BY name"
# From one pair to the next along the index of claims, however many jobs there are of each.
_NEXT = "SELECT queue, kind FROM jobs WHERE ready {} ORDER BY queue, kind LIMIT 1"
WAITING = (
    f"WITH RECURSIVE pairs AS (({_NEXT.format('')}) UNION ALL SELECT n.queue, n.kind FROM pairs p CROSS JOIN LATERAL "
    f"({_NEXT.format('AND (queue, kind) > (p.queue, p.kind)')}) n) SELECT queue, kind FROM pairs "
    "WHERE queue NOT IN (SELECT name FROM queues WHERE paused)"
)


def enlist(tx: PostgresTransaction, name: str, state: str) -> None:
    tx.later(_ENLIST, name, state, tx.now)
    tx.later("DELETE FROM workers WHERE seen_at < %s", tx.now - LONG_AGO)


def dismiss(tx: PostgresTransaction, name: str) -> None:
    tx.later("DELETE FROM workers WHERE name = %s", name)
