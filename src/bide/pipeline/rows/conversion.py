"""Converts raw values to the types of the schema: a whole column at once where pyarrow can, otherwise value by value.

1. Both ways give the same result. A value that pyarrow would accept and Python would not is converted in Python.
2. A row is in the result as a whole or not at all.
3. The report of a bad row has no value of a personal column, and none of a column that the schema does not name.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from bide.pipeline.plan.schema import EPOCHS, Column, Schema, escaped, hash_key
from bide.pipeline.rows.bad_rows import BadRowLog
from bide.pipeline.rows.personal_values import MASK, PersonalHashes, masked
from bide.pipeline.rows.readers import BrokenRecord, Chunk
from bide.pipeline.rows.report import BadRow

_TRUE = frozenset(("true", "t", "yes", "y", "on", "1"))
_FALSE = frozenset(("false", "f", "no", "n", "off", "0"))
_INTEGERS = range(-(1 << 63), 1 << 63)
_ENCODER = msgspec.json.Encoder(decimal_format="number")
_GREATEST = Decimal(10) ** 38


class Misfit(Exception):
    """A value does not fit its column. The message says why and never holds the value."""


def value_converter(column: Column, schema: Schema) -> Callable[[Any], Any]:
    """The function that converts one value, a text or a JSON value, but neither null nor a null word."""
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
            # Python would accept 1_000 and the digits of other alphabets, too.
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
    """From text. Values of a JSON source are JSON already."""
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


# --- a column

INSTANT = pa.timestamp("us", "UTC")
_ARROW_ERRORS = (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError)
_ACCEPTED: dict[str, frozenset[type]] = {
    "integer": frozenset((int, type(None))),
    "float": frozenset((int, float, type(None))),
    "boolean": frozenset((bool, type(None))),
}

Misfits = dict[int, str]  # the reason by index


def arrow_type(column: Column) -> Any:
    """The type of a column before personal values are hidden."""
    match column.type:
        case "integer":
            return pa.int64()
        case "float":
            return pa.float64()
        case "decimal":
            return pa.decimal128(38, column.places)
        case "boolean":
            return pa.bool_()
        case "date":
            return pa.date32()
        case "timestamp":
            return INSTANT
        case _:
            return pa.string()


class ColumnConverter:
    """Converts the values of one column."""

    def __init__(self, column: Column, schema: Schema) -> None:
        self.column = column
        self.type = arrow_type(column)
        self._convert = value_converter(column, schema)
        self._words = pa.array(sorted({*schema.null, *column.null}), pa.string())
        self._own_words = pa.array(sorted(set(column.null) - set(schema.null)), pa.string())
        self._zone = column.zone or schema.zone

    def __call__(self, values: Any, is_text: bool) -> tuple[Any, Misfits]:
        """An array of the column's type, in which misfits are null.

        `is_text`: `values` is an array of bytes in which the schema's null words are null already. Otherwise it is a list of
        JSON values.
        """
        if is_text:
            return self._of_bytes(values)
        if self.column.type == "json":
            texts = [None if value is None else as_json(value) for value in values]
            return pa.array(texts, pa.string()), {}
        try:
            # pyarrow would truncate fractions, and read true as 1.
            accepted = _ACCEPTED.get(self.column.type)
            if accepted is not None and accepted >= set(map(type, values)):
                return self._checked(pa.array(values, self.type)), {}
            return self._of_texts(_nulled(pa.array(values, pa.string()), self._words))
        except _ARROW_ERRORS:
            return self._one_by_one(values)

    def _of_bytes(self, values: Any) -> tuple[Any, Misfits]:
        try:
            texts = values.cast(pa.string())
        except pa.ArrowInvalid:
            return self._of_invalid_bytes(values)
        return self._of_texts(_nulled(texts, self._own_words))

    def _of_invalid_bytes(self, values: Any) -> tuple[Any, Misfits]:
        """Some values are not UTF-8. They are misfits, and the others are converted."""
        texts: list[str | None] = []
        misfits: Misfits = {}
        for index, value in enumerate(values.to_pylist()):
            try:
                texts.append(None if value is None else value.decode())
            except UnicodeDecodeError:
                texts.append(None)
                misfits[index] = "not UTF-8"
        found, others = self._of_texts(_nulled(pa.array(texts, pa.string()), self._own_words))
        return found, misfits | others

    def _of_texts(self, texts: Any) -> tuple[Any, Misfits]:
        """From an array of texts in which null words are null."""
        if self.column.type == "string":
            return texts, {}
        if self.column.type != "json":
            try:
                return self._cast(texts), {}
            except _ARROW_ERRORS:
                pass
        # Values repeat, misfits most of all, so each distinct value is converted once.
        coded = texts.dictionary_encode()
        found, why = self._one_by_one(coded.dictionary.to_pylist())
        out = found.take(coded.indices)
        if not why:
            return out, {}
        misfits = {
            index: why[code]
            for index, code in enumerate(coded.indices.to_pylist())
            if code is not None and code in why
        }
        return out, misfits

    def _cast(self, texts: Any) -> Any:
        """All values at once. An error of pyarrow if one does not fit."""
        column = self.column
        if column.type == "timestamp":
            return self._instants(texts)
        if column.type == "date" and column.format is not None:
            return pc.strptime(texts, format=column.format, unit="s").cast(pa.date32())
        if column.type == "integer" and _has(texts, b"xX"):
            raise pa.ArrowInvalid("pyarrow reads 0x1F as a number")
        return self._checked(texts.cast(self.type))

    def _checked(self, found: Any) -> Any:
        """pyarrow reads `nan` and `inf` as numbers; the schema does not."""
        if (
            self.column.type == "float"
            and not pc.all(pc.is_finite(found)).as_py()
            and len(found) > found.null_count
        ):
            raise pa.ArrowInvalid("not finite")
        return found

    def _instants(self, texts: Any) -> Any:
        format = self.column.format
        if format in EPOCHS:
            return (
                texts.cast(pa.int64())
                .cast(pa.timestamp("ms" if format == "epoch-ms" else "s", "UTC"))
                .cast(INSTANT)
            )
        if format is None:
            try:
                return texts.cast(INSTANT)
            except pa.ArrowInvalid:
                local = texts.cast(pa.timestamp("us"))
        elif "%z" in format.lower() or "%f" in format:
            raise pa.ArrowInvalid("pyarrow cannot parse offsets and fractions")
        else:
            local = pc.strptime(texts, format=format, unit="us")
        # A repeated hour means its first occurrence. A skipped time is a misfit.
        return pc.assume_timezone(local, self._zone, ambiguous="earliest", nonexistent="raise").cast(
            INSTANT
        )

    def _one_by_one(self, values: list[Any]) -> tuple[Any, Misfits]:
        out: list[Any] = []
        misfits: Misfits = {}
        words = set(self._words.to_pylist())
        for index, value in enumerate(values):
            found = None
            if value is not None and not (isinstance(value, str) and value in words):
                try:
                    found = self._convert(value)
                except Misfit as misfit:
                    misfits[index] = str(misfit)
            out.append(found)
        return pa.array(out, self.type), misfits


def _has(texts: Any, letters: bytes) -> bool:
    """Whether the buffer of the texts has one of these bytes. It may also hold bytes beside them."""
    data = texts.buffers()[2]
    found = data.to_pybytes() if data is not None else b""
    return any(letter in found for letter in letters)


def _nulled(texts: Any, words: Any) -> Any:
    """The texts, with these words replaced by null."""
    if not len(words):
        return texts
    found = pc.equal(texts, words[0]) if len(words) == 1 else pc.is_in(texts, value_set=words)
    if not pc.any(found).as_py():
        return texts
    return pc.if_else(found, pa.scalar(None, pa.string()), texts)


# --- a chunk

LONGEST_VALUE = 80  # characters of a value in a report
REQUIRED = "a value is required"


@dataclass(frozen=True)
class OutputLayout:
    """The columns of the output: those of the schema, then constants that it does not name, then new columns."""

    schema: Schema
    constants: tuple[str, ...] = ()
    new: tuple[str, ...] = ()

    @property
    def columns(self) -> list[Column]:
        more = [Column(name=name, sources=[escaped(name)]) for name in (*self.constants, *self.new)]
        return [*self.schema.columns, *more]

    @property
    def fields(self) -> Any:
        return pa.schema(
            [
                pa.field(column.name, pa.string() if column.personal else arrow_type(column))
                for column in self.columns
                if column.personal != "drop"
            ]
        )


class ChunkConverter:
    """Converts chunks of raw columns to batches of the output. Bad rows go to the log."""

    def __init__(self, layout: OutputLayout, bad_rows: BadRowLog) -> None:
        schema = layout.schema
        self._columns = layout.columns
        self._fields = layout.fields
        self._conversions = {c.name: ColumnConverter(c, schema) for c in self._columns}
        self._needed = {c.name for c in self._columns if c.required} | set(schema.key)
        self._policy = schema.bad_rows
        self._bad_rows = bad_rows
        key = hash_key(schema)
        self._hash = PersonalHashes(key) if key is not None else None
        self._has_personal = any(column.personal for column in self._columns)

    def __call__(self, chunk: Chunk) -> Any:
        """A batch of the good rows."""
        for broken in chunk.broken:
            self._log_broken(chunk.source, broken)
        arrays: dict[str, Any] = {}
        misfits: dict[str, Misfits] = {}
        for column in self._columns:
            array, why = self._converted(column, chunk)
            if column.name in self._needed and array.null_count:
                why = dict.fromkeys(_nulls(array), REQUIRED) | why
            if why:
                misfits[column.name] = why
            arrays[column.name] = array
        batch = self._batch(arrays)
        return self._without_bad_rows(batch, chunk, misfits) if misfits else batch

    def _log_broken(self, source: str, broken: BrokenRecord) -> None:
        bad = [BadRow(source, broken.row, None, broken.reason)]
        text = None if self._has_personal else broken.text
        self._bad_rows.add(bad, lambda: text, left_out=True)

    def _converted(self, column: Column, chunk: Chunk) -> tuple[Any, Misfits]:
        for path in column.alternatives:
            if path in chunk.constants:
                array, why = self._conversions[column.name]([chunk.constants[path]], False)
                if why:
                    return pa.nulls(chunk.rows, array.type), dict.fromkeys(range(chunk.rows), why[0])
                return pa.repeat(array[0], chunk.rows), {}
        present = [chunk.columns[path] for path in column.alternatives if path in chunk.columns]
        if not present:
            return pa.nulls(chunk.rows, self._conversions[column.name].type), {}
        if chunk.is_text or len(present) == 1:
            return self._conversions[column.name](present[0], chunk.is_text)
        first = [
            next((v for v in values if v is not None), None) for values in zip(*present, strict=True)
        ]
        return self._conversions[column.name](first, False)

    def _batch(self, arrays: Mapping[str, Any]) -> Any:
        out = []
        for column in self._columns:
            array = arrays[column.name]
            if column.personal == "hash":
                assert self._hash is not None
                array = self._hash(array.cast(pa.string()))
            elif column.personal == "mask":
                array = masked(array)
            if column.personal != "drop":
                out.append(array)
        return pa.RecordBatch.from_arrays(out, schema=self._fields)

    def _without_bad_rows(self, batch: Any, chunk: Chunk, misfits: Mapping[str, Misfits]) -> Any:
        """Log the bad rows and return the batch without those that are left out."""
        by_row: dict[int, list[tuple[str, str]]] = {}
        for name, why in misfits.items():
            for index, reason in why.items():
                by_row.setdefault(index, []).append((name, reason))
        leave_out = self._policy != "null"
        out: set[int] = set()
        for index in sorted(by_row):
            bad = [
                BadRow(chunk.source, chunk.number(index), name, reason, self._shown(name, chunk, index))
                for name, reason in by_row[index]
            ]
            left_out = leave_out or any(name in self._needed for name, _ in by_row[index])
            if left_out:
                out.add(index)
            self._bad_rows.add(bad, partial(self._raw, chunk, index), left_out=left_out)
        if not out:
            return batch
        return batch.filter(pa.array([index not in out for index in range(batch.num_rows)]))

    def _shown(self, name: str, chunk: Chunk, index: int) -> str | None:
        column = next(c for c in self._columns if c.name == name)
        value = _raw_value(column, chunk, index)
        return None if column.personal or value is None else str(value)[:LONGEST_VALUE]

    def _raw(self, chunk: Chunk, index: int) -> Mapping[str, Any]:
        """A row of the source, by the names of the schema, without personal values."""
        raw: dict[str, Any] = {}
        for column in self._columns:
            value = _raw_value(column, chunk, index)
            raw[column.name] = MASK if column.personal and value is not None else value
        return raw


def _nulls(array: Any) -> Iterable[int]:
    return (index for index, valid in enumerate(array.is_valid().to_pylist()) if not valid)


def _raw_value(column: Column, chunk: Chunk, index: int) -> Any:
    for path in column.alternatives:
        if path in chunk.constants:
            return chunk.constants[path]
        if path not in chunk.columns:
            continue
        value = chunk.columns[path][index]
        if chunk.is_text:
            value = value.as_py()
            return value if value is None else value.decode(errors="replace")
        if value is not None:
            return value
    return None
