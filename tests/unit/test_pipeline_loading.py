"""A pipeline file: errors name the line, and a valid file makes the expected exports."""

from __future__ import annotations

from pathlib import Path

import pytest

from bide.core.errors import SetupError
from bide.pipeline.plan.form import SinceTable
from bide.pipeline.plan.loader import load_plan, read_plan
from bide.pipeline.run.exports import PublishedOutput, RunRecord, planned_exports, since_of

PIPELINE = """\
[api]
name = "canvas-report"
url = "https://canvas.example"

[[exports]]
name = "grades"
kind = "grade_export_csv"
input = { account_id = 1, parameters = { course = "{course}", term = "{term}" } }
each = { course = [12, 15], term = ["autumn", "spring"] }
columns = { course = "{course}" }

[[exports.schema.columns]]
name = "grade"
type = "float"

[exports.output]
path = "out/{term}.parquet"
"""
RUN = RunRecord(id="run1", period="2026-11-16", began=1.0)


def read(text: str = PIPELINE, folder: Path = Path("/nowhere")) -> list[object]:
    return list(planned_exports(read_plan(text, folder / "grades.toml"), RUN))


def changed(old: str, new: str) -> str:
    assert old in PIPELINE
    return PIPELINE.replace(old, new)


def test_every_combination_in_the_order_of_the_file() -> None:
    found = planned_exports(read_plan(PIPELINE, Path("/nowhere/grades.toml")), RUN)
    assert [one.export.name for one in found] == [
        "grades course=12 term=autumn",
        "grades course=12 term=spring",
        "grades course=15 term=autumn",
        "grades course=15 term=spring",
    ]
    assert found[0].input == {"account_id": 1, "parameters": {"course": 12, "term": "autumn"}}
    assert found[0].columns == {"course": "12"}
    assert found[0].path == Path("/nowhere/out/autumn.parquet")
    assert len({one.export.key for one in found}) == 4


def test_another_run_and_another_question_are_other_exports() -> None:
    def keys(text: str, run: RunRecord = RUN) -> set[str]:
        return {one.export.key for one in planned_exports(read_plan(text, Path("/n/g.toml")), run)}

    assert keys(PIPELINE) == keys(PIPELINE.replace("out/", "elsewhere/"))
    assert keys(PIPELINE) == keys(PIPELINE.replace('type = "float"', 'type = "string"'))
    assert not keys(PIPELINE) & keys(PIPELINE.replace("account_id = 1", "account_id = 2"))
    assert not keys(PIPELINE) & keys(PIPELINE, RunRecord(id="run2", period="x", began=1.0))


def test_values_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "courses.txt").write_text("# ours\n7\n\n 8 \n")
    (tmp_path / "grades.toml").write_text(changed("[12, 15]", '"@courses.txt"'))
    found = planned_exports(load_plan(tmp_path / "grades.toml"), RUN)
    assert {one.columns["course"] for one in found} == {"7", "8"}


@pytest.mark.parametrize(
    ("old", "new", "line", "reason"),
    [
        ('name = "canvas-report"', 'name = "canvas"', None, "There is no API 'canvas'"),
        ('name = "canvas-report"\n', "", 1, "give either `name`"),
        ('url = "https://canvas.example"\n', "", 1, "`url` is missing"),
        ('url = "', 'limit = "lots"\nurl = "', 3, "is not a limit"),
        ('name = "grades"\n', "", 5, "lacks `name`"),
        ("columns = {", "colums = {", 10, "has no `colums`"),
        ('course = "{course}", term', 'course = "{corse}", term', 8, "{corse} is not available here"),
        ("course = [12, 15]", "course = []", 9, "has no values"),
        ("course = [12, 15]", 'course = "all"', 9, "must be a list, @FILE"),
        ("course = [12, 15]", 'course = "@none.txt"', 9, "cannot be read"),
        ("course = [12, 15]", 'since = ["x"], course = [1]', 9, "cannot be the name of a value"),
        ("columns = {", 'failed = "ignore"\ncolumns = {', 10, "failed"),
        ("columns = {", "retries = -1\ncolumns = {", 10, "`retries` must be 0 or more, not -1"),
        ("columns = {", "since = {}\ncolumns = {", 10, "has no {since}"),
        ("columns = {", "result = { pages = {} }\ncolumns = {", 10, "`pages` needs"),
        ('columns = { course = "{course}" }', 'columns = { a = "{since}" }', 10, "{since}"),
        ('path = "out/{term}.parquet"', 'path = "out/{term}.xls"', 17, "`format` is missing"),
        ('path = "out/{term}.parquet"', 'path = "out/{x}.parquet"', 17, "is not available here"),
        ('path = "out/{term}.parquet"', 'path = "o.sqlite"', 16, "sqlite needs the name of a table"),
        ('path = "out/{term}.parquet"', 'path = "o.csv"\nmax_drop = "half"', 18, "max_drop"),
        ('path = "out/{term}.parquet"', 'path = "o.csv"\nmax_drop = "120%"', 18, "max_drop"),
        ('path = "out/{term}.parquet"', 'path = "o.csv"\nminimum_rows = -1', 18, "minimum_rows"),
        (
            "columns = {",
            "result = { pages = { link = true, may_be_absent = true } }\ncolumns = {",
            10,
            "`link` cannot be combined with `next`, `query`, `total` or `may_be_absent`. Remove them.",
        ),
        ('type = "float"', 'type = "number"', 14, "column 'grade'"),
        ("[[exports]]", "[[exports]", 5, "line 5"),
    ],
)
def test_a_mistake_is_reported_with_its_line(old: str, new: str, line: int | None, reason: str) -> None:
    with pytest.raises(SetupError) as raised:
        read(changed(old, new))
    assert reason in str(raised.value)
    if line is not None:
        assert f"line {line}" in str(raised.value)


def test_two_datasets_cannot_be_one_output() -> None:
    more = PIPELINE[PIPELINE.index("[[exports]]") :]
    with pytest.raises(SetupError, match=r"line 20: .*another dataset has the `name` 'grades'"):
        read(PIPELINE + "\n" + more)
    with pytest.raises(SetupError, match=r"line 31: .*another dataset has the `path`"):
        read(PIPELINE + "\n" + more.replace('"grades"', '"marks"'))


@pytest.mark.parametrize("value", ["../../etc", "a/b", "..", ""])
def test_no_value_leads_out_of_the_folder(value: str) -> None:
    with pytest.raises(SetupError, match="cannot be part of the path"):
        read(changed('"autumn"', f'"{value}"'))


def test_a_missing_pipeline_is_reported(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="cannot be read: No such file"):
        load_plan(tmp_path / "none.toml")


def test_where_an_incremental_run_begins() -> None:
    before = PublishedOutput(
        output="o", fingerprint="f", at=9.0, began=86400.0, cursor="2026-11-16T12:00:00Z"
    )
    assert since_of(SinceTable(start="2026-01-01"), None) == "2026-01-01"
    assert since_of(SinceTable(), before) == "2026-11-16T12:00:00Z"
    assert since_of(SinceTable(overlap=3600), before) == "2026-11-16T11:00:00.000Z"
    assert since_of(SinceTable(by="run", overlap=60), before) == "1970-01-01T23:59:00.000Z"
    never = PublishedOutput(output="o", fingerprint="f", at=9.0, began=None)
    assert since_of(SinceTable(by="run", start="s"), never) == "s"
    numbered = PublishedOutput(output="o", fingerprint="f", at=9.0, began=1.0, cursor="c17")
    assert since_of(SinceTable(), numbered) == "c17"
    with pytest.raises(SetupError, match="a timestamp"):
        since_of(SinceTable(overlap=1), numbered)
