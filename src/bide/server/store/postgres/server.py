"""The PostgreSQL server: its address, how it is connected to, how its schema is brought up, what its errors mean.

1. A password is never shown: `shown` is the address without it.
2. Everything of bide is in one schema, `bide` unless the address says `?schema=…`.
3. Plans are the same whatever the statistics say: every statement goes by an index, so that a table that has just grown
   is not read whole.
4. No session waits for ever: neither for a lock, nor for a client that stopped in the middle of a transaction, nor for
   a peer that has vanished.
5. Text is UTF-8 at both ends. A database with another encoding is refused: it could store a job that it cannot return.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

import psycopg
from psycopg.conninfo import conninfo_to_dict

from bide.core.errors import SetupError
from bide.server.store import migrations

DEFAULT_SCHEMA = "bide"
PATIENCE, ATTEMPTS = 1.0, 60  # seconds that a migration waits for a lock, and how often
MIGRATING, NUMBERING = (
    0x62696401,
    0x62696402,
)  # the first halves of our advisory locks; the second is the schema's
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
# A commit that is told is on disk, whatever the default of the database is; what is stricter stays.
_DURABLE = "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"


class PostgresServer:
    """One database and the schema in it."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("postgresql", "postgres"):
            raise SetupError(
                f"no store {parts.scheme or url!r}: write postgresql://user@host:5432/database"
            )
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        self.schema = query.pop("schema", DEFAULT_SCHEMA)
        if not _SCHEMA.fullmatch(self.schema):
            raise SetupError(
                f"schema={self.schema}: lower-case letters, digits and '_' only, at most 41 of them"
            )
        self.shown = _shown(url)
        try:
            given = conninfo_to_dict(urlunsplit(parts._replace(query=_query(query.items()))))
        except psycopg.ProgrammingError as error:
            raise SetupError(f"{self.shown} is no address of a database: {error}") from None
        options = [f"-c search_path={self.schema}", *(f"-c {k}={v}" for k, v in _SESSION.items())]
        if "options" in given:  # what was written there outranks ours
            options.append(str(given.pop("options")))
        self._arguments: dict[str, Any] = {
            **_CLIENT,
            **given,
            "options": " ".join(options),
            "client_encoding": "UTF8",  # outranks the address and PGCLIENTENCODING
        }
        self.channel = f"bide_{self.schema}"

    def connect(self) -> psycopg.Connection[tuple[Any, ...]]:
        """For a thread of its own."""
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


def held_channel(channel: str) -> str:
    """Where it is told that a job that another process holds was changed."""
    return f"{channel}_held"


def _query(items: Iterable[tuple[str, str]]) -> str:
    """As libpq reads it, to which a plus is a plus."""
    return urlencode(list(items), quote_via=quote)


def _shown(url: str) -> str:
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    query = [(k, v) for k, v in parse_qsl(parts.query) if k not in ("password", "sslpassword")]
    return urlunsplit(parts._replace(netloc=f"{user.partition(':')[0]}{at}{host}", query=_query(query)))


def check_encoding(connection: psycopg.Connection[tuple[Any, ...]], shown: str) -> None:
    """SetupError when the database cannot hold every text."""
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise SetupError(
            f"{shown} cannot be used: the encoding is {encoding}, and bide stores UTF-8. Create the database with "
            "`createdb --encoding=UTF8 --template=template0 --locale=C.UTF-8 NAME`; the encoding of an existing "
            "database cannot be changed"
        )


def prepare(server: PostgresServer) -> list[int]:
    """Brings the schema up; the versions that were applied. Of several who do it at once, one does and the rest wait."""
    try:
        with server.connect() as connection:
            check_encoding(connection, server.shown)
            for setting in ("lock_timeout", "statement_timeout"):
                connection.execute("SELECT set_config(%s, '0', false)", (setting,))
            connection.execute("SELECT pg_advisory_lock(%s, hashtext(%s))", (MIGRATING, server.schema))
            return _migrate(connection, server.schema)
    except psycopg.Error as error:
        raise SetupError(f"{server.shown} cannot be used: {explain(error) or error}") from error


def version(connection: psycopg.Connection[tuple[Any, ...]]) -> tuple[int, int]:
    """Of the schema, and from which on it can be used; 0 when there is none."""
    row = connection.execute("SELECT to_regclass('schema_version')::text").fetchone()
    if row is None or row[0] is None:
        return 0, 0
    found = connection.execute("SELECT max(version), max(usable_from) FROM schema_version").fetchone()
    return (0, 0) if found is None or found[0] is None else (int(found[0]), int(found[1]))


def _migrate(connection: psycopg.Connection[tuple[Any, ...]], schema: str) -> list[int]:
    exists = connection.execute("SELECT to_regnamespace(%s) IS NOT NULL", (schema,)).fetchone()
    if exists is None or not exists[0]:
        connection.execute(f"CREATE SCHEMA {schema}".encode())
    applied = []
    for number, sql in migrations.pending("postgres", *version(connection)):
        _apply(connection, number, sql)
        applied.append(number)
    return applied


def _apply(connection: psycopg.Connection[tuple[Any, ...]], number: int, sql: str) -> None:
    """A table that is in use is locked only when nobody has to wait for it for long: who waits for a lock makes all others
    wait behind it."""
    for _ in range(ATTEMPTS):
        try:
            with connection.transaction():
                connection.execute(f"SET LOCAL lock_timeout = '{PATIENCE * 1000:.0f}ms'".encode())
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
            time.sleep(PATIENCE)
    raise busy


_REASONS = {
    "28": "it refuses this user: check the user and the password in the address, and pg_hba.conf",
    "3D": "there is no such database: make it with `createdb`, or correct the address",
    "53100": "its disk is full: make room on it. What was accepted before is safe, and goes on when there is room",
    "53300": "it has no connection left: raise max_connections, or run fewer processes",
    "25006": "it takes no writes, as a standby does: give the address of the primary",
    "42501": "this user lacks a right there: make it the owner of the schema",
    "55P03": "others have held a lock for too long: pg_stat_activity shows who waits for whom",
    "57014": "a statement took too long: pg_stat_activity shows what the server is at",
}


def explain(error: psycopg.Error) -> str | None:
    """Why the database cannot be used now, and what to do; None for what is neither the server's nor the network's fault."""
    code = error.sqlstate or ""
    for begin, reason in _REASONS.items():
        if code.startswith(begin):
            return reason
    if code.startswith(("08", "53", "57", "58")) or isinstance(error, psycopg.OperationalError):
        text = " ".join(str(error).split())
        return f"the database does not answer ({text}): look at its log, and at the network between"
    return None
