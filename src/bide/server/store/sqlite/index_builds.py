"""Indexes of a large file that an earlier release has written: the service builds them while it runs.

SQLite blocks all writes while it builds an index, for seconds if a million jobs are stored. So:

1. The migration of a large file builds no index. It stores the statements in the table `index_builds`, and the upkeep runs
   each of them in a transaction of its own.
2. The indexes that may have an entry for every job, SLICED, have the condition LISTED in such a file. Every new job is
   listed. The upkeep lists the old ones, the newest first, in small transactions; those before the id in the table
   `unlisted` are not listed yet.
3. Indexes that are no longer needed are dropped last: until then, lists find the jobs along them that are not listed.

Each step is one transaction, so a service that was killed continues with the next step.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from bide.server.store.job_search import HIGHEST, SearchDialect

LARGE = 100_000  # jobs; an index of as many takes less than half a second
MOST = 200  # jobs that one transaction lists; it writes a page for nearly each of them
LISTED = "listed = 1"
SLICED = ("jobs_facets", "jobs_code", "jobs_longest")
TABLES = ("jobs", "events")  # that may be large
_INDEX = re.compile(r"^(CREATE|DROP) INDEX (\w+)(?: ON (\w+))?", re.MULTILINE)
_TABLES = (
    "CREATE TABLE IF NOT EXISTS index_builds (number INTEGER PRIMARY KEY, sql TEXT NOT NULL);\n"
    "CREATE TABLE IF NOT EXISTS unlisted (before TEXT NOT NULL);\n"
)
_NEXT = "SELECT number, sql FROM index_builds ORDER BY number LIMIT 1"
Execute = Callable[[str, Sequence[Any]], sqlite3.Cursor]
Run = Callable[[str, Sequence[Any]], list[tuple[Any, ...]]]


def is_large(connection: sqlite3.Connection) -> bool:
    sql = "SELECT (SELECT max(seq) FROM jobs) - (SELECT min(seq) FROM jobs)"  # each along the key
    (jobs,) = connection.execute(sql).fetchone()
    return jobs is not None and jobs >= LARGE


def defer(pending: Iterable[tuple[int, str]]) -> list[tuple[int, str]]:
    """The migrations of a large file: without the indexes of its large tables, which the last one stores to be built."""
    builds: dict[str, str] = {}  # by the index's name
    drops: dict[str, str] = {}
    scripts: list[tuple[int, str]] = []
    for number, sql in pending:
        kept: list[str] = []
        for statement in _statements(sql):
            found = _INDEX.search(statement)
            if found is None or (found[3] is not None and found[3] not in TABLES):
                kept.append(statement)
                continue
            statement = statement[found.start() :]  # noqa: PLW2901  without comments
            if found[1] == "DROP":
                drops[found[2]] = f"DROP INDEX IF EXISTS {found[2]};"
            else:
                built = _sliced(statement) if found[2] in SLICED else statement
                builds[found[2]] = drops.pop(found[2], "") + built
        scripts.append((number, "".join(kept)))
    if builds or drops:
        number, last = scripts[-1]
        claims = [
            sql for name, sql in builds.items() if name not in SLICED
        ]  # first, because jobs wait for them
        lists = [sql for name, sql in builds.items() if name in SLICED]
        stored = [
            f"INSERT INTO index_builds (sql) VALUES ({_quoted(sql)});"
            for sql in (*claims, *lists, *drops.values())
        ]
        if any(name in builds for name in SLICED):
            stored.append("ALTER TABLE jobs ADD COLUMN listed INTEGER;")
            stored.append(f"INSERT INTO unlisted VALUES ('{HIGHEST}');")
        scripts[-1] = (number, "\n".join([last, _TABLES, *stored]))
    return scripts


def is_sliced(connection: sqlite3.Connection) -> bool:
    """Whether the indexes of the file have the condition LISTED."""
    found = connection.execute("SELECT 1 FROM pragma_table_info('jobs') WHERE name = 'listed'")
    return found.fetchone() is not None


def is_building(connection: sqlite3.Connection) -> bool:
    found = connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'index_builds'").fetchone()
    if found is None:
        return False
    return any(connection.execute(f"SELECT 1 FROM {t}").fetchone() for t in ("index_builds", "unlisted"))


def is_listing(connection: sqlite3.Connection) -> bool:
    """Whether some jobs are not listed yet."""
    return is_building(connection) and bool(connection.execute("SELECT 1 FROM unlisted").fetchone())


def build(execute: Execute, limit: int) -> bool:
    """Run the next statement, or list the next `limit` jobs. Return False if there was nothing to do."""
    number, sql = execute(_NEXT, ()).fetchone() or (0, "")
    unlisted = execute("SELECT before FROM unlisted", ()).fetchone()
    if "CREATE INDEX" in sql or (sql and unlisted is None):
        for statement in _statements(sql):
            execute(statement, ())
        execute("DELETE FROM index_builds WHERE number = ?", (number,))
        return True
    if unlisted is None:
        return False
    (before,), limit = unlisted, min(limit, MOST)
    found = execute(
        "SELECT id FROM jobs WHERE id < ? ORDER BY id DESC LIMIT ?", (before, limit)
    ).fetchall()
    if found:
        first = found[-1][0]
        execute(
            "UPDATE jobs SET listed = 1 WHERE id >= ? AND id < ? AND listed IS NULL", (first, before)
        )
        execute("UPDATE unlisted SET before = ?", (first,))
    if len(found) < limit:
        execute("DELETE FROM unlisted", ())
    return True


def during(dialect: SearchDialect, run: Run) -> SearchDialect:
    """The dialect of a query while indexes are built."""
    unlisted = run("SELECT before FROM unlisted", ())
    missing = {found[2] for (sql,) in run("SELECT sql FROM index_builds", ()) for found in _created(sql)}
    return dialect._replace(unlisted=unlisted[0][0] if unlisted else "", missing=frozenset(missing))


def _created(sql: str) -> Iterator[re.Match[str]]:
    return (found for found in _INDEX.finditer(sql) if found[1] == "CREATE")


def _sliced(statement: str) -> str:
    """The statement of an index with the condition that the job is listed."""
    text = statement.rstrip().rstrip(";")
    return f"{text} {'AND' if ' WHERE ' in text else 'WHERE'} {LISTED};\n"


def _statements(sql: str) -> Iterator[str]:
    statement = ""
    for line in re.split(r"(?<=;)", sql):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
