"""The PostgreSQL server: its URL, connections, schema migrations, and the meaning of its errors.

1. A password is never shown: `shown` is the URL without it.
2. All tables are in one schema, `bide` unless the URL has `?schema=…`.
3. Query plans do not depend on statistics: every statement uses an index, so a table that has just grown is never scanned.
4. Every wait has a limit: for a lock, for a client that stops in the middle of a transaction, and for a lost peer.
5. Text is UTF-8 at both ends. A database with another encoding is rejected, because it could store a job that it cannot
   return.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Iterable
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

import psycopg
from psycopg.conninfo import conninfo_to_dict

from bide.core.errors import SetupError
from bide.server.config import without_password
from bide.server.store import migrations

DEFAULT_SCHEMA = "bide"
LOCK_TIMEOUT, ATTEMPTS = 1.0, 60  # seconds that a migration waits for a lock, and how often
# The first halves of advisory lock keys; the second half is a hash of the schema's name.
MIGRATING, NUMBERING, BUILDING = 0x62696401, 0x62696402, 0x62696403
BUILD_PAUSE = 0.2  # seconds between two checks whether another process has built the indexes
_INVALID = (
    "SELECT quote_ident(c.relname) FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid "
    "WHERE NOT i.indisvalid AND c.relnamespace = current_schema()::regnamespace"
)
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,40}")
_CLIENT: dict[str, Any] = {
    "connect_timeout": 5,
    "application_name": "bide",
    "keepalives_idle": 10,
    "keepalives_interval": 3,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
}
_SESSION = {
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "jit": "off",
    "timezone": "UTC",
    "client_min_messages": "warning",
    "statement_timeout": "15s",
    "lock_timeout": "5s",
    "idle_in_transaction_session_timeout": "4s",
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "3",
    "tcp_keepalives_count": "3",
}
# A successful commit is on disk, regardless of the database's default. A stricter setting stays.
_DURABLE = "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"


_UNSAFE = "SELECT name, setting FROM pg_settings WHERE name IN ('fsync', 'full_page_writes') AND setting = 'off'"
_CLOCK = "SELECT extract(epoch FROM clock_timestamp())::float8"
_JOBS = "SELECT reltuples FROM pg_class WHERE oid = 'jobs'::regclass"
_NEW_EPOCH = "UPDATE log_state SET text = %s WHERE name = 'epoch'"
_LIVE_WORKERS = "SELECT state FROM workers WHERE seen_at > extract(epoch FROM clock_timestamp())::float8 - %s ORDER BY name"


class PostgresServer:
    """One database and the schema in it. Also its `StoreDatabase`."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("postgresql", "postgres"):
            raise SetupError(
                f"unknown store {parts.scheme or url!r}: write postgresql://user@host:5432/database"
            )
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        self.schema = query.pop("schema", DEFAULT_SCHEMA)
        if not _SCHEMA.fullmatch(self.schema):
            raise SetupError(
                f"schema={self.schema} is not allowed: use lower-case letters, digits and '_', at most 41 characters"
            )
        self.shown = _shown(url)
        try:
            given = conninfo_to_dict(urlunsplit(parts._replace(query=_query(query.items()))))
        except psycopg.ProgrammingError as error:
            raise SetupError(f"{self.shown} is not a valid database URL: {error}") from None
        options = [f"-c search_path={self.schema}", *(f"-c {k}={v}" for k, v in _SESSION.items())]
        if "options" in given:  # options in the URL take precedence, so they come last
            options.append(str(given.pop("options")))
        self._arguments: dict[str, Any] = {
            **_CLIENT,
            **given,
            "options": " ".join(options),
            "client_encoding": "UTF8",  # takes precedence over the URL and PGCLIENTENCODING
        }
        self.channel = f"bide_{self.schema}"

    def connect(self) -> psycopg.Connection[tuple[Any, ...]]:
        """A blocking connection, for a thread."""
        connection = psycopg.connect(autocommit=True, prepare_threshold=0, **self._arguments)
        try:
            connection.execute(_DURABLE)
        except BaseException:
            connection.close()
            raise
        return connection

    async def connect_async(self) -> psycopg.AsyncConnection[tuple[Any, ...]]:
        return await psycopg.AsyncConnection.connect(
            autocommit=True, prepare_threshold=0, **self._arguments
        )

    # --- without a store

    def migrate(self) -> list[int]:
        return prepare(self)

    def begin_epoch(self) -> str:
        epoch = secrets.token_hex(4)
        try:
            with self.connect() as connection, connection.transaction():
                connection.execute(_NEW_EPOCH, (epoch,))
                connection.execute("SELECT pg_notify(%s, 'n -')", (self.channel,))
        except psycopg.Error as error:
            raise SetupError(f"{self.shown} cannot be used: {explain(error) or error}") from error
        return epoch

    def describe(self) -> str:
        try:
            with self.connect() as connection:
                check_encoding(connection, self.shown)
                at, usable = version(connection)
                pending = migrations.pending("postgres", at, usable)
                (name,) = connection.execute("SHOW server_version").fetchone() or ("?",)
                unsafe = connection.execute(_UNSAFE).fetchall()
                jobs = connection.execute(_JOBS).fetchone() if at else None
        except psycopg.Error as error:
            raise SetupError(f"{self.shown} cannot be used: {explain(error) or error}") from None
        if unsafe:
            raise SetupError(
                f"{self.shown} runs with {', '.join(f'{n} = {s}' for n, s in unsafe)}, so committed jobs can be lost in "
                "a power cut. Set it to on in postgresql.conf"
            )
        number = re.match(r"[\d.]+", str(name))
        about = f"PostgreSQL {number[0] if number else name}, schema {self.schema} at {at}"
        if jobs is not None and jobs[0] >= 0:
            about += f", about {jobs[0]:.0f} jobs"
        return about + (
            f"; {len(pending)} migrations pending; the next start applies them" if pending else ""
        )

    def clock(self) -> float:
        try:
            with self.connect() as connection:
                (now,) = connection.execute(_CLOCK).fetchone() or (0.0,)
        except psycopg.Error as error:
            raise SetupError(f"{self.shown} cannot be used: {explain(error) or error}") from None
        return float(now)

    def identity(self) -> str | None:
        try:
            with self.connect() as connection:
                row = connection.execute("SELECT id FROM store_id").fetchone()
        except psycopg.Error:
            return None
        return None if row is None else str(row[0])

    def live_workers(self, age: float) -> list[str]:
        """The states of the workers with a heartbeat within the last `age` seconds."""
        try:
            with self.connect() as connection:
                return [state for (state,) in connection.execute(_LIVE_WORKERS, (age,))]
        except psycopg.Error as error:
            raise SetupError(
                f"cannot read workers from {self.shown}: {explain(error) or error}"
            ) from None


def held_channel(channel: str) -> str:
    """The channel for changes of jobs that another process holds."""
    return f"{channel}_held"


def _query(items: Iterable[tuple[str, str]]) -> str:
    """Encode a query for libpq, which does not decode a plus as a space."""
    return urlencode(list(items), quote_via=quote)


def _shown(url: str) -> str:
    parts = urlsplit(url)
    query = [(k, v) for k, v in parse_qsl(parts.query) if k not in ("password", "sslpassword")]
    return urlunsplit(parts._replace(netloc=without_password(parts.netloc), query=_query(query)))


def check_encoding(connection: psycopg.Connection[tuple[Any, ...]], shown: str) -> None:
    """Raise SetupError unless the database's encoding is UTF-8."""
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise SetupError(
            f"{shown} cannot be used: its encoding is {encoding}, but bide needs UTF8. Create the database with "
            "`createdb --encoding=UTF8 --template=template0 --locale=C.UTF-8 NAME`; the encoding of an existing "
            "database cannot be changed"
        )


def prepare(server: PostgresServer) -> list[int]:
    """Migrate the schema and return the applied versions. Advisory locks serialise concurrent migrations."""
    try:
        with server.connect() as connection:
            check_encoding(connection, server.shown)
            settings = ("lock_timeout", "statement_timeout")
            for setting in settings:
                connection.execute("SELECT set_config(%s, '0', false)", (setting,))
            return _migrate(connection, server.schema)
    except psycopg.Error as error:
        raise SetupError(f"{server.shown} cannot be used: {explain(error) or error}") from error


def version(connection: psycopg.Connection[tuple[Any, ...]]) -> tuple[int, int]:
    """The schema's version, and the oldest version that a program must know to use it; (0, 0) without a schema."""
    row = connection.execute("SELECT to_regclass('schema_version')::text").fetchone()
    if row is None or row[0] is None:
        return 0, 0
    found = connection.execute("SELECT max(version), max(usable_from) FROM schema_version").fetchone()
    return (0, 0) if found is None or found[0] is None else (int(found[0]), int(found[1]))


def _migrate(connection: psycopg.Connection[tuple[Any, ...]], schema: str) -> list[int]:
    applied = []
    while True:
        connection.execute("SELECT pg_advisory_lock(%s, hashtext(%s))", (MIGRATING, schema))
        try:
            exists = connection.execute("SELECT to_regnamespace(%s) IS NOT NULL", (schema,)).fetchone()
            if exists is None or not exists[0]:
                connection.execute(f"CREATE SCHEMA {schema}".encode())
            pending = migrations.pending("postgres", *version(connection))
            while pending and not migrations.concurrent(pending[0][1]):
                number, sql = pending.pop(0)
                _apply(connection, number, sql)
                applied.append(number)
        finally:
            connection.execute("SELECT pg_advisory_unlock(%s, hashtext(%s))", (MIGRATING, schema))
        if not pending:
            return applied
        # Without that lock: an index is built only when all older snapshots are gone, also those of processes that wait for
        # the lock.
        if _build(connection, schema, *pending[0]):
            applied.append(pending[0][0])


def _build(connection: psycopg.Connection[tuple[Any, ...]], schema: str, number: int, sql: str) -> bool:
    """Apply a migration outside of a transaction. Return False if another process does it; its end is waited for."""
    lock = (BUILDING, schema)
    row = connection.execute("SELECT pg_try_advisory_lock(%s, hashtext(%s))", lock).fetchone()
    if row is None or not row[0]:
        time.sleep(BUILD_PAUSE)
        return False
    try:
        if version(connection)[0] >= number:
            return False
        for statement in migrations.concurrent(sql):
            for (broken,) in connection.execute(_INVALID).fetchall():  # an interrupted build leaves it
                connection.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {broken}".encode())
            connection.execute(statement.encode(), prepare=False)
        connection.execute(
            "INSERT INTO schema_version VALUES (%s, %s)", (number, migrations.usable_from(number, sql))
        )
        return True
    finally:
        connection.execute("SELECT pg_advisory_unlock(%s, hashtext(%s))", lock)


def _apply(connection: psycopg.Connection[tuple[Any, ...]], number: int, sql: str) -> None:
    """Apply one migration. It waits only briefly for each lock and retries, because all later statements queue behind a
    waiting lock.
    """
    for _ in range(ATTEMPTS):
        try:
            with connection.transaction():
                connection.execute(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT * 1000:.0f}ms'".encode())
                connection.execute(
                    "CREATE TABLE IF NOT EXISTS schema_version (version integer PRIMARY KEY, usable_from integer NOT NULL)"
                )
                connection.execute(sql.encode(), prepare=False)
                connection.execute(
                    "INSERT INTO schema_version VALUES (%s, %s)",
                    (number, migrations.usable_from(number, sql)),
                )
            return
        except psycopg.errors.LockNotAvailable as error:
            busy = error
            time.sleep(LOCK_TIMEOUT)
    raise busy


_REASONS = {
    "28": "the server rejects this user: check the user and the password in the URL, and pg_hba.conf",
    "3D": "the database does not exist: create it with `createdb`, or correct the URL",
    "53100": "the database's disk is full: free space on it. Accepted jobs are safe and continue afterwards",
    "53300": "the server has no free connection: raise max_connections, or run fewer processes",
    "25006": "the server is read-only, as a standby is: use the URL of the primary",
    "42501": "this user lacks a privilege: make it the owner of the schema",
    "55P03": "another session has held a lock for too long: find it in pg_stat_activity",
    "57014": "a statement took too long: find the cause in pg_stat_activity",
}


def explain(error: psycopg.Error) -> str | None:
    """Why the database cannot be used now, and what to do; None if neither the server nor the network is the cause."""
    code = error.sqlstate or ""
    for begin, reason in _REASONS.items():
        if code.startswith(begin):
            return reason
    if code.startswith(("08", "53", "57", "58")) or isinstance(error, psycopg.OperationalError):
        text = " ".join(str(error).split())
        return f"the database does not answer ({text}): check its log and the network"
    return None
