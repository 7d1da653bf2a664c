"""Finds the line of a key in a TOML text, for error messages, because the standard parser keeps no positions.

The text has been parsed before, so this only finds keys and does not check the syntax.
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
    """An error in the table at `place`."""

    def __init__(self, place: Place, message: str) -> None:
        super().__init__(message)
        self.place = place


@contextmanager
def within(*place: str | int) -> Iterator[None]:
    """Turn a ValueError inside the context into an error at that place."""
    try:
        yield
    except Misplaced:
        raise
    except ValueError as error:
        raise Misplaced(place, str(error)) from None


def line_of(text: str, place: Place) -> int | None:
    """Return the line, from 1, of a key or of the nearest table around it; None if not even the first key exists."""
    best: tuple[int, int] | None = None
    for found, line in keys(text):
        common = 0
        while common < min(len(found), len(place)) and found[common] == place[common]:
            common += 1
        # A key in a table can stand for the table, but the table's own line is better.
        if common and (best is None or common > best[0]):
            best = (common, line)
    return best[1] if best else None


def keys(text: str) -> Iterator[tuple[Place, int]]:
    """Yield every table and key with its line; keys of an inline table have the line of its key."""
    table: Place = ()
    counts: dict[Place, int] = {}
    depth = 0
    written = text.split("\n")
    for number, line in enumerate(_blanked(text).split("\n"), 1):
        if depth == 0:
            # The blanked line shows the structure, the original one the names: a key may be in quotes.
            header = _HEADER.match(written[number - 1]) if _HEADER.match(line) else None
            if header is not None:
                table = _table(header["name"], counts)
                if header["open"] == "[[":
                    index = counts.get(table, -1) + 1
                    counts[table] = index
                    table = (*table, index)
                yield table, number
                continue
            names = _parts(written[number - 1]) if line.strip() else ()  # blank: inside a string
            if names:
                yield (*table, *names), number
        depth += line.count("[") + line.count("{") - line.count("]") - line.count("}")


def _blanked(text: str) -> str:
    """Return the text with strings and comments blanked, on the same lines."""
    return _TEXT.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)


def _table(name: str, counts: dict[Place, int]) -> Place:
    """Return the place of `[a.b]`; an array of tables on the way means its last table."""
    place: Place = ()
    parts = _parts(name + "=")
    for index, part in enumerate(parts):
        place = (*place, part)
        if place in counts and index < len(parts) - 1:
            place = (*place, counts[place])
    return place


def _parts(text: str) -> tuple[str, ...]:
    """Return the keys before the equals sign; none if the line does not start with a key."""
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
