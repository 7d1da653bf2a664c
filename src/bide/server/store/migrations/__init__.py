"""Schema migrations: SQL files, applied in the order of their numbers, each in one transaction.

The number of the last file is the schema's version. A released file never changes.

When several processes share a database, a file that only adds to the schema begins with `-- usable from N`: programs that
know version N or later keep running beside newer ones, and can be restarted. Without that line all older programs must
stop. A line `-- concurrently` after it: the statements, each of which begins on a line of its own, run outside of a
transaction, and can run again after an interruption.
"""

from __future__ import annotations

import re
from importlib.resources import files

from bide.core.errors import SetupError


def scripts(dialect: str) -> list[tuple[int, str]]:
    """(version, SQL) of every migration of this dialect."""
    folder = files(__package__) / dialect
    found = [
        (int(entry.name.split("_")[0]), entry.read_text())
        for entry in folder.iterdir()
        if entry.name.endswith(".sql")
    ]
    return sorted(found)


def usable_from(number: int, sql: str) -> int:
    """The version of the schema that a program must know to use the database after this migration."""
    match = re.match(r"-- usable from (\d+)\n", sql)
    return int(match[1]) if match else number


def concurrent(sql: str) -> list[str]:
    """The statements of a migration that runs outside of a transaction; none if it is an ordinary one."""
    if not re.search(r"^-- concurrently$", sql, re.MULTILINE):
        return []
    return [line.rstrip(";") for line in sql.splitlines() if line and not line.startswith("--")]


def pending(dialect: str, version: int, usable: int | None = None) -> list[tuple[int, str]]:
    """The migrations to apply. SetupError if the data is too new for this program: `usable`, which is stored with the data,
    is newer than every version that the program knows.
    """
    known = scripts(dialect)
    newest = known[-1][0]
    if (version if usable is None else usable) > newest:
        raise SetupError(
            f"the data has schema version {version}, but this bide knows versions up to {newest}: "
            "install the newer bide that wrote it, or use another data folder or schema"
        )
    return [(number, sql) for number, sql in known if number > version]
