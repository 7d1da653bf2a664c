"""A schema is read with errors that name the place; what could only fail later fails here."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from bide.client.apis.toml_lines import Misplaced, line_of
from bide.core.errors import SetupError
from bide.pipeline.plan.schema import Schema, hash_key, read_schema
from bide.pipeline.rows.target import Target

TEXT = """\
[schema]
key = ["id"]
keep = "newest by updated"
bad_rows = "dead-letter"
cursor = "updated"
zone = "Europe/Berlin"

[schema.secret]
env = "GRADES_KEY"
file = "key.txt"

[[schema.columns]]
name = "id"
from = ["student.id", "sid"]
type = "integer"

[[schema.columns]]
name = "updated"
type = "timestamp"
format = "%d/%m/%Y %H:%M"

[[schema.columns]]
name = "email"
personal = "hash"
"""


def read(text: str) -> Schema:
    return read_schema(tomllib.loads(text)["schema"], ("schema",))


def test_a_schema_as_it_is_written(tmp_path: Path) -> None:
    schema = read_schema(tomllib.loads(TEXT)["schema"], ("schema",), tmp_path)
    assert [column.name for column in schema.columns] == ["id", "updated", "email"]
    assert schema.column("id").alternatives == ("student.id", "sid")
    assert schema.column("email").alternatives == ("email",)
    assert (schema.newest, schema.cursor) == ("updated", "updated")
    assert schema.secret.file == str(tmp_path / "key.txt")


@pytest.mark.parametrize(
    ("before", "after", "line", "word"),
    [
        ('type = "integer"', 'type = "int"', 15, "column 'id': `type`: invalid enum value 'int'"),
        ('type = "integer"', 'typ = "integer"', 15, "column 'id': `typ` is not a field"),
        ('name = "id"\n', "", 12, "column 1: `name` is missing"),
        ('name = "email"', 'name = "id"', 23, "another column has the `name` 'id'"),
        ('key = ["id"]', 'key = ["nr"]', 2, "'nr' is not a column. The columns are id, updated, email"),
        ('key = ["id"]', 'key = "id"', 2, "`key`: expected `array`"),
        ('"newest by updated"', '"newest"', 3, '"newest by COLUMN"'),
        ('"newest by updated"', '"newest by x"', 3, "'x' is not a column"),
        ('"dead-letter"', '"ignore"', 4, "`bad_rows`: invalid enum value 'ignore'"),
        ('cursor = "updated"', 'cursor = "mail"', 5, "`cursor`: 'mail' is not a column"),
        ('cursor = "updated"', 'cursor = "email"', 5, "`cursor`: 'email' is personal"),
        ('"Europe/Berlin"', '"Berlin"', 6, "`zone` 'Berlin' is not a time zone"),
        ('"%d/%m/%Y %H:%M"', '"DD/MM"', 20, "`format` must be a format of strptime"),
        ('type = "integer"', 'type = "integer"\nzone = "UTC"', 16, "`zone` is for timestamps"),
        ('type = "integer"', 'type = "float"', 2, "'id' is of type float"),
        ('personal = "hash"', 'personal = "drop"\nplaces = 40', 25, "`places` must be"),
        ('[schema.secret]\nenv = "GRADES_KEY"\nfile = "key.txt"\n', "", 21, "[schema.secret]"),
        ("[schema.secret]", '[schema.csv]\nquote = "ab"\n[schema.secret]', 9, "`quote` must be one"),
        ("[schema.secret]", "[schema.limits]\nratio = 0\n[schema.secret]", 9, "`ratio` must be 1"),
    ],
)
def test_a_mistake_is_reported_with_its_place(before: str, after: str, line: int, word: str) -> None:
    assert before in TEXT
    text = TEXT.replace(before, after, 1)
    with pytest.raises(Misplaced) as caught:
        read(text)
    assert word in str(caught.value)
    assert line_of(text, caught.value.place) == line


def test_a_place_may_be_deeper_in_a_file_or_a_text() -> None:
    table: dict[str, Any] = {"columns": [{"name": "a"}, {"name": "b", "type": "number"}]}
    with pytest.raises(Misplaced) as caught:
        read_schema(table, ("exports", 3, "schema"))
    assert caught.value.place == ("exports", 3, "schema", "columns", 1, "type")
    with pytest.raises(ValueError, match=r"^\[exports.schema\] of grades: column 'b': `type`"):
        read_schema(table, "[exports.schema] of grades")


def test_no_columns_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="there are no columns"):
        read_schema({"columns": []}, "schema")


def test_the_key_for_hashes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    schema = read_schema(tomllib.loads(TEXT)["schema"], ("schema",), tmp_path)
    with pytest.raises(SetupError, match="cannot be read from"):
        hash_key(schema)
    (tmp_path / "key.txt").write_text("from the file\n")
    assert hash_key(schema) == b"from the file"
    monkeypatch.setenv("GRADES_KEY", "from outside")
    assert hash_key(schema) == b"from outside"
    assert "from" not in repr(schema).replace("'student.id'", "")
    monkeypatch.delenv("GRADES_KEY")
    alone = read(TEXT.replace('file = "key.txt"\n', ""))
    with pytest.raises(SetupError, match="Set GRADES_KEY"):
        hash_key(alone)


def test_a_target_is_checked() -> None:
    with pytest.raises(SetupError, match="'xlsx' is not a format"):
        Target(Path("a.xlsx"), "xlsx")
    with pytest.raises(SetupError, match="sqlite needs the name of a table"):
        Target(Path("a.db"), "sqlite")
    with pytest.raises(SetupError, match="for the format sqlite"):
        Target(Path("a.csv"), "csv", "t")
    assert Target(Path("x/a.db"), "sqlite", "t/1").dead_letters == Path("x/a.db.t_1.bad.jsonl")
