"""Normalizing: bad rows, columns that come and go, personal values, dedupe, targets, and what the report says."""

from __future__ import annotations

import hashlib
import hmac
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bide.core.errors import SetupError
from bide.pipeline.rows import BadRows, BadSource, deduplication
from bide.pipeline.rows.target import Target
from tests.examples import examples
from tests.unit.pipeline_files import PipelineFolder, Row, as_csv, as_json, as_jsonl, schema, zipped


@pytest.fixture
def files(tmp_path: Path) -> PipelineFolder:
    return PipelineFolder(tmp_path)


# --- rows that do not fit

THREE_BAD = b"id,score,when\n1,5.5,2026-01-01\n2,high,2026-01-01\n3\nx,7,1.1.2026\n5,,\n"
SCORES = ("id:integer", "score:float", "when:date")


def test_a_bad_row_refuses_the_file(files: PipelineFolder) -> None:
    with pytest.raises(BadRows) as caught:
        files.run(schema(*SCORES), files.source(THREE_BAD, "gradebook 12"))
    assert str(caught.value) == (
        "a row does not fit the schema; nothing was published:\n  gradebook 12, row 3: too few cells"
    )
    with pytest.raises(BadRows, match="gradebook 12, row 2, column 'score': not a number: 'high'"):
        files.run(schema(*SCORES), files.source(THREE_BAD.replace(b"\n3\n", b"\n"), "gradebook 12"))
    assert files.left() == []


def test_bad_rows_go_to_a_dead_letter_file(files: PipelineFolder) -> None:
    report = files.run(schema(*SCORES, bad_rows="dead-letter"), files.source(THREE_BAD, "gradebook 12"))
    assert [row["id"] for row in files.rows()] == [1, 5]
    assert (report.read, report.rows, report.bad.rows) == (5, 2, 3)
    assert report.bad.counts == {
        "too few cells": 1,
        "not a number": 1,
        "not an integer": 1,
        "not a date like YYYY-MM-DD": 1,
    }
    assert report.bad.file == files.folder / "out.parquet.bad.jsonl"
    lines = [json.loads(line) for line in report.bad.file.read_text().splitlines()]
    assert lines[0] == {
        "source": "gradebook 12",
        "row": 3,
        "column": None,
        "reason": "too few cells",
        "raw": "3",
    }
    assert lines[1]["row"] == 2 and lines[1]["raw"] == {"id": "2", "score": "high", "when": "2026-01-01"}
    assert [(line["row"], line["column"]) for line in lines[2:]] == [(4, "id"), (4, "when")]


def test_a_bad_value_may_become_null(files: PipelineFolder) -> None:
    data = b"id,score\n1,5.5\n2,high\n"
    report = files.run(schema("id:integer", "score:float", bad_rows="null"), data)
    assert files.rows() == [{"id": 1, "score": 5.5}, {"id": 2, "score": None}]
    assert report.bad.counts == {"not a number": 1}
    assert files.left() == ["out.parquet"]


@pytest.mark.parametrize("more", [{"key": ["id"]}, {}])
def test_null_does_not_mend_what_is_required(files: PipelineFolder, more: dict[str, Any]) -> None:
    id = {"name": "id", "type": "integer", "required": not more}
    with pytest.raises(BadRows, match="row 2, column 'id': a value is required"):
        files.run(schema(id, "a", bad_rows="null", **more), b"id,a\n1,x\n,y\n")
    with pytest.raises(BadRows, match="null cannot replace the value"):
        files.run(schema(id, "a", bad_rows="null", **more), b"id,a\n1\n")


def test_invalid_utf8_is_a_bad_row(files: PipelineFolder) -> None:
    report = files.run(schema("id:integer", "a", bad_rows="dead-letter"), b"id,a\n1,\xe9t\xe9\n2,ok\n")
    assert files.rows() == [{"id": 2, "a": "ok"}]
    assert [str(one) for one in report.bad.examples] == [
        "export 1, row 1, column 'a': not UTF-8: '\ufffdt\ufffd'"
    ]


def test_rows_are_numbered_right_behind_broken_ones(files: PipelineFolder) -> None:
    lines = [b"id,a"]
    for number in range(1, 40_001):  # several chunks
        lines.append(
            b"%d" % number if number % 7 == 0 else b"x,1" if number % 11 == 0 else b"%d,1" % number
        )
    report = files.run(schema("id:integer", bad_rows="dead-letter"), b"\n".join(lines))
    told = [json.loads(line) for line in (report.bad.file or Path()).read_text().splitlines()]
    assert sorted(one["row"] for one in told if one["column"] is None) == list(range(7, 40_001, 7))
    assert sorted(one["row"] for one in told if one["column"] == "id") == [
        number for number in range(11, 40_001, 11) if number % 7
    ]


def test_examples_are_few_and_counts_are_whole(files: PipelineFolder) -> None:
    report = files.run(schema("id:integer", bad_rows="null"), as_jsonl([{"id": "x"}] * 5000))
    assert (report.bad.counts, len(report.bad.examples)) == ({"not an integer": 5000}, 5)


def test_an_old_dead_letter_file_does_not_stay(files: PipelineFolder) -> None:
    files.run(schema("id:integer", bad_rows="dead-letter"), b"id\nx\n")
    assert "out.parquet.bad.jsonl" in files.left()
    files.run(schema("id:integer", bad_rows="dead-letter"), b"id\n1\n")
    assert files.left() == ["out.parquet"]


# --- columns


def test_new_columns_are_reported_and_ignored_kept_or_refused(files: PipelineFolder) -> None:
    exports = (b"id,new.one\n1,a\n", as_json([{"id": 2, "two": {"a": 1}}, {"id": 3, "new.one": 5}]))
    report = files.run(schema("id:integer"), *exports)
    assert report.columns_new == ("new.one", "two")
    assert files.rows() == [{"id": 1}, {"id": 2}, {"id": 3}]
    files.run(schema("id:integer", new_columns="keep"), *exports)
    assert files.rows() == [
        {"id": 1, "new.one": "a", "two": None},
        {"id": 2, "new.one": None, "two": '{"a":1}'},
        {"id": 3, "new.one": "5", "two": None},
    ]
    with pytest.raises(BadSource, match=r"does not name: 'new\.one'"):
        files.run(schema("id:integer", new_columns="refuse"), *exports)


def test_a_column_that_appears_late_is_kept(files: PipelineFolder) -> None:
    rows: list[dict[str, Any]] = [{"id": n, "text": "x" * 100} for n in range(20_000)]
    rows[-1]["late"] = True
    assert files.run(schema("id:integer", "text", new_columns="keep"), as_json(rows)).columns_new == (
        "late",
    )
    assert files.rows()[-1]["late"] == "true"


def test_missing_columns_are_null_or_refused(files: PipelineFolder) -> None:
    exports = (b"id\n1\n", as_jsonl([{"id": 2}]))
    report = files.run(schema("id:integer", "score:float"), *exports)
    assert report.columns_missing == ("score",)
    assert files.rows() == [{"id": 1, "score": None}, {"id": 2, "score": None}]
    for file in exports:
        with pytest.raises(BadSource, match=r"columns are missing: 'score'\. It has 'id'"):
            files.run(schema("id:integer", "score:float", missing_columns="refuse"), file)
        with pytest.raises(BadSource, match="columns are missing: 'score'"):
            files.run(schema("id:integer", {"name": "score", "required": True}), file)


def test_constants_are_columns(files: PipelineFolder) -> None:
    one = files.source(b"id,term\n1,9\n", "a", constants={"course": "12", "term": "3"})
    two = files.source(b'[{"id": 2}]', "b", constants={"course": "13", "term": "3"})
    files.run(schema("id:integer", {"name": "course_id", "from": "course", "type": "integer"}), one, two)
    assert files.rows() == [
        {"id": 1, "course_id": 12, "term": "3"},
        {"id": 2, "course_id": 13, "term": "3"},
    ]


def test_a_constant_is_not_mixed_up_with_a_column(files: PipelineFolder) -> None:
    made = schema("id:integer", {"name": "course", "from": "Course"})
    with pytest.raises(SetupError, match="the constant 'course' has the name of a column"):
        files.run(made, files.source(b"id,Course\n1,x\n", constants={"course": "12"}))


def test_a_new_column_does_not_take_the_name_of_another(files: PipelineFolder) -> None:
    made = schema({"name": "id", "from": "sid"}, new_columns="keep")
    assert files.run(made, b"sid,id\n1,2\n").columns_new == ("id",)
    assert files.rows() == [{"id": "1"}]


@pytest.mark.parametrize("data", [b"<!DOCTYPE html>\n<html>\n", b'[{"error": "expired"}]'])
def test_a_file_without_any_of_the_columns_is_another_file(files: PipelineFolder, data: bytes) -> None:
    with pytest.raises(
        BadSource, match=r"it has none of the schema's columns, but '(<!DOCTYPE html>|error)'"
    ):
        files.run(schema("id", "name"), data)


def test_no_rows_is_a_file_with_columns(files: PipelineFolder) -> None:
    for data in (b"id,name\n", b"[]", b"id,name"):
        assert files.run(schema("id:integer", "name"), data).rows == 0
        assert files.rows() == []
    assert files.run(schema("id:integer", "name")).rows == 0


# --- personal values


def personal(how: str) -> dict[str, Any]:
    return {"name": "email", "personal": how}


def test_personal_values_are_hidden(files: PipelineFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADES_KEY", "a secret")
    rows: list[Row] = [
        {"id": 1, "email": "a@x.org"},
        {"id": 2, "email": None},
        {"id": 3, "email": "a@x.org"},
    ]
    secret = {"secret": {"env": "GRADES_KEY"}}
    expected = hmac.new(b"a secret", b"a@x.org", hashlib.sha256).hexdigest()
    for data in (as_json(rows), as_csv(rows, ["id", "email"])):
        files.run(schema("id:integer", personal("hash"), **secret), data)
        assert [row["email"] for row in files.rows()] == [expected, None, expected]
        files.run(schema("id:integer", personal("mask")), data)
        assert [row["email"] for row in files.rows()] == ["***", None, "***"]
        files.run(schema("id:integer", personal("drop")), data)
        assert files.rows() == [{"id": 1}, {"id": 2}, {"id": 3}]
    assert b"a secret" not in files.target.path.read_bytes()


@pytest.mark.parametrize("how", ["mask", "hash", "drop"])
def test_reports_of_bad_rows_have_no_personal_values(
    files: PipelineFolder, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRADES_KEY", "a secret")
    columns = ({"name": "born", "type": "date", "personal": how}, "id:integer")
    made = schema(*columns, bad_rows="dead-letter", secret={"env": "GRADES_KEY"})
    csv = b"id,born,phone\nx,1999-12-31,555-1\n2,31.12.1999,555-2\n3,1999-12-31,555-3,4\n"
    report = files.run(made, csv, b'[{"id": 1, "born": "1999-12-31" 555}]')
    assert report.bad.rows == 4 and report.bad.file is not None
    told = report.bad.file.read_text() + repr(report)
    assert not {word for word in ("1999", "555", "a secret") if word in told}
    assert '"born":"***"' in told


# --- dedupe

TWICE: list[Row] = [
    {"id": 1, "at": "2026-01-02", "v": "a"},
    {"id": 2, "at": "2026-01-01", "v": "b"},
    {"id": 1, "at": "2026-01-03", "v": "c"},
    {"id": 1, "at": None, "v": "d"},
]


@pytest.mark.parametrize(("keep", "expected"), [("first", "ab"), ("last", "bd"), ("newest by at", "bc")])
def test_of_equal_keys_one_is_kept(files: PipelineFolder, keep: str, expected: str) -> None:
    report = files.run(schema("id:integer", "at:date", "v", key=["id"], keep=keep), as_json(TWICE))
    assert "".join(row["v"] for row in files.rows()) == expected
    assert (report.rows, report.duplicates, report.read) == (2, 2, 4)


def test_the_same_export_twice_is_the_same_rows(files: PipelineFolder) -> None:
    made = schema("id:integer", "v", key=["id", "v"])
    data = as_csv([{"id": n % 50, "v": f"v{n}"} for n in range(3000)], ["id", "v"])
    files.run(made, data)
    once = files.target.path.read_bytes()
    assert files.run(made, data, data).duplicates == 3000
    assert sorted(map(repr, files.rows())) == sorted(
        repr({"id": n % 50, "v": f"v{n}"}) for n in range(3000)
    )
    assert files.run(made, zipped({"a": data, "b": data})).duplicates == 3000
    files.run(made, data)
    assert files.target.path.read_bytes() == once


@pytest.mark.parametrize("most", [4, 1 << 20])
def test_dedupe_is_what_a_dictionary_does(
    most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deduplication, "MOST_KEYS", most)
    files = PipelineFolder(tmp_path)
    row = st.tuples(
        st.integers(-3, 3) | st.sampled_from([2**63 - 1, -(2**63)]),
        st.sampled_from(["", "a", "b", "a\x1f", "ä"]).filter(bool),
        st.booleans(),
        st.dates().map(str),
        st.none() | st.integers(0, 3),
    )
    names = ["i", "s", "b", "d", "n"]
    columns = ("i:integer", "s", "b:boolean", "d:date", "n:integer", "at:integer")

    @examples(12)
    @given(
        st.lists(row, max_size=30),
        st.lists(st.sampled_from(names[:4]), unique=True, min_size=1),
        st.sampled_from(["first", "last", "newest by n"]),
    )
    def check(rows: list[tuple[Any, ...]], key: list[str], keep: str) -> None:
        made = [dict(zip(names, values, strict=True), at=at) for at, values in enumerate(rows)]
        files.run(schema(*columns, key=key, keep=keep), as_json(made))
        best: dict[tuple[Any, ...], dict[str, Any]] = {}
        for one in made:
            id = tuple(one[name] for name in key)
            old = best.get(id)
            newer = keep == "last" or (
                keep != "first"
                and old is not None
                and (-1 if one["n"] is None else one["n"]) >= (-1 if old["n"] is None else old["n"])
            )
            if old is None or newer:
                best[id] = one
        assert [one["at"] for one in files.rows()] == sorted(one["at"] for one in best.values())

    check()


def test_more_bytes_have_more_partitions() -> None:
    sizes = (0, 1, 10**8, 25 * 10**7, 10**9, 10**12)
    assert [deduplication.partitions(size) for size in sizes] == [16, 16, 16, 32, 128, 256]


# --- incremental


@pytest.mark.parametrize("format", ["parquet", "csv", "jsonl", "sqlite"])
def test_earlier_rows_are_kept_unless_there_are_new_ones(files: PipelineFolder, format: str) -> None:
    columns = (
        "id:integer",
        "text",
        "f:float",
        "d:decimal",
        "b:boolean",
        "day:date",
        {"name": "at", "type": "timestamp"},
        "j:json",
    )
    made = schema(*columns, key=["id"], cursor="at", keep="first")
    target = Target(files.folder / "out", format, "rows" if format == "sqlite" else None)
    full = {
        "text": 'a "b"\n,c',
        "f": 0.1,
        "d": "1.10",
        "b": True,
        "day": "2026-01-01",
        "at": "2026-01-01T10:00:00.5Z",
        "j": {"a": [1]},
    }
    empty = {"id": 2}
    first = files.run(made, as_json([{"id": 1, **full}, empty]), target=target)
    assert (first.rows, first.cursor) == (2, "2026-01-01T10:00:00.500000Z")
    once = target.path.read_bytes()
    again = files.run(made, as_json([{"id": 1, **full}]), target=target, previous=target.path)
    assert (again.rows, again.duplicates, again.cursor) == (2, 1, first.cursor)
    third = files.run(made, as_json([empty]), target=target, previous=target.path)
    assert (third.rows, third.duplicates, third.cursor) == (2, 1, first.cursor)
    if format != "sqlite":  # whose pages may lie elsewhere
        assert target.path.read_bytes() == once
    changed = files.run(
        made, b'[{"id": 1, "text": "new", "at": null}]', target=target, previous=target.path
    )
    assert (changed.rows, changed.cursor) == (2, None)


def test_an_older_row_does_not_replace_a_newer_one_of_before(files: PipelineFolder) -> None:
    made = schema("id:integer", "at:integer", key=["id"], keep="newest by at")
    files.run(made, b"id,at\n1,5\n2,5\n")
    files.run(made, b"id,at\n1,4\n2,6\n3,1\n", previous=files.target.path)
    assert files.rows() == [{"id": 1, "at": 5}, {"id": 2, "at": 6}, {"id": 3, "at": 1}]


def test_dead_letters_of_before_stay_and_are_not_doubled(files: PipelineFolder) -> None:
    made = schema("id:integer", key=["id"], bad_rows="dead-letter")
    for data in (b"id\n1\nx\n", b"id\ny\n2\n", b"id\ny\n2\n"):
        previous = files.target.path if files.target.path.exists() else None
        report = files.run(made, files.source(data, "export"), previous=previous)
    lines = (report.bad.file or Path()).read_text().splitlines()
    assert [json.loads(line)["raw"]["id"] for line in lines] == ["x", "y"]


def test_rows_of_another_schema_are_not_mixed_in(files: PipelineFolder) -> None:
    files.run(schema("id:integer", "a", key=["id"]), b"id,a\n1,x\n")
    with pytest.raises(SetupError, match="has a column 'a' that the schema no longer has"):
        files.run(schema("id:integer", key=["id"]), b"id\n2\n", previous=files.target.path)
    with pytest.raises(SetupError, match="the column 'a' as string, but the schema has int64"):
        files.run(schema("id:integer", "a:integer", key=["id"]), b"id\n2\n", previous=files.target.path)
    with pytest.raises(SetupError, match="`key` is missing"):
        files.run(schema("id:integer", "a"), b"id\n2\n", previous=files.target.path)
    for name, data in (("gone", None), ("damaged", b"PAR1 no")):
        path = files.folder / f"{name}.download"
        if data is not None:
            path.write_bytes(data)
        with pytest.raises(SetupError, match=f"{name}.download cannot be read as parquet"):
            files.run(schema("id:integer", "a", key=["id"]), b"id\n2\n", previous=path)
    files.run(schema("id:integer", "a", "b", key=["id"]), b"id,b\n2,y\n", previous=files.target.path)
    assert files.rows() == [{"id": 1, "a": "x", "b": None}, {"id": 2, "a": None, "b": "y"}]


# --- targets


def test_what_each_format_holds(files: PipelineFolder) -> None:
    made = schema("id:integer", "d:decimal", "b:boolean", {"name": "at", "type": "timestamp"}, "s")
    data = as_json(
        [
            {"id": 1, "d": 1.1, "b": True, "at": "2026-01-01T10:00+02:00", "s": 'a "b", c'},
            {"id": 2, "s": None},
        ]
    )
    csv, jsonl, db = (files.folder / name for name in ("o.csv", "o.jsonl", "o.db"))
    files.run(made, data, target=Target(csv, "csv"))
    assert csv.read_text() == (
        '"id","d","b","at","s"\n1,1.10,true,"2026-01-01T08:00:00Z","a ""b"", c"\n2,,,,\n'
    )
    files.run(made, data, target=Target(jsonl, "jsonl"))
    assert [json.loads(line) for line in jsonl.read_text().splitlines()] == [
        {"id": 1, "d": "1.10", "b": True, "at": "2026-01-01T08:00:00Z", "s": 'a "b", c'},
        {"id": 2, "d": None, "b": None, "at": None, "s": None},
    ]
    files.run(made, data, target=Target(db, "sqlite", 'odd "name"'))
    files.run(schema("id:integer"), b"id\n7\n", target=Target(db, "sqlite", "other"))
    connection = sqlite3.connect(db)
    assert connection.execute('SELECT * FROM "odd ""name"""').fetchall() == [
        (1, "1.10", 1, "2026-01-01T08:00:00Z", 'a "b", c'),
        (2, None, None, None, None),
    ]
    assert connection.execute("SELECT * FROM other").fetchall() == [(7,)]
    connection.close()


@pytest.mark.parametrize("format", ["parquet", "csv", "jsonl", "sqlite"])
def test_the_same_sources_give_the_same_bytes(files: PipelineFolder, format: str) -> None:
    data = as_csv([{"id": n, "v": n % 7} for n in range(30_000)], ["id", "v"])
    found = []
    for number in range(2):
        target = Target(files.folder / f"out{number}", format, "t" if format == "sqlite" else None)
        report = files.run(schema("id:integer", "v", key=["id"]), data, target=target)
        assert report.bytes == target.path.stat().st_size
        found.append(target.path.read_bytes())
    assert found[0] == found[1]


def test_the_cursor_is_the_highest_value(files: PipelineFolder) -> None:
    made = schema("n:integer", {"name": "at", "type": "timestamp"}, cursor="n")
    assert files.run(made, b"n,at\n3,\n12,\n7,\n").cursor == "12"
    assert files.run(made, b"n,at\n,\n").cursor is None
