"""CSV: pyarrow parses it to columns of bytes. The header is parsed here, because it decides which columns are read.

1. A column is bytes until it is converted, so invalid UTF-8 makes a bad row and does not end the file.
2. A row with too many or too few cells is a broken record. It has a number and no columns.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyarrow import csv as arrow_csv

from bide.pipeline.plan.schema import CsvTable, Schema, parts
from bide.pipeline.rows.readers import BrokenRecord, Chunk, ColumnPaths
from bide.pipeline.rows.readers.archive import ByteStream
from bide.pipeline.rows.report import BadSource

BLOCK = 1 << 20  # bytes; a larger block is no faster and takes several times the memory
LONGEST_HEADER = 1 << 20
DELIMITERS = ",;\t|"
_LINE = re.compile(rb"[^\r\n]*(?:\r\n|\r|\n|\Z)")
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


def header(stream: ByteStream, name: str, csv_table: CsvTable, most: int) -> tuple[list[str], str]:
    """The names of the columns and the delimiter. Afterwards the stream is at the first row."""
    head = stream.read(1 << 16)
    if not head:
        raise BadSource(name, "it is empty and has no header")
    if head[:2] in _UTF16:
        raise BadSource(name, "it is UTF-16. Convert it to UTF-8")
    head = head.removeprefix(b"\xef\xbb\xbf")
    while (taken := _first_record(head, csv_table, whole=False)) is None:
        more = stream.read(1 << 16)
        if not more:
            taken = _first_record(head, csv_table, whole=True)
            break
        head += more
        if len(head) > LONGEST_HEADER:
            raise BadSource(
                name, f"its first line is longer than {LONGEST_HEADER} bytes. Check that it is CSV"
            )
    if taken is None:
        raise BadSource(name, "its header has a quote that is not closed")
    line, rest = head[:taken], head[taken:]
    try:
        text = line.decode()
    except UnicodeDecodeError:
        raise BadSource(name, "its header is not UTF-8. Convert the file") from None
    delimiter = csv_table.delimiter or _delimiter(text, csv_table.quote)
    if text.count(delimiter) >= most + text.count(csv_table.quote):
        raise BadSource(
            name,
            f"its header has more than {most} columns. Raise `columns` in [schema.limits] to allow it",
        )
    names = _names(text, name, delimiter, csv_table.quote)
    if len(names) > most:
        raise BadSource(
            name,
            f"its header has {len(names)} columns, more than {most}. Raise `columns` in [schema.limits] to allow it",
        )
    twice = sorted(one for one, count in Counter(names).items() if one and count > 1)
    if twice:
        raise BadSource(name, f"its header has columns twice: {', '.join(map(repr, twice[:5]))}")
    stream.unread(rest)
    return names, delimiter


def _names(text: str, name: str, delimiter: str, quote: str) -> list[str]:
    try:
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, quotechar=quote)
        found = next((row for row in reader if any(cell.strip() for cell in row)), None)
    except csv.Error as error:
        raise BadSource(name, f"its header cannot be parsed: {error}") from None
    if found is None:
        raise BadSource(name, "its header names no columns")
    return [one.strip() for one in found]


def _first_record(head: bytes, csv_table: CsvTable, *, whole: bool) -> int | None:
    """The end of the first record that is not blank. None if `head` does not have all of it."""
    quote = csv_table.quote.encode()
    at = quotes = 0
    blank = True
    while at < len(head):
        match = _LINE.match(head, at)
        assert match is not None
        end = match.end()
        if end == len(head) and not whole:
            return None  # the end may be the first half of a line break
        quotes += head.count(quote, at, end)
        blank = blank and not match[0].strip()
        at = end
        if quotes % 2 == 0 and not blank:
            return at
    return at if whole and quotes % 2 == 0 else None


def _delimiter(text: str, quote: str) -> str:
    outside = re.sub(f"{re.escape(quote)}[^{re.escape(quote)}]*{re.escape(quote)}", "", text)
    return max(DELIMITERS, key=outside.count)


def chunks(
    stream: ByteStream, name: str, column_paths: ColumnPaths, constants: Mapping[str, str]
) -> Iterator[Chunk]:
    schema = column_paths.schema
    names, delimiter = header(stream, name, schema.csv, schema.limits.columns)
    places = {name: f"c{index}" for index, name in enumerate(names) if name}
    # A path is the name of a column, with dots escaped or not: a cell has no fields.
    found = {path: places.get(path) or places.get(".".join(parts(path))) for path in column_paths.paths}
    used = {path: place for path, place in found.items() if place is not None and path not in constants}
    # Rows are counted even if no column is used.
    included = list(dict.fromkeys(used.values())) or ["c0"]
    broken: deque[BrokenRecord] = deque()

    def refuse(row: Any) -> str:
        reason = "too many cells" if row.actual_columns > row.expected_columns else "too few cells"
        broken.append(BrokenRecord(row.number, reason, row.text[:10_000]))
        return "skip"

    if not stream.peek(1):
        yield Chunk(
            name,
            {path: pa.array([], pa.binary()) for path in used},
            0,
            1,
            constants=constants,
            is_text=True,
        )
        return
    first = 1
    for batch in _batches(stream, name, names, delimiter, schema, included, refuse):
        last = first + batch.num_rows - 1
        here = []
        while broken and broken[0].row <= last + 1:
            here.append(broken.popleft())
            last += 1
        columns = {path: batch.column(column) for path, column in used.items()}
        skipped = [one.row for one in here]
        yield Chunk(name, columns, batch.num_rows, first, skipped, here, constants, is_text=True)
        first = last + 1
    if broken:
        columns = {path: pa.array([], pa.binary()) for path in used}
        yield Chunk(name, columns, 0, first, (), list(broken), constants, is_text=True)


def _batches(
    stream: ByteStream,
    name: str,
    names: list[str],
    delimiter: str,
    schema: Schema,
    included: list[str],
    refuse: Any,
) -> Iterator[Any]:
    columns = [f"c{index}" for index in range(len(names))]
    block = max(BLOCK, schema.limits.record)
    rows = 0
    try:
        reader = arrow_csv.open_csv(
            pa.PythonFile(stream, mode="r"),
            # pyarrow numbers the rows that it refuses only without threads.
            read_options=arrow_csv.ReadOptions(
                use_threads=False, block_size=block, column_names=columns
            ),
            parse_options=arrow_csv.ParseOptions(
                delimiter=delimiter,
                quote_char=schema.csv.quote,
                newlines_in_values=True,
                invalid_row_handler=refuse,
            ),
            convert_options=arrow_csv.ConvertOptions(
                check_utf8=False,
                column_types={column: pa.binary() for column in included},
                include_columns=included,
                null_values=list(schema.null),
                strings_can_be_null=True,
            ),
        )
        for batch in reader:
            rows += batch.num_rows
            yield batch
    except pa.ArrowInvalid as error:
        if "Empty CSV" in str(error):
            return
        if "straddling" in str(error):
            raise BadSource(
                name,
                f"after row {rows} there is a row of more than {block} bytes, or a quote that is not closed",
            ) from None
        raise BadSource(name, f"it is not CSV after row {rows}: {str(error)[:300]}") from None
