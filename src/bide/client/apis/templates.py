"""Text and bodies with placeholders: `/jobs/{id}`.

`{id}`, `{kind}`, `{key}`, `{hold}`, `{input.field}`, `{ref.name}`, `{body.path}`. In a path a value is percent-encoded;
`{+id}` keeps its slashes. A value of a body that is a single placeholder, `"{input}"`, becomes the value with its type;
`"{null}"` is JSON's null. A header, parameter, field or item of a list whose value is missing is left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import quote

from bide.client.apis.paths import steps, walk

NAMES = frozenset(("body", "hold", "id", "ids", "input", "key", "kind", "null", "ref", "url"))
Values = Mapping[str, Any]
_PLACE = re.compile(r"\{(\+?)([A-Za-z_][^{}\s]*)\}")
_UNRESERVED = re.compile(r"[A-Za-z0-9._~-]+")
_KEPT = "/:@!$&'()*+,;="  # allowed in a path besides unreserved characters


class MissingValue(Exception):
    """A value that a template needs is missing."""


def encoded(value: str) -> str:
    return value if _UNRESERVED.fullmatch(value) else quote(value, safe="")


def _kept(value: str) -> str:
    return quote(value.lstrip("/"), safe=_KEPT)


def _written(value: str) -> str:
    """Encode a kind that is a path and may have parameters."""
    return quote(value.lstrip("/"), safe=_KEPT + "?%")


def _plain(value: str) -> str:
    return value


class Template:
    """Text with placeholders; `fill` returns text."""

    __slots__ = ("_first", "_last", "_only", "_parts", "names", "text")

    def __init__(
        self, text: str, *, escape: bool = False, braces: bool = False, allowed: frozenset[str] = NAMES
    ) -> None:
        self.text = text
        self._parts: list[str | tuple[str, tuple[Any, ...], Callable[[str], str]]] = []
        self.names: list[str] = []
        at = 0
        for match in _PLACE.finditer(text):
            self._parts.append(text[at : match.start()])
            name, _, path = match[2].partition(".")
            if name not in allowed:
                raise ValueError(
                    f"{match[0]} in {text!r} is not available here. Available: {_braced(allowed)}"
                )
            self.names.append(match[2])
            keeping = _written if name == "kind" else _kept
            escaping = _plain if not escape else keeping if match[1] else encoded
            self._parts.append((name, steps(path) if path else (), escaping))
            at = match.end()
        rest = text[at:]
        texts = "".join(part for part in (*self._parts, rest) if isinstance(part, str))
        if not braces and ("{" in texts or "}" in texts):
            raise ValueError(f"a brace in {text!r} is not part of a placeholder")
        self._parts.append(rest)
        # The usual template, which every poll fills: an id between two texts.
        self._only = len(self._parts) == 3 and self.names == ["id"] and escape and "{+" not in text
        self._first, self._last = str(self._parts[0]), rest

    @property
    def fixed(self) -> bool:
        return not self.names

    def around(self, id: str) -> str | None:
        """Return what `fill` returns, if it needs only the id."""
        if not self._only:
            return None
        return self._first + (id if _UNRESERVED.fullmatch(id) else quote(id, safe="")) + self._last

    def fill(self, values: Values) -> str:
        """Return the text; MissingValue if a value is missing."""
        out = []
        for part in self._parts:
            if isinstance(part, str):
                out.append(part)
                continue
            name, path, escaping = part
            value = walk(values.get(name), path)
            out.append(escaping(_as_text(value, self.text)))
        return "".join(out)

    def pattern(self) -> re.Pattern[str]:
        """Return a pattern that finds the values in a text made from this template."""
        seen: set[str] = set()
        out = []
        names = iter(self.names)
        for part in self._parts:
            if isinstance(part, str):
                out.append(re.escape(part))
                continue
            name = next(names).replace(".", "__")
            anything = ".+" if part[2] is _kept else "[^/]+"
            out.append(f"(?P={name})" if name in seen else f"(?P<{name}>{anything})")
            seen.add(name)
        return re.compile("".join(out))


def _as_text(value: Any, template: str) -> str:
    kind = type(value)
    if kind is str:
        return str(value)
    if kind is bool:
        return "true" if value else "false"
    if kind is int or kind is float:
        return f"{value:g}" if kind is float else str(value)
    raise MissingValue(f"{template} needs a value that is {'missing' if value is None else 'not text'}")


def _braced(names: frozenset[str]) -> str:
    return ", ".join(f"{{{name}}}" for name in sorted(names))


class Whole:
    """A single placeholder, which becomes the value with its type."""

    __slots__ = ("name", "path")

    def __init__(self, name: str, path: str, allowed: frozenset[str]) -> None:
        if name not in allowed:
            raise ValueError(f"{{{name}}} is not available here. Available: {_braced(allowed)}")
        self.name = name
        self.path = steps(path) if path else ()

    @property
    def is_input(self) -> bool:
        return self.name == "input" and not self.path

    def fill(self, values: Values) -> Any:
        if self.name == "null":
            return None
        value = walk(values.get(self.name), self.path)
        if value is None:
            raise MissingValue(f"{{{self.name}}} is missing")
        return value


def compile_body(value: Any, allowed: frozenset[str] = NAMES) -> Any:
    """Compile the texts in a TOML value; ValueError if one is invalid."""
    if isinstance(value, str):
        alone = _PLACE.fullmatch(value)
        if alone is not None:
            name, _, path = alone[2].partition(".")
            return Whole(name, path, allowed)
        if not _PLACE.search(value):
            return value
        # Braces are common in bodies, such as GraphQL: a brace next to a space is plain text.
        return Template(value, braces=True, allowed=allowed)
    if isinstance(value, dict):
        return {key: compile_body(inner, allowed) for key, inner in value.items()}
    if isinstance(value, list):
        return [compile_body(inner, allowed) for inner in value]
    return value


def fill_body(value: Any, values: Values) -> Any:
    """Return the body without the fields and items that have no value; MissingValue if all of it has none."""
    if isinstance(value, Template | Whole):
        return value.fill(values)
    if isinstance(value, dict):
        out = {}
        for key, inner in value.items():
            with suppress(MissingValue):
                out[key] = fill_body(inner, values)
        return out
    if isinstance(value, list):
        items = []
        for inner in value:
            with suppress(MissingValue):
                items.append(fill_body(inner, values))
        return items
    return value
