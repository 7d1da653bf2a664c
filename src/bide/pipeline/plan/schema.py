"""The schema of a dataset: the names, sources and types of its columns, and what happens to bad rows.

1. A schema is checked when it is read, so that an error does not appear in the middle of a large file.
2. It contains no secret, only the variable or file that has it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Literal
from zoneinfo import ZoneInfo

import msgspec

from bide.client.apis.form import Secret, Table
from bide.client.apis.loader import choices
from bide.client.apis.toml_lines import Misplaced, Place

Type = Literal["string", "integer", "float", "decimal", "boolean", "date", "timestamp", "json"]
EPOCHS = ("epoch", "epoch-ms")
NEWEST = "newest by "
_MIB = 1 << 20
_STEP = re.compile(r"\.?([^.\[\]`]+)|\[(\d+)\]")


class Column(Table, frozen=True, kw_only=True):
    """One column of the output."""

    name: str
    sources: str | list[str] = msgspec.field(default="", name="from")
    type: Type = "string"
    required: bool = False
    format: str | None = None
    zone: str | None = None
    places: int = 2
    personal: Literal["mask", "hash", "drop"] | None = None
    null: tuple[str, ...] = ()

    @property
    def alternatives(self) -> tuple[str, ...]:
        """Its names in the source. The first that the source has counts."""
        return (self.sources or self.name,) if isinstance(self.sources, str) else tuple(self.sources)


class CsvTable(Table, frozen=True, kw_only=True):
    """The dialect of CSV."""

    delimiter: str | None = None
    quote: str = '"'


class SchemaLimits(Table, frozen=True, kw_only=True):
    """Limits that protect the machine from huge files."""

    columns: int = 10_000
    record: int = _MIB  # bytes of one record; memory holds several
    unpacked: int = 64 * 1024 * _MIB  # bytes of one source
    ratio: int = 200  # of unpacked to packed bytes


class Schema(Table, frozen=True, kw_only=True):
    """A schema. `read_schema` makes one."""

    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()
    keep: str = "last"
    bad_rows: Literal["refuse", "dead-letter", "null"] = "refuse"
    new_columns: Literal["ignore", "keep", "refuse"] = "ignore"
    missing_columns: Literal["null", "refuse"] = "null"
    cursor: str | None = None
    null: tuple[str, ...] = ("",)
    zone: str = "UTC"
    secret: Secret = Secret()
    csv: CsvTable = CsvTable()
    limits: SchemaLimits = SchemaLimits()

    @property
    def newest(self) -> str | None:
        """The column of `newest by COLUMN`."""
        return self.keep.removeprefix(NEWEST).strip() if self.keep.startswith(NEWEST) else None

    def column(self, name: str) -> Column:
        return next(column for column in self.columns if column.name == name)


TABLES: dict[str, type[Table]] = {
    "Schema": Schema,
    "schema.columns": Column,
    "schema.csv": CsvTable,
    "schema.limits": SchemaLimits,
}


def read_schema(table: Any, where: str | Place, folder: Path | None = None) -> Schema:
    """A schema from a TOML table. `where` is its place in the file, or a text for messages.

    With a place, a Misplaced error has the place of the wrong field, from which the caller finds the line. With a text, a
    ValueError begins with it. The file of a secret is relative to `folder`.
    """
    try:
        try:
            schema = msgspec.convert(table, Schema)
        except msgspec.ValidationError as error:
            raise _misplaced(str(error)) from None
        check(schema)
    except Misplaced as error:
        if isinstance(where, str):
            raise ValueError(f"{where}: {_column_of(table, error.place)}{error}") from None
        raise Misplaced((*where, *error.place), f"{_column_of(table, error.place)}{error}") from None
    if schema.secret.file is not None and folder is not None:
        file = str(folder / Path(schema.secret.file).expanduser())
        secret = msgspec.structs.replace(schema.secret, file=file)
        schema = msgspec.structs.replace(schema, secret=secret)
    return schema


def _misplaced(message: str) -> Misplaced:
    """The place and the message of an error of msgspec."""
    said, _, path = message.partition(" - at `$")
    place: list[str | int] = [int(m[2]) if m[2] else m[1] for m in _STEP.finditer(path.rstrip("`"))]
    field = re.search(r"field `(?P<name>[^`]+)`", said)
    if field is not None and "unknown" in said:
        return Misplaced((*place, field["name"]), f"`{field['name']}` is not a field")
    if field is not None:
        return Misplaced(tuple(place), f"`{field['name']}` is missing")
    name = next((step for step in reversed(place) if isinstance(step, str)), "schema")
    permitted = choices(Schema, tuple(place))
    return Misplaced(tuple(place), f"`{name}`: {said[:1].lower()}{said[1:]}{permitted}")


def _column_of(table: Any, place: Place) -> str:
    """The column of a place, by name: a reader does not count tables."""
    match place:
        case ("columns", int(index), *_):
            try:
                return f"column {table['columns'][index]['name']!r}: "
            except (KeyError, TypeError, IndexError):
                return f"column {index + 1}: "
    return ""


def check(schema: Schema) -> None:
    """Misplaced says what is wrong with the schema."""
    if not schema.columns:
        raise Misplaced(("columns",), "there are no columns. Add [[schema.columns]]")
    seen: set[str] = set()
    for index, column in enumerate(schema.columns):
        if column.name in seen:
            raise Misplaced(
                ("columns", index, "name"), f"another column has the `name` {column.name!r}, too"
            )
        seen.add(column.name)
        _check_column(column, ("columns", index))
        if column.personal == "hash" and schema.secret == Secret():
            raise Misplaced(
                ("columns", index, "personal"),
                '`personal` "hash" needs a key. Add [schema.secret] with env = "NAME" or file = "PATH"',
            )
    _check_zone(schema.zone, ("zone",))
    _check_key(schema)
    if schema.cursor is not None:
        column = _named(schema, schema.cursor, ("cursor",))
        if column.type not in ("integer", "date", "timestamp", "string"):
            raise Misplaced(("cursor",), f"`cursor` cannot be of type {column.type}")
    for name, one in (("delimiter", schema.csv.delimiter), ("quote", schema.csv.quote)):
        if one is not None and (len(one) != 1 or not one.isascii() or one in "\r\n"):
            raise Misplaced(("csv", name), f"`{name}` must be one ASCII character")
    for name in SchemaLimits.__struct_fields__:
        if getattr(schema.limits, name) < 1:
            raise Misplaced(("limits", name), f"`{name}` must be 1 or more")
    if schema.limits.record > 64 * _MIB:
        raise Misplaced(
            ("limits", "record"), "`record` can be 64 MiB at most, because memory holds several records"
        )


def _check_column(column: Column, place: Place) -> None:
    if not column.name or not column.name.isprintable():
        raise Misplaced((*place, "name"), "`name` is empty or has control characters")
    if not column.alternatives:
        raise Misplaced((*place, "from"), "`from` is empty. Remove it, or name a column of the source")
    if column.format is not None and column.type not in ("date", "timestamp"):
        raise Misplaced((*place, "format"), f"`format` is for dates and timestamps, not {column.type}")
    if column.format in EPOCHS and column.type != "timestamp":
        raise Misplaced((*place, "format"), f"`format` {column.format!r} is for timestamps")
    if column.format is not None and column.format not in EPOCHS and "%" not in column.format:
        raise Misplaced(
            (*place, "format"),
            '`format` must be a format of strptime, such as "%d/%m/%Y", epoch or epoch-ms',
        )
    if column.zone is not None and column.type != "timestamp":
        raise Misplaced((*place, "zone"), f"`zone` is for timestamps, not {column.type}")
    if column.zone is not None:
        _check_zone(column.zone, (*place, "zone"))
    if not 0 <= column.places <= 18:
        raise Misplaced((*place, "places"), "`places` must be from 0 to 18")


def _check_zone(zone: str, place: Place) -> None:
    try:
        ZoneInfo(zone)
    except (ValueError, OSError, LookupError):
        raise Misplaced(place, f"`zone` {zone!r} is not a time zone, such as Europe/Berlin") from None


def _check_key(schema: Schema) -> None:
    for name in schema.key:
        column = _named(schema, name, ("key",))
        if column.type in ("float", "json"):
            raise Misplaced(
                ("key",), f"`key`: {name!r} is of type {column.type}, which cannot be compared reliably"
            )
        if column.personal == "mask":
            raise Misplaced(
                ("key",), f"`key`: {name!r} is masked, so all rows would have the same key. Hash it"
            )
    if schema.newest is not None:
        _named(schema, schema.newest, ("keep",))
    elif schema.keep not in ("first", "last"):
        raise Misplaced(
            ("keep",), f'`keep` {schema.keep!r} must be "first", "last" or "newest by COLUMN"'
        )


def _named(schema: Schema, name: str, place: Place) -> Column:
    found = next((column for column in schema.columns if column.name == name), None)
    if found is None:
        known = ", ".join(column.name for column in schema.columns)
        raise Misplaced(place, f"`{place[0]}`: {name!r} is not a column. The columns are {known}")
    if found.personal == "drop":
        raise Misplaced(place, f"`{place[0]}`: {name!r} is dropped, so it cannot be used")
    if found.personal and place[0] != "key":
        raise Misplaced(place, f"`{place[0]}`: {name!r} is personal, so its values cannot be ordered")
    return found


def parts(path: str) -> list[str]:
    """The keys of a dotted path. A dot after a backslash belongs to its key."""
    return [part.replace("\\.", ".") for part in re.split(r"(?<!\\)\.", path)]


def escaped(name: str) -> str:
    """The path of one key."""
    return name.replace(".", "\\.")


def hash_key(schema: Schema) -> bytes | None:
    """The key of the hashes of personal values. SetupError if the schema needs one and it is missing."""
    if not any(column.personal == "hash" for column in schema.columns):
        return None
    from bide.client.apis.auth import read_secret
    from bide.core.errors import SetupError

    secret = read_secret(schema.secret, os.environ, Path(), "the key for hashes")
    if secret is None:
        names = [schema.secret.env] if isinstance(schema.secret.env, str) else schema.secret.env
        raise SetupError(
            f"no key to hash personal columns with. Set {' or '.join(names) or 'schema.secret'}"
        )
    return secret.encode()
