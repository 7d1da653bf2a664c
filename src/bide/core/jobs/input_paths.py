"""Paths into the input of a job, such as `input.video.id`: which values can be searched, and which are hidden.

A path names parts of objects. A list on the way stands for each of its items.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from bide.core.wire.query import MAX_VALUE

HIDDEN = "[secret]"
MAX_VALUES = 20  # of one path that can be searched
Parts = tuple[str, ...]


def parts_of(path: str) -> Parts:
    """The parts of a path after `input`."""
    return tuple(path.split(".")[1:])


def search_terms(document: Any, paths: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """(path, value) for every text, number, boolean or null at these paths, at most MAX_VALUES per path."""
    found: dict[tuple[str, str], None] = {}
    for path in paths:
        values = list(dict.fromkeys(filter(None, map(_text, values_at(document, path)))))
        found.update(((path, value), None) for value in values[:MAX_VALUES])
    return tuple(found)


def masked(document: Any, paths: Sequence[str]) -> Any:
    """A copy of the document in which HIDDEN replaces the value at each path."""
    for path in paths:
        document = _masked(document, parts_of(path))
    return document


def secret_texts(document: Any, paths: Sequence[str]) -> tuple[str, ...]:
    """The texts and numbers at these paths, the longest first. They are hidden in logs and errors, too."""
    found = {
        text
        for path in paths
        for value in values_at(document, path)
        for text in _leaves(value)
        if len(text) >= 4  # a shorter one would be replaced inside of ordinary words
    }
    return tuple(sorted(found, key=lambda text: (-len(text), text)))


def values_at(document: Any, path: str) -> Iterator[Any]:
    """The values at a path, in the order of the document. The path `input` is the whole input."""
    return _values(document, parts_of(path)) if path != "input" else iter((document,))


def _values(document: Any, parts: Parts) -> Iterator[Any]:
    if isinstance(document, list):
        for item in document:
            yield from _values(item, parts)
    elif not parts:
        yield document
    elif isinstance(document, dict) and parts[0] in document:
        yield from _values(document[parts[0]], parts[1:])


def _text(value: Any) -> str | None:
    """The value as a query names it; None if it cannot be found."""
    match value:
        case bool():
            text = "true" if value else "false"
        case None:
            text = "null"
        case str():
            text = value
        case int() | float():
            text = repr(value)
        case _:
            return None
    return text if 0 < len(text) <= MAX_VALUE and "\0" not in text else None


def _masked(document: Any, parts: Parts) -> Any:
    if not parts:
        return HIDDEN
    if isinstance(document, list):
        return [_masked(item, parts) for item in document]
    if isinstance(document, dict) and parts[0] in document:
        return {**document, parts[0]: _masked(document[parts[0]], parts[1:])}
    return document


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for inner in value.values():
            yield from _leaves(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _leaves(inner)
    elif isinstance(value, str):
        yield value
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield repr(value)
