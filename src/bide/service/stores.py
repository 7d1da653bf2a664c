"""Which store a setting names: SQLite in the data folder, or a PostgreSQL database. What each needs is imported here."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from bide.core.errors import SetupError
from bide.server.config import StoreConfig
from bide.server.store import SharedStore, Store
from bide.service.folder import DataFolder

NOT_SHARED = (
    "workers need a store that several processes can have, and SQLite is one service's own: "
    "name a database with --store postgresql://…"
)

COUNTS_AGE = 1.0  # seconds; counting 300,000 waiting jobs takes PostgreSQL 70 ms

if TYPE_CHECKING:
    from bide.server.store.postgres.server import PostgresServer


def make_store(config: StoreConfig, folder: DataFolder) -> Store:
    """Not opened yet."""
    if config.url is None:
        from bide.server.store.sqlite.store import SqliteStore

        return SqliteStore(folder.database)
    _require()
    from bide.server.store.postgres.store import PostgresStore

    return PostgresStore(config.url, connections=config.connections, counts_age=COUNTS_AGE)


def make_shared_store(config: StoreConfig) -> SharedStore:
    """For a worker, which hears of its own jobs only. Not opened yet."""
    if config.url is None:
        raise SetupError(NOT_SHARED)
    _require()
    from bide.server.store.postgres.store import PostgresStore

    return PostgresStore(config.url, connections=config.connections, held_only=True)


def make_server(url: str) -> PostgresServer:
    _require()
    from bide.server.store.postgres.server import PostgresServer

    return PostgresServer(url)


def _require() -> None:
    try:
        import psycopg  # noqa: F401 — only whether it is there
    except ImportError as error:
        what = f"{error.name} is missing" if error.name else f"psycopg cannot be used ({error})"
        raise SetupError(f"{what}: pip install 'bide[postgres]'") from None


def migrate(url: str) -> tuple[str, list[int]]:
    """Brings the schema up to date: where, and the versions that were applied."""
    server = make_server(url)
    from bide.server.store.postgres.server import prepare

    return server.shown, prepare(server)


def describe(url: str) -> str:
    """What the database is like; SetupError when it cannot be used as it is. Changes nothing."""
    server = make_server(url)
    import psycopg

    from bide.server.store import migrations
    from bide.server.store.postgres.server import check_encoding, explain, version

    try:
        with server.connect() as connection:
            check_encoding(connection, server.shown)
            at, usable = version(connection)
            pending = migrations.pending("postgres", at, usable)
            (name,) = connection.execute("SHOW server_version").fetchone() or ("?",)
            rows = connection.execute(
                "SELECT name, setting FROM pg_settings WHERE name IN ('fsync', 'full_page_writes') AND setting = 'off'"
            ).fetchall()
            jobs = (
                connection.execute(
                    "SELECT reltuples FROM pg_class WHERE oid = 'jobs'::regclass"
                ).fetchone()
                if at
                else None
            )
    except psycopg.Error as error:
        raise SetupError(f"{server.shown} cannot be used: {explain(error) or error}") from None
    if rows:
        raise SetupError(
            f"{server.shown} runs with {', '.join(f'{n} = {s}' for n, s in rows)}: what it has accepted may be "
            "gone after a power cut. Set it to on in postgresql.conf"
        )
    number = re.match(r"[\d.]+", str(name))
    about = f"PostgreSQL {number[0] if number else name}, schema {server.schema} at {at}"
    if jobs is not None and jobs[0] >= 0:
        about += f", about {jobs[0]:.0f} jobs"
    return about + (f"; {len(pending)} migrations to come with the next start" if pending else "")


def identity(url: str) -> str | None:
    """The id of the database; None when it has none yet."""
    server = make_server(url)
    import psycopg

    try:
        with server.connect() as connection:
            row = connection.execute("SELECT id FROM store_id").fetchone()
    except psycopg.Error:
        return None
    return None if row is None else str(row[0])
