"""The PostgreSQL store passes the suite, and what only several processes on one database can get wrong."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from bench.scale.postgres import Postgres

from bide.core.clock import Clock
from bide.server.store import Store
from bide.server.store.postgres import PostgresStore
from bide.testing.store import StoreSuite


def url_of(server: Postgres, place: Path) -> str:
    """A schema for each place."""
    return f"{server.url}?schema=t{hashlib.sha256(str(place).encode()).hexdigest()[:16]}"


class TestPostgresStore(StoreSuite):
    @pytest.fixture(autouse=True)
    def _server(self, postgres: Postgres) -> None:
        self._postgres = postgres

    def store(self, place: Path, clock: Clock) -> Store:
        return PostgresStore(url_of(self._postgres, place), clock)
