"""A column of a chunk into its type, all values at once where pyarrow can, one by one in Python where it cannot.

Both ways give the same: what pyarrow takes more lightly than values.py is sent there too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from bide.pipeline.plan.schema import EPOCHS, Column, Schema
from bide.pipeline.rows.values import Misfit, as_json, converter

INSTANT = pa.timestamp("us", "UTC")
_ERRORS = (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError)
_TAKEN: dict[str, frozenset[type]] = {
    "integer": frozenset((int, type(None))),
    "float": frozenset((int, float, type(None))),
    "boolean": frozenset((bool, type(None))),
}

Misfits = dict[int, str]  # why, by index
Convert = Callable[[Any, bool], tuple[Any, Misfits]]


def arrow_type(column: Column) -> Any:
    """What a column is before personal values are hidden."""
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
    """How the values of one column become what the schema says."""

    def __init__(self, column: Column, schema: Schema) -> None:
        self.column = column
        self.type = arrow_type(column)
        self._one = converter(column, schema)
        self._words = pa.array(sorted({*schema.null, *column.null}), pa.string())
        self._own_words = pa.array(sorted(set(column.null) - set(schema.null)), pa.string())
        self._zone = column.zone or schema.zone

    def __call__(self, values: Any, is_text: bool) -> tuple[Any, Misfits]:
        """An array of the column's type; an index that is a misfit is null in it.

        `is_text`: an array of bytes in which the schema's null words are nulls already; else a list of JSON values.
        """
        if is_text:
            return self._of_bytes(values)
        if self.column.type == "json":
            texts = [None if value is None else as_json(value) for value in values]
            return pa.array(texts, pa.string()), {}
        try:
            # pyarrow would cut off fractions, and count true as 1.
            if (taken := _TAKEN.get(self.column.type)) and taken >= set(map(type, values)):
                return self._checked(pa.array(values, self.type)), {}
            return self._of_texts(_nulled(pa.array(values, pa.string()), self._words))
        except _ERRORS:
            return self._singly(values)

    def _of_bytes(self, values: Any) -> tuple[Any, Misfits]:
        try:
            texts = values.cast(pa.string())
        except pa.ArrowInvalid:
            return self._of_damaged(values)
        return self._of_texts(_nulled(texts, self._own_words))

    def _of_damaged(self, values: Any) -> tuple[Any, Misfits]:
        """Some are not UTF-8: the rest is converted without them."""
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
        """An array of texts; null words are nulls."""
        if self.column.type == "string":
            return texts, {}
        if self.column.type != "json":
            try:
                return self._cast(texts), {}
            except _ERRORS:
                pass
        # Values repeat, and those that do not fit even more: each is looked at once.
        coded = texts.dictionary_encode()
        found, why = self._singly(coded.dictionary.to_pylist())
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
        """All at once; an error of pyarrow's when one does not fit."""
        column = self.column
        if column.type == "timestamp":
            return self._instants(texts)
        if column.type == "date" and column.format is not None:
            return pc.strptime(texts, format=column.format, unit="s").cast(pa.date32())
        if column.type == "integer" and _has(texts, b"xX"):
            raise pa.ArrowInvalid("pyarrow reads 0x1F as a number")
        return self._checked(texts.cast(self.type))

    def _checked(self, found: Any) -> Any:
        """pyarrow reads `nan` and `inf` as numbers."""
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
            raise pa.ArrowInvalid("pyarrow reads no offsets and no fractions")
        else:
            local = pc.strptime(texts, format=format, unit="us")
        # Of an hour that is there twice the first is meant; one that is not there is a misfit.
        return pc.assume_timezone(local, self._zone, ambiguous="earliest", nonexistent="raise").cast(
            INSTANT
        )

    def _singly(self, values: list[Any]) -> tuple[Any, Misfits]:
        out: list[Any] = []
        misfits: Misfits = {}
        words = set(self._words.to_pylist())
        for index, value in enumerate(values):
            found = None
            if value is not None and not (isinstance(value, str) and value in words):
                try:
                    found = self._one(value)
                except Misfit as misfit:
                    misfits[index] = str(misfit)
            out.append(found)
        return pa.array(out, self.type), misfits


def _has(texts: Any, letters: bytes) -> bool:
    """Whether one of these bytes is in some text, or near it in memory."""
    data = texts.buffers()[2]
    found = data.to_pybytes() if data is not None else b""
    return any(letter in found for letter in letters)


def _nulled(texts: Any, words: Any) -> Any:
    """Texts with some words as nulls."""
    if not len(words):
        return texts
    found = pc.equal(texts, words[0]) if len(words) == 1 else pc.is_in(texts, value_set=words)
    if not pc.any(found).as_py():
        return texts
    return pc.if_else(found, pa.scalar(None, pa.string()), texts)
