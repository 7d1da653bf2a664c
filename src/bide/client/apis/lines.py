"""The line of a key in a TOML text, for errors that say where: the standard parser keeps no positions.

The text has been parsed before, so it is known to be TOML: this need not check it, only find its keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

Place = tuple[str | int, ...]

_HEADER = re.compile(r"\s*(?P<open>\[\[?)(?P<name>[^\]]*)\]")
_KEY_PART = re.compile(r"""\s*(?:"((?:[^"\\]|\\.)*)"|'([^']*)'|([A-Za-z0-9_-]+))\s*(\.|=|$)""")
_TEXT = re.compile(
    r'"""(?:[^\\]|\\.)*?"""|\'\'\'.*?\'\'\'|"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\'|#[^\n]*', re.DOTALL
)


class Misplaced(ValueError):
    """Something wrong in a table; `place` says in which."""

    def __init__(self, place: Place, message: str) -> None:
        super().__init__(message)
        self.place = place


@contextmanager
def within(*place: str | int) -> Iterator[None]:
    """What is wrong in here is wrong in that table."""
    try:
        yield
    except Misplaced:
        raise
    except ValueError as error:
        raise Misplaced(place, str(error)) from None


def line_of(text: str, place: Place) -> int | None:
    """The line, from 1, of a key or of the nearest thing around it; None when not even its first key is there."""
    best: tuple[int, int] | None = None
    for found, line in keys(text):
        common = 0
        while common < min(len(found), len(place)) and found[common] == place[common]:
            common += 1
        # A key of a table stands for the table, but never better than the table's own line.
        if common and (best is None or common > best[0]):
            best = (common, line)
    return best[1] if best else None


def keys(text: str) -> Iterator[tuple[Place, int]]:
    """Every table and key with its line; what is inside of an inline table is at the line of its key."""
    table: Place = ()
    counts: dict[Place, int] = {}
    depth = 0
    written = text.split("\n")
    for number, line in enumerate(_blanked(text).split("\n"), 1):
        if depth == 0:
            # The blanked line tells what it is, the written one how it is called: a key may be in quotes.
            header = _HEADER.match(written[number - 1]) if _HEADER.match(line) else None
            if header is not None:
                table = _table(header["name"], counts)
                if header["open"] == "[[":
                    index = counts.get(table, -1) + 1
                    counts[table] = index
                    table = (*table, index)
                yield table, number
                continue
            names = _parts(written[number - 1]) if line.strip() else ()  # blank: within a text
            if names:
                yield (*table, *names), number
        depth += line.count("[") + line.count("{") - line.count("]") - line.count("}")


def _blanked(text: str) -> str:
    """Without the contents of texts and comments, but with the same lines."""
    return _TEXT.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)


def _table(name: str, counts: dict[Place, int]) -> Place:
    """The place of `[a.b]`, where each array of tables on the way means its latest table."""
    place: Place = ()
    parts = _parts(name + "=")
    for index, part in enumerate(parts):
        place = (*place, part)
        if place in counts and index < len(parts) - 1:
            place = (*place, counts[place])
    return place


def _parts(text: str) -> tuple[str, ...]:
    """The keys before the equals sign; none when the line does not begin with a key."""
    out = []
    at = 0
    while (match := _KEY_PART.match(text, at)) is not None:
        out.append(next(g for g in match.groups()[:3] if g is not None))
        at = match.end()
        if match[4] == "=":
            return tuple(out)
        if match[4] != ".":
            break
    return ()
