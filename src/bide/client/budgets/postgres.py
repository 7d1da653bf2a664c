"""The PostgreSQL backend of shared budgets: one row per budget, changed under its lock, in the server's time.

The rows are in an unlogged table: after a crash the server has none, rather than old ones. The salt is in a logged one.
Both tables are created if they are missing, in the schema `?schema=NAME`, by default `bide`.
"""

from __future__ import annotations

import contextlib
import re
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

import psycopg

from bide.client.budgets.backend import NO_RECORD, BackendReply, BackendUnavailable
from bide.core.errors import SetupError

_LOCK = 0x62696403
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,40}")
_SESSION = {"statement_timeout": "1s", "lock_timeout": "1s", "synchronous_commit": "off", "jit": "off"}
_TIME = "extract(epoch FROM clock_timestamp())::float8"
_READ = f"SELECT {_TIME}, version, data FROM (SELECT) one LEFT JOIN client_budgets ON name = %s".encode()
_UPDATE = (
    f"UPDATE client_budgets SET version = %s, data = %s WHERE name = %s AND version = %s RETURNING {_TIME}"
).encode()
_INSERT = (
    "INSERT INTO client_budgets (name, version, data) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING "
    f"RETURNING {_TIME}"
).encode()
_TABLES = b"""
CREATE UNLOGGED TABLE IF NOT EXISTS client_budgets (name text PRIMARY KEY, version text NOT NULL, data bytea NOT NULL)
  WITH (fillfactor = 20);
CREATE TABLE IF NOT EXISTS client_salt (one boolean PRIMARY KEY DEFAULT true CHECK (one), salt bytea NOT NULL);
"""


class PostgresBackend:
    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        self._schema = query.pop("schema", "bide")
        if not _SCHEMA.fullmatch(self._schema):
            raise SetupError(
                f"{self._schema!r} is not a schema name: use lower-case letters, digits and '_' only"
            )
        self.shown = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query=""))
        self._url = urlunsplit(parts._replace(query=urlencode(query, quote_via=quote)))
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = None

    def swap(self, name: str, known: str, version: str, data: bytes) -> BackendReply:
        if known == NO_RECORD:
            rows = self._execute(_INSERT, (name, version, data))
        else:
            rows = self._execute(_UPDATE, (version, data, name, known))
        return BackendReply(True, rows[0][0]) if rows else self.read(name)

    def read(self, name: str) -> BackendReply:
        ((now, version, data),) = self._execute(_READ, (name,))
        return BackendReply(False, now, version or NO_RECORD, bytes(data or b""))

    def salt(self, first: bytes) -> bytes:
        self._execute(b"INSERT INTO client_salt (salt) VALUES (%s) ON CONFLICT DO NOTHING", (first,))
        ((salt,),) = self._execute(b"SELECT salt FROM client_salt", ())
        return bytes(salt)

    def close(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(psycopg.Error):
                self._connection.close()
            self._connection = None

    def _execute(self, sql: bytes, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        try:
            if self._connection is None or self._connection.closed:
                self._connection = self._connect()
            done = self._connection.execute(sql, values)
            return done.fetchall() if done.description is not None else []
        except psycopg.Error as error:
            self.close()
            raise BackendUnavailable(" ".join(str(error).split()) or type(error).__name__) from error

    def _connect(self) -> psycopg.Connection[tuple[Any, ...]]:
        options = " ".join(f"-c {name}={value}" for name, value in _SESSION.items())
        connection = psycopg.connect(
            self._url,
            autocommit=True,
            prepare_threshold=0,
            connect_timeout=2,
            tcp_user_timeout=2000,
            application_name="bide",
            client_encoding="UTF8",
            options=f"-c search_path={self._schema} {options}",
        )
        try:
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _prepare(self, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        """Create only missing tables, because the user may have lost the right to create tables."""
        there = b"SELECT to_regclass('client_budgets') IS NOT NULL AND to_regclass('client_salt') IS NOT NULL"
        if connection.execute(there).fetchone() == (True,):
            return
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s, hashtext(%s))", (_LOCK, self._schema))
            found = connection.execute("SELECT to_regnamespace(%s) IS NULL", (self._schema,))
            if found.fetchone() == (True,):
                connection.execute(f"CREATE SCHEMA {self._schema}".encode())
            connection.execute(_TABLES, prepare=False)
