"""JSON, an array or lines: msgspec parses it to columns of values.

1. Memory holds one group of records at a time.
2. A record that is not JSON, or not an object, is a broken record. The others of its group are good.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

import msgspec
from msgspec.structs import astuple

from bide.pipeline.plan.schema import SchemaLimits, parts
from bide.pipeline.rows.readers import BrokenRecord, Chunk, ColumnPaths
from bide.pipeline.rows.readers.archive import ByteStream
from bide.pipeline.rows.readers.json_array import (
    READ,
    find_array,
    finish,
    guesses,
    record_start,
    records,
)
from bide.pipeline.rows.report import BadSource

_BOM = b"\xef\xbb\xbf"
_SPACE = b" \t\r\n"
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def recognise(stream: ByteStream, path: str) -> str:
    """csv, json or jsonl, by the beginning of the content."""
    start = stream.peek(READ).removeprefix(_BOM).lstrip(_SPACE)
    if start[:1] == b"[":
        return "json"
    if start[:1] != b"{":
        return "csv"
    if path:
        return "json"
    line, newline, _ = start.partition(b"\n")
    try:
        msgspec.json.decode(line)
    except _UNREADABLE:
        # A line longer than what was read is probably a record: a document rarely has lines that long.
        return "json" if newline else "jsonl"
    return "jsonl"


Records = tuple[list[Any], list[BrokenRecord]]  # a group of records: the good ones and the broken ones


class RecordDecoder:
    """Decodes records of one type."""

    def __init__(self, record: Any, *, exact: bool = False) -> None:
        # Numbers with a fraction become decimals only if the schema has decimals, because that is slower.
        hook = _decimal if exact else None
        self._many: Any = msgspec.json.Decoder(list[record], float_hook=hook)
        self._one: Any = msgspec.json.Decoder(record, float_hook=hook)

    def array(self, data: bytes, end: int) -> list[Any] | None:
        """The records up to `end`, separated by commas. None if `end` is inside a record, or one is broken."""
        try:
            records: list[Any] = self._many.decode(b"".join((b"[", memoryview(data)[:end], b"]")))
            return records
        except _UNREADABLE:
            return None

    def lines(self, data: bytes) -> list[Any] | None:
        """The records of these lines. None if one is broken."""
        try:
            records: list[Any] = self._one.decode_lines(data)
            return records
        except _UNREADABLE:
            return None

    def each(self, texts: list[bytes]) -> Records:
        """Decode records one by one, if some are broken. The row of a broken record is its index in `texts`."""
        good, broken = [], []
        for number, text in enumerate(texts):
            try:
                good.append(self._one.decode(text))
            except _UNREADABLE as error:
                broken.append(BrokenRecord(number, _why(error), text[:10_000].decode(errors="replace")))
        return good, broken


def _why(error: Exception) -> str:
    if isinstance(error, msgspec.ValidationError):
        return "not an object"
    return "not UTF-8" if isinstance(error, UnicodeDecodeError) else "not JSON"


class RecordColumns:
    """The type to decode records to, and the columns of decoded records."""

    def __init__(self, column_paths: ColumnPaths, constants: Mapping[str, str]) -> None:
        paths = [path for path in column_paths.paths if path not in constants]
        tops: dict[str, str] = {}
        for path in paths:
            tops.setdefault(parts(path)[0], f"f{len(tops)}")
        self.record = msgspec.defstruct(
            "Record",
            [(field, Any, None) for field in tops.values()],
            rename={field: top for top, field in tops.items()},
            gc=False,
        )
        order = list(tops)
        self._at = {path: (order.index(parts(path)[0]), parts(path)[1:]) for path in paths}
        self._width = len(order)

    def of(self, rows: list[Any]) -> dict[str, list[Any]]:
        # One list of all values, sliced with a step: twice as fast as reading each field of each row.
        values = list(chain.from_iterable(map(astuple, rows)))
        return {
            path: [_walk(value, inner) for value in values[at :: self._width]]
            if inner
            else values[at :: self._width]
            for path, (at, inner) in self._at.items()
        }


def _decimal(text: str) -> Any:
    from decimal import Decimal

    return Decimal(text)


def _walk(value: Any, keys: list[str]) -> Any:
    for key in keys:
        if type(value) is dict:
            value = value.get(key)
        elif type(value) is list and key.isdecimal():
            value = value[int(key)] if int(key) < len(value) else None
        else:
            return None
    return value


def chunks(
    stream: ByteStream,
    name: str,
    column_paths: ColumnPaths,
    path: str | None,
    constants: Mapping[str, str],
) -> Iterator[Chunk]:
    """`path` is the path of the array in the document. None: one record per line."""
    columns = RecordColumns(column_paths, constants)
    exact = any(column.type == "decimal" for column in column_paths.schema.columns)
    first = 1
    for rows, found in groups(
        stream, name, path, RecordDecoder(columns.record, exact=exact), column_paths.schema.limits
    ):
        broken = [BrokenRecord(first + one.row, one.reason, one.text) for one in found]
        skipped = [one.row for one in broken]
        yield Chunk(name, columns.of(rows), len(rows), first, skipped, broken, constants)
        first += len(rows) + len(broken)


def keys(
    stream: ByteStream, name: str, path: str | None, limits: SchemaLimits, *, whole: bool
) -> set[str]:
    """The keys of all records, or of the first group only."""
    found: set[str] = set()
    for rows, _ in groups(stream, name, path, RecordDecoder(dict[str, msgspec.Raw]), limits):
        found.update(*rows)
        if len(found) > limits.columns:
            raise BadSource(
                name,
                f"it has more than {limits.columns} different keys. Raise `columns` in [schema.limits] to allow it",
            )
        if not whole and rows:
            break
    return found


def groups(
    stream: ByteStream, name: str, path: str | None, decoder: RecordDecoder, limits: SchemaLimits
) -> Iterator[Records]:
    """The records in order, in groups."""
    if stream.peek(3) == _BOM:
        stream.read(3)
    if path is None:
        return _lines(stream, name, decoder, limits.record)
    return _array(stream, name, path, decoder, limits.record)


def _array(
    stream: ByteStream, name: str, path: str, decoder: RecordDecoder, limit: int
) -> Iterator[Records]:
    depth = find_array(stream, name, path)
    data = b""
    start: bytes | None = None
    while True:
        # Reads double the amount if it had no complete record, so that a long record is not scanned over and over.
        more = stream.read(max(READ, len(data)))
        data = data.lstrip(_SPACE) + more
        start = start or record_start(data.lstrip(_SPACE))
        for end in guesses(data, start):
            rows = decoder.array(data, end)
            if rows is not None:
                yield rows, []
                data = data[data.index(b",", end) + 1 :]
                break
        else:
            texts, taken, ended = records(data)
            if texts:
                joined = b",".join(texts)
                rows = decoder.array(joined, len(joined))
                yield (rows, []) if rows is not None else decoder.each(texts)
            data = data[taken:]
            if ended:
                stream.unread(data)
                return finish(stream, name, depth)
            if not more:
                raise BadSource(name, "the JSON document is truncated: the download is incomplete")
            if not texts and len(data) > limit:
                raise BadSource(name, _too_long(limit))


def _lines(stream: ByteStream, name: str, decoder: RecordDecoder, limit: int) -> Iterator[Records]:
    data = b""
    while True:
        more = stream.read(READ)
        data += more
        end = data.rfind(b"\n") + 1 if more else len(data)
        if not end and len(data) > limit:
            raise BadSource(name, _too_long(limit))
        if end:
            rows = decoder.lines(data[:end])
            if rows is not None:
                yield rows, []
            else:
                yield decoder.each([line for line in data[:end].split(b"\n") if line.strip(_SPACE)])
        data = data[end:]
        if not more:
            return


def _too_long(limit: int) -> str:
    return f"a record is longer than {limit} bytes. Raise `record` in [schema.limits] to allow it"
