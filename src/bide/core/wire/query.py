"""The search language of lists: `kind:x status:ERROR label.team:ops input.video.id:42 error:OCR_TIMEOUT step:probe text`.

A query is a list of terms, separated by white space; a job must match all of them. A term is `field:value`, or free text:
the begin of an id or the value of a label. Quotes hold white space and colons together: `label.team:"night shift"`.

1. `parse` takes time in proportion to MAX_LENGTH at most, whatever the text.
2. Every error names the term that caused it.
"""

from __future__ import annotations

import re

import msgspec

from bide.core.errors import InvalidInput
from bide.core.jobs.record import Status

MAX_LENGTH = 2000  # characters
MAX_TERMS = 20
MAX_TEXTS = 4  # terms of free text; each may be an id or a label
MAX_PARTS = 10  # of a path
MAX_VALUE = 255  # characters of a value that can be found
FIELDS = ("kind", "status", "queue", "error", "step", "label.KEY", "input.PATH")
_SPACE = re.compile(r"\s+")
_BARE = re.compile(r'[^\s":\\]+')
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


class QueryTerm(msgspec.Struct, frozen=True):
    """One term; `field` is empty for free text."""

    field: str
    value: str

    def __str__(self) -> str:
        value = self.value
        if not value or re.search(r'[\s":\\]', value):
            value = '"' + re.sub(r'(["\\])', r"\\\1", value) + '"'
        if not self.field:
            return value
        name, dot, key = self.field.partition(".")
        if dot and (not key or re.search(r'[\s":\\]', key)):
            key = '"' + re.sub(r'(["\\])', r"\\\1", key) + '"'
        return f"{name}{dot}{key}:{value}"


def parse(text: str) -> tuple[QueryTerm, ...]:
    """The terms of a query. InvalidInput says which term is wrong, and why."""
    if len(text) > MAX_LENGTH:
        raise _wrong(f"the query has {len(text)} characters; the limit is {MAX_LENGTH}")
    terms: list[QueryTerm] = []
    at = 0
    while at < len(text):
        space = _SPACE.match(text, at)
        if space is not None:
            at = space.end()
            continue
        term, at = _term(text, at)
        if len(terms) == MAX_TERMS:
            raise _wrong(f"the query has more than {MAX_TERMS} terms")
        terms.append(term)
    if sum(not term.field for term in terms) > MAX_TEXTS:
        raise _wrong(f"the query has more than {MAX_TEXTS} terms of free text; name their fields")
    return tuple(terms)


def render(terms: tuple[QueryTerm, ...]) -> str:
    """The text of a query with these terms; `parse` reads it."""
    return " ".join(map(str, terms))


def _term(text: str, begin: int) -> tuple[QueryTerm, int]:
    quoted = text[begin] == '"'
    name, at = _word(text, begin)
    if quoted or text[at : at + 1] != ":":
        return QueryTerm("", _value(name, text[begin:at])), at
    value, at = _word(text, at + 1)
    shown = text[begin:at]
    return QueryTerm(_field(name, shown), _checked(name, value, shown)), at


def _word(text: str, at: int) -> tuple[str, int]:
    """Characters and quoted parts up to white space, or to a colon that ends a field's name."""
    parts: list[str] = []
    begin = at
    in_value = begin > 0 and text[begin - 1] == ":"
    while at < len(text):
        character = text[at]
        if character == '"':
            match = _QUOTED.match(text, at)
            if match is None:
                raise _wrong(f"the quote in the term {_short(text[begin:])!r} has no end")
            parts.append(_ESCAPED.sub(r"\1", match[1]))
            at = match.end()
        elif character == ":" and not in_value:
            break
        elif character in ":\\":
            parts.append(character)
            at += 1
        else:
            match = _BARE.match(text, at)
            if match is None:  # white space
                break
            parts.append(match[0])
            at = match.end()
    return "".join(parts), at


def _field(name: str, shown: str) -> str:
    if name in ("kind", "status", "queue", "error", "step") or name.startswith("label."):
        return name
    if name.startswith("input."):
        parts = name.split(".", MAX_PARTS + 2)
        if len(parts) > MAX_PARTS + 1:
            raise _wrong(f"the path in the term {_short(shown)!r} has more than {MAX_PARTS} parts")
        if not all(parts):
            raise _wrong(f"the path in the term {_short(shown)!r} has an empty part")
        return name
    raise _wrong(
        f"the term {_short(shown)!r} has an unknown field; use {', '.join(FIELDS)}, or quotes to find the text itself"
    )


def _checked(name: str, value: str, shown: str) -> str:
    value = _value(value, shown)
    if name == "status":
        value = value.upper()
        if value not in Status.__members__:
            raise _wrong(f"the term {_short(shown)!r} has no known status; use {', '.join(Status)}")
    return value


def _value(value: str, shown: str) -> str:
    if not value:
        raise _wrong(f"the term {_short(shown)!r} has no value")
    if len(value) > MAX_VALUE or "\0" in value:
        raise _wrong(
            f"the value of the term {_short(shown)!r} is longer than {MAX_VALUE} or contains NUL"
        )
    return value


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:59] + "…"


def _wrong(detail: str) -> InvalidInput:
    return InvalidInput.at("?q", detail)
