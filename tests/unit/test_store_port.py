"""How much a new backend of the store has to implement."""

from __future__ import annotations

import inspect

from bide.server import store as port
from bide.server.store.postgres.store import PostgresStore
from bide.server.store.postgres.transaction import PostgresTransaction
from bide.server.store.sqlite.store import SqliteStore
from bide.server.store.sqlite.transaction import SqliteTransaction
from bide.server.store.transaction import Transaction
from bide.server.store.transactional_store import SharedTransactionalStore, TransactionalStore

MOST = 20


def test_a_backend_needs_at_most_twenty_operations() -> None:
    shared = SharedTransactionalStore.__abstractmethods__ | Transaction.__abstractmethods__
    assert TransactionalStore.__abstractmethods__ | Transaction.__abstractmethods__ == shared
    assert len(shared) <= MOST, sorted(shared)


def test_the_backends_implement_all_operations() -> None:
    for backend in (SqliteStore, SqliteTransaction, PostgresStore, PostgresTransaction):
        assert not inspect.isabstract(backend)


def test_a_write_is_implemented_once() -> None:
    """A backend may extend a write, but every write runs an operation of the shared store."""
    writes = {"insert", "apply", "spawn", "log", "delete", "pause", "wake", "purge", "learn", "void"}
    writes |= {"add_upload", "receive", "finish", "remove_upload", "expire_uploads", "resume_parked"}
    for backend in (SqliteStore, PostgresStore):
        assert not writes & vars(backend).keys()


def test_the_shared_store_has_every_operation_of_the_port() -> None:
    for protocol, store in (
        (port.Store, TransactionalStore),
        (port.SharedStore, SharedTransactionalStore),
    ):
        names = {name for name in dir(protocol) if not name.startswith("_")}
        found = {*dir(store), "now"}  # the constructor sets `now`
        assert names <= found, names - found
