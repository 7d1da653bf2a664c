"""The schema's history: SQL files, applied in the order of their numbers, each in one transaction.

The number of the last one is the schema's version. A file that has been released is never changed.

Where several processes share a database, a file that only adds says so in its first line, `-- usable from N`: programs
that know the schema up to N go on beside the newer ones, and may be started again. Without it, all older ones must stop.
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
    """The version up to which a program must know the schema, to use it once this file was applied."""
    said = re.match(r"-- usable from (\d+)\n", sql)
    return int(said[1]) if said else number


def pending(dialect: str, version: int, usable: int | None = None) -> list[tuple[int, str]]:
    """What is still to be applied; SetupError when the data is too new for this program: newer than what it knows, and
    than what it may use (`usable`, which was written down with the data)."""
    known = scripts(dialect)
    newest = known[-1][0]
    if (version if usable is None else usable) > newest:
        raise SetupError(
            f"the data has schema version {version}, this bide knows up to {newest}: "
            "install the newer bide that wrote it, or use another data folder or schema"
        )
    return [(number, sql) for number, sql in known if number > version]
