"""Reading: whatever way rows are written and packed, the same rows come out; and what must be refused is, with reason."""

from __future__ import annotations

import gzip
import json
import random
import tempfile
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bide.pipeline.rows import BadSource
from bide.pipeline.rows.readers.json_array import GUESSES, READ, guesses, record_start, records
from tests.examples import examples
from tests.unit.pipeline_files import (
    PipelineFolder,
    Row,
    as_csv,
    as_json,
    as_jsonl,
    packed,
    schema,
    zipped,
)

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=8)
NASTY = st.sampled_from(
    ['"', '""', "a,b", "a\nb", "\r\n", '},{"a":1', "[", "]", "\\", ';"', " ", "null"]
)
ROWS = st.lists(
    st.fixed_dictionaries(
        {"a": TEXTS | NASTY | st.none(), "b, c": TEXTS | NASTY, "d": st.integers(0, 9)}
    ),
    max_size=8,
)
NAMES = ["a", "b, c", "d"]


@pytest.fixture
def files(tmp_path: Path) -> PipelineFolder:
    return PipelineFolder(tmp_path)


@pytest.mark.parametrize("how", ["plain", "gzip", "zip"])
@pytest.mark.parametrize("format", ["csv", "json", "jsonl"])
def test_rows_come_out_as_they_went_in(format: str, how: str) -> None:
    @examples(20)
    @given(ROWS, st.booleans())
    def check(rows: list[dict[str, Any]], told: bool) -> None:
        data = {
            "csv": lambda: as_csv(rows, NAMES),
            "json": lambda: as_json(rows, indent=2 if told else None),
            "jsonl": lambda: as_jsonl(rows),
        }[format]()
        if format == "jsonl" and not rows:
            return  # nothing to recognise it by
        with tempfile.TemporaryDirectory() as folder:
            files = PipelineFolder(Path(folder))
            source = files.source(packed(data, how), format=format if told else "auto")
            files.run(schema("a", "b, c", "d:integer"), source)
            assert files.rows() == [dict(row) for row in rows]

    check()


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_the_delimiter_is_found(files: PipelineFolder, delimiter: str) -> None:
    files.run(
        schema("id:integer", "b"),
        as_csv([{"id": 1, "b": "x;y|z"}], ["id", "b"], delimiter=delimiter),
    )
    assert files.rows() == [{"id": 1, "b": "x;y|z"}]


def test_the_schema_sets_delimiter_and_quote(files: PipelineFolder) -> None:
    files.run(schema("a:integer", "b", csv={"delimiter": "^", "quote": "'"}), b"a^b\n1^'x^y'\n")
    assert files.rows() == [{"a": 1, "b": "x^y"}]


@pytest.mark.parametrize("data", [b"id,name\n1,A\n", b'[{"id":1,"name":"A"}]', b'{"id":1,"name":"A"}\n'])
def test_a_byte_order_mark_is_skipped(files: PipelineFolder, data: bytes) -> None:
    files.run(schema("id:integer", "name"), b"\xef\xbb\xbf" + data)
    assert files.rows() == [{"id": 1, "name": "A"}]


def test_all_members_of_a_zip_are_read_but_what_macos_adds(files: PipelineFolder) -> None:
    data = zipped(
        {"a.csv": b"id\n1\n", "__MACOSX/._a.csv": b"\0\0", "b.jsonl": b'{"id": 2}\n', "sub/": b""}
    )
    assert files.run(schema("id:integer"), data).rows == 2
    assert files.rows() == [{"id": 1}, {"id": 2}]


def test_records_inside_of_a_document(files: PipelineFolder) -> None:
    document = {
        "meta": {"data": [{"id": 7}], "note": 'a "quoted" ]} text'},
        "page": {
            "data": {"rows": [{"id": 1, "rows": [{"id": 9}]}, {"id": 2}], "more": [{"id": 8}, {"id": 8}]}
        },
        "next": None,
    }
    files.run(
        schema("id:integer"), files.source(json.dumps(document).encode(), records="page.data.rows")
    )
    assert files.rows() == [{"id": 1}, {"id": 2}]


def test_dotted_paths_and_alternatives(files: PipelineFolder) -> None:
    who = {"name": "who", "from": ["user.name", "login", "tags.0"]}
    rows: list[Row] = [{"user": {"name": "A"}, "a.b": 1}, {"login": "B"}, {"user": 5, "tags": ["C"]}, {}]
    files.run(schema(who, {"name": "n", "from": "a\\.b", "type": "integer"}), as_json(rows))
    assert files.rows() == [
        {"who": "A", "n": 1},
        {"who": "B", "n": None},
        {"who": "C", "n": None},
        {"who": None, "n": None},
    ]


def test_a_dot_in_a_header_is_a_dot(files: PipelineFolder) -> None:
    files.run(schema({"name": "n", "from": "No."}, {"name": "m", "from": "a\\.b"}), b"No.,a.b\nx,y\n")
    assert files.rows() == [{"n": "x", "m": "y"}]


def test_one_column_of_a_source_may_be_several_of_the_result(files: PipelineFolder) -> None:
    two = ({"name": "x", "from": "a.b"}, {"name": "y", "from": "a\\.b", "type": "integer"})
    files.run(schema(*two), b"a.b\n7\n")
    assert files.rows() == [{"x": "7", "y": 7}]


def test_blank_lines_are_no_rows(files: PipelineFolder) -> None:
    data = b'\r\n  \nid,"na\nme"\n\n1,a\n\n2\n\n\n3,c\n\n'
    report = files.run(
        schema("id:integer", {"name": "x", "from": "na\nme"}, bad_rows="dead-letter"), data
    )
    assert files.rows() == [{"id": 1, "x": "a"}, {"id": 3, "x": "c"}]
    assert [(bad.row, bad.reason) for bad in report.bad.examples] == [(2, "too few cells")]


# --- an array is taken apart right


def nested(count: int, seed: int) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    return [
        {
            "id": number,
            "marks": [
                {"id": rng.randrange(9), "of": [{"id": 1}, {"id": 2}]} for _ in range(rng.randrange(5))
            ],
            "text": rng.choice(['},{"id":5', "\\", '\\"},', "plain", "[", "x" * rng.randrange(1, 300)]),
        }
        for number in range(count)
    ]


@pytest.mark.parametrize("indent", [None, 1])
def test_an_array_of_many_reads_with_arrays_inside(files: PipelineFolder, indent: int | None) -> None:
    rows = nested(16_000, 1)
    data = as_json(rows, indent)
    assert len(data) > 2 * READ
    files.run(schema("id:integer", "text"), data)
    assert files.rows() == [{"id": row["id"], "text": row["text"]} for row in rows]


@given(st.integers(1, 12), st.integers(0, 99), st.data())
def test_what_is_cut_anywhere_gives_whole_records_only(
    count: int, seed: int, data: st.DataObject
) -> None:
    rows = nested(count, seed)
    text = as_json(rows)[1:]
    cut = text[: data.draw(st.integers(0, len(text)))]
    found, taken, ended = records(cut)
    assert [json.loads(one) for one in found] == rows[: len(found)]
    assert ended == (cut == text)
    assert cut[:taken].rstrip(b", ]").count(b"{") == sum(one.count(b"{") for one in found)
    for end in list(guesses(cut, record_start(cut)))[:GUESSES]:
        try:
            assert (
                json.loads(b"[" + cut[:end] + b"]") == rows[: len(json.loads(b"[" + cut[:end] + b"]"))]
            )
        except json.JSONDecodeError:
            continue


def test_a_record_that_is_no_json_costs_only_itself(files: PipelineFolder) -> None:
    data = b'[{"id":1},{"id":NaN},{"id":3},5,{"id":"\xff"},{"id":6}]'
    report = files.run(schema("id:integer", bad_rows="dead-letter"), data)
    assert [row["id"] for row in files.rows()] == [1, 3, 6]
    assert [(bad.row, bad.reason) for bad in report.bad.examples] == [
        (2, "not JSON"),
        (4, "not an object"),
        (5, "not UTF-8"),
    ]


def test_a_line_that_is_no_json_costs_only_itself(files: PipelineFolder) -> None:
    report = files.run(schema("id:integer", bad_rows="dead-letter"), b'{"id":1}\n{"id":\n\n[]\n{"id":4}')
    assert [row["id"] for row in files.rows()] == [1, 4]
    assert [(bad.row, bad.reason) for bad in report.bad.examples] == [
        (2, "not JSON"),
        (3, "not an object"),
    ]


# --- what is refused


def refused(files: PipelineFolder, data: bytes, *columns: str, records: str = "", **more: Any) -> str:
    with pytest.raises(BadSource) as caught:
        files.run(
            schema(*(columns or ("id",)), **more), files.source(data, "gradebook 12", records=records)
        )
    assert files.left() == []
    assert str(caught.value).startswith("gradebook 12: ")
    return caught.value.message


def test_a_truncated_gzip(files: PipelineFolder) -> None:
    data = gzip.compress(as_csv([{"id": n} for n in range(5000)], ["id"]))
    assert "truncated" in refused(files, data[: len(data) // 2])


def test_a_damaged_gzip_and_zip(files: PipelineFolder) -> None:
    data = bytearray(gzip.compress(as_csv([{"id": n * n} for n in range(5000)], ["id"])))
    data[-6] ^= 255  # its checksum
    assert "damaged" in refused(files, bytes(data))
    archive = bytearray(zipped({"a.csv": as_csv([{"id": n * n} for n in range(5000)], ["id"])}))
    archive[2000] ^= 255
    assert "damaged" in refused(files, bytes(archive))
    assert "damaged or truncated" in refused(files, bytes(archive[:3000]))


def test_a_zip_bomb(files: PipelineFolder) -> None:
    rows = b"id\n" + b"1\n" * 10_000_000
    message = refused(files, zipped({"a.csv": rows}))
    assert "zip bomb" in message
    squeezed = zlib.compressobj(9, wbits=31)
    assert "zip bomb" in refused(files, squeezed.compress(rows) + squeezed.flush())


def test_an_archive_that_unpacks_to_too_much(files: PipelineFolder) -> None:
    rows = b"id\n" + b"".join(b"%d\n" % n for n in range(20_000))
    for how in ("gzip", "zip"):
        assert "unpacks to more than 50000 bytes" in refused(
            files, packed(rows, how), limits={"unpacked": 50_000}
        )


def test_an_archive_inside_of_an_archive(files: PipelineFolder) -> None:
    inner = zipped({"a.csv": b"id\n1\n"})
    assert "inside the archive" in refused(files, zipped({"inner.zip": inner}))
    assert "inside the archive" in refused(files, gzip.compress(gzip.compress(b"id\n1\n")))


def test_a_million_columns(files: PipelineFolder) -> None:
    header = ",".join(f"column{n}" for n in range(1_000_000)).encode()
    assert "longer than 1048576 bytes" in refused(files, header + b"\n")
    few = ",".join(f"c{n}" for n in range(10_001)).encode()
    assert "more than 10000" in refused(files, few + b"\n")
    keys = json.dumps([{f"k{n}": 1 for n in range(10_001)}]).encode()
    assert "more than 10000 different keys" in refused(files, keys, new_columns="keep")


def test_a_row_of_a_million_cells_is_one_bad_row(files: PipelineFolder) -> None:
    report = files.run(schema("a", bad_rows="dead-letter"), b"a,b\n1,2\n" + b"," * 500_000 + b"\n3,4\n")
    assert (report.rows, report.bad.counts) == (2, {"too many cells": 1})


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"id\n1\n" + b"x" * 3_000_000 + b"\n2\n", "a row of more than 1048576 bytes"),
        (b'id\n1\n"' + b"x\n" * 2_000_000, "not closed"),
        (b'{"id":1}\n{"id":"' + b"x" * 3_000_000, "longer than 1048576 bytes"),
        (b'[{"id":1},{"id":"' + b"x" * 3_000_000, "longer than 1048576 bytes"),
        (b'{"a":"' + b"x" * 9_000_000, "a text of more than 4194304 bytes"),
    ],
    ids=["csv", "quote", "jsonl", "json", "document"],
)
def test_a_line_that_never_ends(files: PipelineFolder, data: bytes, word: str) -> None:
    assert word in refused(files, data, records="rows" if data.startswith(b'{"a"') else "")


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"", "is empty"),
        (b"\n\n", "names no columns"),
        (b"id,name,id,name\n", "its header has columns twice: 'id', 'name'"),
        (b"\xff\xfei\x00d\x00", "UTF-16"),
        (b"na\xefve\n1\n", "not UTF-8"),
        (b'[{"id":1},{"id":2}', "truncated"),
        (b'[{"id":1}] {"id":2}', "data after the end"),
        (b'{\n "data": [{"id":1}]\n}', 'records = "data"'),
    ],
)
def test_files_that_are_not_whole_or_not_what_they_seem(
    files: PipelineFolder, data: bytes, word: str
) -> None:
    assert word in refused(files, data)


def test_a_document_that_is_cut_off_behind_its_records(files: PipelineFolder) -> None:
    assert "truncated" in refused(files, b'{"data": [{"id":1}], "next": {"page"', records="data")
    assert "no array at 'rows'" in refused(files, b'{"data": [{"id":1}]}', records="rows")


def test_a_file_that_is_not_there(files: PipelineFolder) -> None:
    source = files.source(b"")
    source.path.unlink()
    with pytest.raises(BadSource, match="No such file"):
        files.run(schema("id"), source)
