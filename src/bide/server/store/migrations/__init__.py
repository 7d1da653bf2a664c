"""The schema's history: SQL files, applied in the order of their numbers, each in one transaction.

The number of the last one is the schema's version. A file that has been released is never changed.
"""

from __future__ import annotations

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


def pending(dialect: str, version: int) -> list[tuple[int, str]]:
    """What is still to be applied; SetupError when the data is newer than this program."""
    known = scripts(dialect)
    newest = known[-1][0]
    if version > newest:
        raise SetupError(
            f"the data has schema version {version}, this bide knows up to {newest}: "
            "install the newer bide that wrote it, or use another data folder or schema"
        )
    return [(number, sql) for number, sql in known if number > version]
