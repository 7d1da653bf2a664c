"""The store that a setting names, and the errors if it cannot be created."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bide.core.errors import SetupError
from bide.server.config import StoreConfig
from bide.server.store.postgres.store import PostgresStore
from bide.server.store.sqlite.store import SqliteStore
from bide.service.backends import STORES, make_database, make_shared_store, make_store
from bide.service.data_folder import DataFolder
from tests.memory_store import MemoryStore
from tests.stores import IN_MEMORY

URL = "postgresql://bide@127.0.0.1/jobs"


def test_without_an_address_it_is_the_file_in_the_data_folder(tmp_path: Path) -> None:
    store = make_store(StoreConfig(), DataFolder(tmp_path))
    assert isinstance(store, SqliteStore)
    assert store.path == tmp_path / "bide.db"


def test_an_address_is_a_database_and_nothing_is_connected_yet(tmp_path: Path) -> None:
    store = make_store(StoreConfig(url=f"{URL}?schema=mine"), DataFolder(tmp_path))
    assert isinstance(store, PostgresStore)
    assert store.server.schema == "mine"


def test_without_its_driver_it_is_said_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(SetupError, match=r"psycopg is not installed\. .*: pip install '\.\[postgres\]'"):
        make_store(StoreConfig(url=URL), DataFolder(tmp_path))


def test_a_scheme_that_no_store_has_is_refused(tmp_path: Path) -> None:
    for url in ("mysql://127.0.0.1/jobs", "jobs.db"):
        with pytest.raises(SetupError, match=r"unknown store '(mysql|jobs\.db)': write postgresql://"):
            make_store(StoreConfig(url=url), DataFolder(tmp_path))


def test_a_store_of_ones_own_needs_an_entry_with_its_scheme(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(STORES, "memory", IN_MEMORY)
    config = StoreConfig(url=f"memory:{tmp_path}")
    assert isinstance(make_store(config, DataFolder(tmp_path)), MemoryStore)
    assert make_database(config, DataFolder(tmp_path)).describe() == "in memory"
    with pytest.raises(SetupError, match="workers need a store that several processes can share"):
        make_shared_store(config)


def test_a_folder_keeps_its_replicas_name(tmp_path: Path) -> None:
    first = DataFolder(tmp_path).replica
    assert DataFolder(tmp_path).replica == first
    assert DataFolder(tmp_path).owner.startswith(f"{first}:")
    (tmp_path / "other").mkdir()
    assert DataFolder(tmp_path / "other").replica != first
