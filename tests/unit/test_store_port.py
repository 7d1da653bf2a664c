"""How much a new backend of the store has to implement."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

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
    """A backend may do something before or after a write, but the write itself is the operation of the shared store."""
    # A write is queued when the call returns, so it is no coroutine; these three read first.
    writes = {"void", "expire_uploads", "resume_parked"}
    writes |= {name for name in operations(port.SharedStore) if not is_coroutine(port.SharedStore, name)}
    writes.discard("now")
    assert {"claim", "renew", "check_writable", "record_worker", "finish"} < writes
    for backend in (SqliteStore, PostgresStore):
        for name in writes & vars(backend).keys():
            assert f"super().{name}(" in inspect.getsource(vars(backend)[name]), (backend, name)


def test_the_shared_store_has_every_operation_of_the_port() -> None:
    for protocol, store in (
        (port.Store, TransactionalStore),
        (port.SharedStore, SharedTransactionalStore),
    ):
        names = operations(protocol)
        found = {*dir(store), "now"}  # the constructor sets `now`
        assert names <= found, names - found


def test_contributing_lists_every_operation_of_a_backend() -> None:
    page = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text()
    section = page.partition("## Add a store")[2].partition("\n## ")[0]
    tables = section.split("| operation | must guarantee |")[1:]
    for backend, table in zip((Transaction, TransactionalStore), tables, strict=True):
        rows = [line for line in table.splitlines() if line.strip().startswith("| `")]
        listed = re.findall(r"`(\w+)`", " ".join(row.split("|")[1] for row in rows))
        assert sorted(listed) == sorted(backend.__abstractmethods__)


def operations(protocol: type) -> set[str]:
    return {name for name in dir(protocol) if not name.startswith("_")}


def is_coroutine(protocol: type, name: str) -> bool:
    return inspect.iscoroutinefunction(getattr(protocol, name))
