"""One value into its type, in plain Python: for the values that pyarrow does not take as they are.

A value is text (of CSV or JSON) or what JSON gives. Misfit says why it cannot be had; it never holds the value.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any
from zoneinfo import ZoneInfo

import msgspec

from bide.pipeline.plan.schema import Column, Schema

_TRUE = frozenset(("true", "t", "yes", "y", "on", "1"))
_FALSE = frozenset(("false", "f", "no", "n", "off", "0"))
_INTEGERS = range(-(1 << 63), 1 << 63)
_ENCODER = msgspec.json.Encoder(decimal_format="number")
_GREATEST = Decimal(10) ** 38


class Misfit(Exception):
    """A value does not fit its column; the message says why."""


def converter(column: Column, schema: Schema) -> Callable[[Any], Any]:
    """The function for a column. It is given neither null nor a null word."""
    match column.type:
        case "date":
            return lambda value: _date(value, column.format)
        case "timestamp":
            zone = ZoneInfo(column.zone or schema.zone)
            return lambda value: _timestamp(value, column.format, zone)
        case "decimal":
            return lambda value: _decimal(value, column.places)
        case _:
            return _PLAIN[column.type]


def _string(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, Decimal):
        return str(value)
    return as_json(value)


def as_json(value: Any) -> str:
    """A JSON value as compact text."""
    return _ENCODER.encode(value).decode()


def _integer(value: Any) -> int:
    if isinstance(value, str):
        text = value.strip()
        try:
            # Python would take 1_000 and other alphabets' digits too.
            found = int(text) if text.isascii() and "_" not in text else None
        except ValueError:
            found = None
    elif isinstance(value, bool):
        found = None
    elif isinstance(value, float | Decimal):
        found = int(value) if math.isfinite(value) and value == int(value) else None
    else:
        found = value if isinstance(value, int) else None
    if found is None:
        raise Misfit("not an integer")
    if found not in _INTEGERS:
        raise Misfit("an integer of more than 64 bits")
    return found


def _float(value: Any) -> float:
    found = math.nan
    if isinstance(value, str):
        text = value.strip()
        with contextlib.suppress(ValueError):
            found = float(text) if text.isascii() and "_" not in text else math.nan
    elif isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        try:
            found = float(value)
        except OverflowError:
            found = math.nan
    if not math.isfinite(found):
        raise Misfit("not a number")
    return found


def _decimal(value: Any, places: int) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, str | int | float | Decimal):
        raise Misfit("not a number")
    text = value.strip() if isinstance(value, str) else str(value)
    try:
        found = Decimal(text) if text.isascii() and "_" not in text else Decimal("NaN")
    except InvalidOperation:
        found = Decimal("NaN")
    if not found.is_finite():
        raise Misfit("not a number")
    if found.scaleb(places).copy_abs() >= _GREATEST:
        raise Misfit("a number of more than 38 digits")
    exponent = found.normalize().as_tuple().exponent
    if isinstance(exponent, int) and -exponent > places:
        raise Misfit(f"more than {places} decimal places")
    return found


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower() if isinstance(value, str | int) else ""
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise Misfit("not true or false")


def _date(value: Any, format: str | None) -> date:
    try:
        text = value.strip() if isinstance(value, str) else ""
        return datetime.strptime(text, format).date() if format else date.fromisoformat(text)
    except ValueError:
        raise Misfit(f"not a date like {format or 'YYYY-MM-DD'}") from None


def _timestamp(value: Any, format: str | None, zone: ZoneInfo) -> datetime:
    if format in ("epoch", "epoch-ms"):
        try:
            return datetime.fromtimestamp(_float(value) / (1000 if format == "epoch-ms" else 1), UTC)
        except (ValueError, OverflowError, OSError):
            raise Misfit("not an instant") from None
    try:
        text = value.strip() if isinstance(value, str) else ""
        found = datetime.strptime(text, format) if format else datetime.fromisoformat(text)
        if found.tzinfo is not None:
            return found.astimezone(UTC)
        local = found.replace(tzinfo=zone)
        instant = local.astimezone(UTC)
        if instant.astimezone(zone).replace(tzinfo=None) != found:
            raise Misfit(f"a time that {zone.key} skipped")
    except (ValueError, OverflowError):
        raise Misfit(f"not a timestamp like {format or 'YYYY-MM-DDTHH:MM:SS'}") from None
    return instant


def _json(value: Any) -> str:
    """Of text; a JSON source's values are JSON already."""
    try:
        return as_json(msgspec.json.decode(value))
    except msgspec.DecodeError:
        raise Misfit("not JSON") from None


_PLAIN: dict[str, Callable[[Any], Any]] = {
    "string": _string,
    "integer": _integer,
    "float": _float,
    "boolean": _boolean,
    "json": _json,
}
