"""A source: where a value is in a response. Compiled once.

`progress.percent` is a path into the JSON body: keys, and numbers for lists. `links[rel=next].href` selects from a list
by a field, or by several: `links[rel=next][type*=json].href`, where `*=` means that the text contains the value, and
`!*=` that it does not. A backslash escapes a dot, and `.` alone is the whole body.
`header:Location` is a header of the response, `ref:NAME` a remembered value of the job. `eta unless 0, None` has no value
if the value is one of these. The first source with a value counts; null and "" are no values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bide.client.apis.answers import Answer, Ref
from bide.client.apis.values import header, word

Headers = Mapping[str, str]
Condition = tuple[str, str, str]  # field, operator, value
Step = str | int | tuple[Condition, ...]

_NO_HEADERS: Headers = {}
_UNLESS = " unless "
_CHOICE = re.compile(r"(?P<name>[^\[\]]*)(?P<conditions>(?:\[[^\[\]=!*]+!?\*?=[^\[\]]*\])+)")
_CONDITION = re.compile(r"\[([^\[\]=!*]+)(=|\*=|!\*=)([^\[\]]*)\]")


class Document:
    """The decoded body of an answer, or a part of it, with the job that the answer is about."""

    __slots__ = ("body", "headers", "ref", "status")

    def __init__(
        self, body: Any, headers: Headers = _NO_HEADERS, ref: Ref | None = None, status: int = 200
    ) -> None:
        self.body = body
        self.headers = headers
        self.ref = ref
        self.status = status

    def part(self, body: Any) -> Document:
        """Return a part of the body with the same headers and the same job."""
        return Document(body, self.headers, self.ref, self.status)


Source = Callable[[Document], Any]


def document(answer: Answer, ref: Ref | None = None) -> Document:
    """Decode an answer. The body is None if it is not JSON."""
    return Document(answer.json(), answer.headers, ref, answer.status)


def steps(path: str) -> tuple[Step, ...]:
    """Parse a path; ValueError if it is invalid."""
    if path == ".":
        return ()
    found: list[Step] = []
    for part in re.split(r"(?<!\\)\.", path):
        name = part.replace("\\.", ".")
        choice = _CHOICE.fullmatch(name)
        if not name:
            raise ValueError(f"{path!r} is not a path: it has two dots without a key between them")
        conditions = _conditions(choice["conditions"]) if choice is not None else ()
        if choice is not None and conditions:
            found += [choice["name"]] if choice["name"] else []
            found.append(conditions)
        elif "[" in name or "]" in name:
            raise ValueError(f"{path!r} is not a path: use list[key=value] to select from a list")
        else:
            found.append(int(name) if name.isascii() and name.isdigit() else name)
    return tuple(found)


def _conditions(text: str) -> tuple[Condition, ...]:
    found = tuple((key, how, value) for key, how, value in _CONDITION.findall(text))
    return found if "".join(f"[{key}{how}{value}]" for key, how, value in found) == text else ()


def fits(item: Any, conditions: tuple[Condition, ...]) -> bool:
    if type(item) is not dict:
        return False
    for key, how, value in conditions:
        found = item.get(key)
        if how == "=":
            fits = found == value
        else:
            contains = type(found) is str and value.lower() in found.lower()
            fits = contains == (how == "*=")
        if not fits:
            return False
    return True


def walk(document: Any, path: tuple[Step, ...]) -> Any:
    for step in path:
        kind = type(document)
        if kind is dict:
            document = document.get(str(step) if type(step) is int else step)
        elif kind is list and type(step) is int:
            document = document[step] if step < len(document) else None
        elif kind is list and type(step) is tuple:
            document = next((item for item in document if fits(item, step)), None)
        else:
            return None
    return document


def missing(described: str | Sequence[str], body: Any) -> str:
    """A source that found no value, and the keys that the body has where the path ends, for an error message."""
    texts = [described] if isinstance(described, str) else list(described)
    return ", or ".join(f"{text!r}{_keys_there(text, body)}" for text in texts)


def _keys_there(text: str, body: Any) -> str:
    text = text.partition(_UNLESS)[0]
    kind, colon, _ = text.partition(":")
    if colon and kind in ("header", "ref"):
        return ""
    path, names = steps(text), re.split(r"(?<!\\)\.", text)
    depth = 0
    while depth < len(path) and (inner := walk(body, path[depth : depth + 1])) is not None:
        body, depth = inner, depth + 1
    where = ".".join(names[:depth]) if len(names) == len(path) and depth else "the response"
    if type(body) is dict:
        found = ", ".join(str(key) for key in list(body)[:20]) or "no key"
        return f"; {where} has: {found}"
    if type(body) is list:
        return f"; {where} is a list of {len(body)}"
    return f"; {where} is not an object"


def _of_body(path: tuple[Step, ...]) -> Source:
    """Short paths have no loop, because they are read with every poll."""
    if len(path) == 1 and type(path[0]) is str:
        only = path[0]
        return lambda found: found.body.get(only) if type(found.body) is dict else None
    if len(path) == 2 and type(path[0]) is str and type(path[1]) is str:
        first, second = path

        def two(document: Document) -> Any:
            body = document.body
            inner = body.get(first) if type(body) is dict else None
            return inner.get(second) if type(inner) is dict else None

        return two
    return lambda document: walk(document.body, path)


def _one(text: str) -> Source:
    text, unless, others = text.partition(_UNLESS)
    if unless:
        get, absent = _one(text), frozenset(value.strip() for value in others.split(","))

        def unless_absent(document: Document) -> Any:
            value = get(document)
            plain = int(value) if type(value) is float and value.is_integer() else value
            return None if word(plain) in absent else value

        return unless_absent
    kind, colon, name = text.partition(":")
    if colon and kind == "header":
        return lambda document: header(document.headers, name)
    if colon and kind == "ref":
        if name == "id":
            return lambda document: document.ref.id if document.ref else None
        if name == "url":
            return lambda document: document.ref.url if document.ref else None
        return lambda document: document.ref.more.get(name) if document.ref else None
    return _of_body(steps(text))


def source(text: str | Sequence[str]) -> Source:
    """Compile one source, or a list of alternatives; ValueError if one is invalid."""
    texts = (text,) if isinstance(text, str) else tuple(text)
    if not texts:
        raise ValueError("a list of sources must have at least one")
    if len(texts) == 1:
        return _one(texts[0])
    sources = tuple(_one(t) for t in texts)

    def first(document: Document) -> Any:
        for get in sources:
            value = get(document)
            if value is not None and value != "":
                return value
        return None

    return first
