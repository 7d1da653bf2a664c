"""JSON, an array or lines, into chunks of columns of values, by msgspec's parser.

1. Never more than a run of records is in memory.
2. A record that is not JSON, or not an object, is broken; the others of its run are not.
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
from bide.pipeline.rows.readers.json_array import READ, find_array, finish, guesses, opening, records
from bide.pipeline.rows.report import BadSource

_BOM = b"\xef\xbb\xbf"
_SPACE = b" \t\r\n"
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def recognise(stream: ByteStream, path: str) -> str:
    """csv, json or jsonl, by how the content begins."""
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
        # A line that is not even over yet tells nothing: a record is written in one, a document rarely is.
        return "json" if newline else "jsonl"
    return "jsonl"


Records = tuple[list[Any], list[BrokenRecord]]


class RecordDecoder:
    """Texts into records of one type."""

    def __init__(self, record: Any, *, exact: bool = False) -> None:
        # A number with a fraction is a decimal only where it must be exact: that is slower.
        hook = _decimal if exact else None
        self._many: Any = msgspec.json.Decoder(list[record], float_hook=hook)
        self._one: Any = msgspec.json.Decoder(record, float_hook=hook)

    def run(self, data: bytes, end: int) -> list[Any] | None:
        """All records up to an end, with commas between them; None when it ends elsewhere, or one is none."""
        try:
            records: list[Any] = self._many.decode(b"".join((b"[", memoryview(data)[:end], b"]")))
            return records
        except _UNREADABLE:
            return None

    def lines(self, data: bytes) -> list[Any] | None:
        """All records of some lines; None when one of them is none."""
        try:
            records: list[Any] = self._one.decode_lines(data)
            return records
        except _UNREADABLE:
            return None

    def each(self, texts: list[bytes]) -> Records:
        """One by one, where not all are records; the broken ones with their place among them."""
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
    """What is wanted of records: the type to decode them to, and the columns of some of them."""

    def __init__(self, wanted: ColumnPaths, constants: Mapping[str, str]) -> None:
        paths = [path for path in wanted.paths if path not in constants]
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
        # All values in one list, then each so-manyth of them: twice as fast as asking each row for each of its fields.
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
    stream: ByteStream, name: str, wanted: ColumnPaths, path: str | None, constants: Mapping[str, str]
) -> Iterator[Chunk]:
    """`path` leads to the array in the document; None: one record a line."""
    columns = RecordColumns(wanted, constants)
    exact = any(column.type == "decimal" for column in wanted.schema.columns)
    first = 1
    for rows, found in runs(
        stream, name, path, RecordDecoder(columns.record, exact=exact), wanted.schema.limits
    ):
        broken = [BrokenRecord(first + one.row, one.reason, one.text) for one in found]
        skipped = [one.row for one in broken]
        yield Chunk(name, columns.of(rows), len(rows), first, skipped, broken, constants)
        first += len(rows) + len(broken)


def keys(
    stream: ByteStream, name: str, path: str | None, limits: SchemaLimits, *, whole: bool
) -> set[str]:
    """The keys of all records, or of those at the start."""
    found: set[str] = set()
    for rows, _ in runs(stream, name, path, RecordDecoder(dict[str, msgspec.Raw]), limits):
        found.update(*rows)
        if len(found) > limits.columns:
            raise BadSource(name, f"its records have more than {limits.columns} different keys")
        if not whole and rows:
            break
    return found


def runs(
    stream: ByteStream, name: str, path: str | None, decoder: RecordDecoder, limits: SchemaLimits
) -> Iterator[Records]:
    """Records in order, some at a time."""
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
    begins: bytes | None = None
    while True:
        # Twice as much when nothing was found in it, so that a long record is not gone through again and again.
        more = stream.read(max(READ, len(data)))
        data = data.lstrip(_SPACE) + more
        begins = begins or opening(data.lstrip(_SPACE))
        for end in guesses(data, begins):
            rows = decoder.run(data, end)
            if rows is not None:
                yield rows, []
                data = data[data.index(b",", end) + 1 :]
                break
        else:
            texts, taken, ended = records(data)
            if texts:
                joined = b",".join(texts)
                rows = decoder.run(joined, len(joined))
                yield (rows, []) if rows is not None else decoder.each(texts)
            data = data[taken:]
            if ended:
                stream.unread(data)
                return finish(stream, name, depth)
            if not more:
                raise BadSource(name, "the JSON document is cut off: the download is not whole")
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
    return f"a record is longer than {limit} bytes: raise `record` in [schema.limits] if it may"
