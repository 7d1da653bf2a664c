"""Loads descriptions by name or file. Errors name the file and the line."""

from __future__ import annotations

import re
import threading
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec

from bide.client.apis.api import Api
from bide.client.apis.form import Description
from bide.client.apis.toml_lines import Misplaced, Place, line_of
from bide.core.errors import SetupError

_AT = re.compile(r" - at `\$?(?P<path>[^`]*)`$")
_FIELD = re.compile(r"field `(?P<name>[^`]+)`")
# msgspec crashes the process if two threads convert to a type for the first time.
_ONE_AT_A_TIME = threading.Lock()
Approve = Callable[[Description, str, str, Path | None], None]
_STEP = re.compile(r"\.?([^.\[\]]+)|\[(\d+)\]|\[\.\.\.\]")


class BadDescription(SetupError):
    """A description that cannot be used; `line` is where, if known."""

    def __init__(self, file: str, line: int | None, message: str) -> None:
        super().__init__(file, line, message)
        self.file = file
        self.line = line
        self.message = message

    def __str__(self) -> str:
        return f"{self.file}{f', line {self.line}' if self.line else ''}: {self.message}"


def names() -> list[str]:
    """Return the names of the APIs that come with bide."""
    return sorted(
        file.name.removesuffix(".toml")
        for file in resources.files(__package__).iterdir()
        if file.name.endswith(".toml")
    )


def text_of(name: str) -> str:
    """Return the text of the description of an API that comes with bide."""
    if name not in names():
        near = get_close_matches(name, names(), 1)
        known = f"Did you mean {near[0]}?" if near else f"Known APIs: {', '.join(names())}."
        raise SetupError(
            f"There is no API {name!r}. {known} For your own description, give its file: ./{name}.toml"
        )
    return resources.files(__package__).joinpath(f"{name}.toml").read_text(encoding="utf-8")


def source_of(name: str | Path) -> tuple[str, str, Path | None]:
    """Return the text, the file name and the folder of a description; the folder is None if it comes with bide."""
    if isinstance(name, str) and not (name.endswith(".toml") or "/" in name):
        return text_of(name), f"{name}.toml", None
    path = Path(name)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise SetupError(f"The description {path} cannot be read: {reason}") from None
    return text, str(path), path.parent


def load(name: str | Path, url: str | None = None, approve: Approve | None = None) -> Api:
    """Return an API by its name, or from a file; `url` replaces the URL in the description.

    `approve` is called before the description is used, and may raise.
    """
    text, file, folder = source_of(name)
    if approve is not None:
        approve(form_of(text, file), text, file, folder)
    return read(text, file, url, folder)


def form_of(text: str, file: str) -> Description:
    """Parse a description without using it. BadDescription names the error and its line."""
    with _ONE_AT_A_TIME, located(text, file, "the description", Description) as tables:
        return msgspec.convert(tables, Description)


def read(text: str, file: str, url: str | None = None, folder: Path | None = None) -> Api:
    """Return the API of a description. BadDescription names the error and its line."""
    with _ONE_AT_A_TIME, located(text, file, "the description", Description) as tables:
        return Api(msgspec.convert(tables, Description), url, folder)


@contextmanager
def located(text: str, file: str, whole: str, form: Any) -> Iterator[dict[str, Any]]:
    """Return the tables of a TOML text of this form. Errors in it, or raised inside the context, get their line."""
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadDescription(file, _toml_line(error), str(error)) from None
    try:
        yield tables
    except msgspec.ValidationError as error:
        place, message = _placed(str(error), whole)
        raise BadDescription(file, line_of(text, place), message + choices(form, place)) from None
    except Misplaced as error:
        place = _narrowed(error.place, tables, str(error))
        raise BadDescription(file, line_of(text, place), f"[{error.place[0]}] {error}") from None


def _placed(message: str, whole: str) -> tuple[Place, str]:
    """Return the place in a message of msgspec, and the message reworded."""
    at = _AT.search(message)
    path = at["path"] if at else ""
    place: list[str | int] = [int(m[2]) if m[2] else m[1] for m in _STEP.finditer(path) if m[1] or m[2]]
    reason = message[: at.start()] if at else message
    field = _FIELD.search(reason)
    table = ".".join(str(p) for p in place if isinstance(p, str))
    if field is not None and "unknown" in reason:
        place.append(field["name"])
        return tuple(place), f"{f'[{table}]' if table else whole} has no `{field['name']}`"
    if field is not None and "missing" in reason:
        return tuple(place), f"{f'[{table}]' if table else whole} lacks `{field['name']}`"
    return tuple(place), f"`{table}`: {reason[:1].lower()}{reason[1:]}"


def choices(form: Any, place: Place) -> str:
    """List the values that a field permits, if it permits only some; else an empty text."""
    found = msgspec.inspect.type_info(form)
    for step in place:
        inner = [one for part in _parts(found) if (one := _inside(part, step)) is not None]
        if not inner:
            return ""
        found = inner[0]
    values = [
        str(value)
        for part in _parts(found)
        if isinstance(part, msgspec.inspect.LiteralType)
        for value in part.values
    ]
    return f". Use {', '.join(values[:-1])} or {values[-1]}" if len(values) > 1 else ""


def _parts(form: Any) -> tuple[Any, ...]:
    return form.types if isinstance(form, msgspec.inspect.UnionType) else (form,)


def _inside(form: Any, step: str | int) -> Any:
    """The type of a field, of an item or of a value; None if there is none."""
    if isinstance(form, msgspec.inspect.StructType):
        return next((field.type for field in form.fields if field.encode_name == step), None)
    if isinstance(form, msgspec.inspect.DictType):
        return form.value_type
    items = msgspec.inspect.ListType | msgspec.inspect.VarTupleType
    return form.item_type if isinstance(form, items) else None


def _narrowed(place: Place, tables: Any, message: str) -> Place:
    """Return the place of the field that a message mentions by name or by value."""
    for step in place:
        if isinstance(tables, dict):
            tables = tables.get(step)
        elif isinstance(tables, list) and isinstance(step, int):
            tables = tables[step]
    if isinstance(tables, dict):
        for name in tables:
            if f"`{name}`" in message:
                return (*place, name)
        for quoted in (repr, str):  # a value in quotes is a sure match, so look for it first
            for name, value in tables.items():
                if any(quoted(text) in message for text in _texts(value)):
                    return (*place, name)
    return place


def _texts(value: Any) -> list[str]:
    if isinstance(value, dict | list):
        inner = [*value, *value.values()] if isinstance(value, dict) else value
        return [text for one in inner for text in _texts(one)]
    return [value] if isinstance(value, str) and len(value) > 2 else []


def _toml_line(error: tomllib.TOMLDecodeError) -> int | None:
    found = re.search(r"at line (\d+)", str(error))
    return int(found[1]) if found else None
