"""Values into types: what fits, what does not, and that pyarrow's way and Python's way agree."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bide.pipeline.plan.schema import Column, Schema
from bide.pipeline.rows.conversion import ColumnConverter, Misfit, value_converter

BERLIN = "Europe/Berlin"


def conversion(**column: Any) -> ColumnConverter:
    made = Column(name="x", **column)
    return ColumnConverter(made, Schema(columns=(made,)))


def of_text(text: str, **column: Any) -> Any:
    """One cell of CSV, beside another that is surely converted all at once."""
    array, misfits = conversion(**column)(pa.array([text.encode()], pa.binary()), True)
    return misfits[0] if misfits else array[0].as_py()


def of_json(value: Any, **column: Any) -> Any:
    array, misfits = conversion(**column)([value], False)
    return misfits[0] if misfits else array[0].as_py()


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("column", "text", "expected"),
    [
        ({"type": "integer"}, "-12", -12),
        ({"type": "integer"}, " 7 ", 7),
        ({"type": "integer"}, "1.5", "not an integer"),
        ({"type": "integer"}, "1_000", "not an integer"),
        ({"type": "integer"}, "0x1F", "not an integer"),
        ({"type": "integer"}, "9223372036854775807", 2**63 - 1),
        ({"type": "integer"}, "9223372036854775808", "an integer of more than 64 bits"),
        ({"type": "float"}, "1e3", 1000.0),
        ({"type": "float"}, "nan", "not a number"),
        ({"type": "float"}, "-inf", "not a number"),
        ({"type": "float"}, "1,5", "not a number"),
        ({"type": "decimal"}, "10.5", Decimal("10.50")),
        ({"type": "decimal"}, "10.505", "more than 2 decimal places"),
        ({"type": "decimal", "places": 0}, "1e40", "a number of more than 38 digits"),
        ({"type": "boolean"}, "Yes", True),
        ({"type": "boolean"}, "0", False),
        ({"type": "boolean"}, "2", "not true or false"),
        ({"type": "date"}, "2026-02-28", date(2026, 2, 28)),
        ({"type": "date"}, "2026-02-30", "not a date like YYYY-MM-DD"),
        ({"type": "date", "format": "%d.%m.%Y"}, "28.02.2026", date(2026, 2, 28)),
        ({"type": "date", "format": "%d.%m.%Y"}, "02/28/2026", "not a date like %d.%m.%Y"),
        ({"type": "timestamp"}, "2026-01-01T10:00:00Z", at("2026-01-01T10:00:00")),
        ({"type": "timestamp"}, "2026-01-01 10:00:00.25+02:00", at("2026-01-01T08:00:00.25")),
        ({"type": "timestamp", "zone": BERLIN}, "2026-07-01 10:00", at("2026-07-01T08:00:00")),
        ({"type": "timestamp", "zone": BERLIN}, "2026-10-25 02:30:00", at("2026-10-25T00:30:00")),
        (
            {"type": "timestamp", "zone": BERLIN},
            "2026-03-29 02:30:00",
            "a time that Europe/Berlin skipped",
        ),
        ({"type": "timestamp", "format": "%d/%m/%Y %H:%M"}, "01/02/2026 10:30", at("2026-02-01T10:30")),
        (
            {"type": "timestamp", "format": "%d/%m/%Y %H:%M %z"},
            "01/02/2026 10:30 +0100",
            at("2026-02-01T09:30"),
        ),
        ({"type": "timestamp", "format": "epoch"}, "1767225600", at("2026-01-01")),
        ({"type": "timestamp", "format": "epoch-ms"}, "1767225600500", at("2026-01-01T00:00:00.5")),
        ({"type": "timestamp"}, "yesterday", "not a timestamp like YYYY-MM-DDTHH:MM:SS"),
        ({"type": "json"}, '{"a": [1, 2.50]}', '{"a":[1,2.5]}'),
        ({"type": "json"}, "{a}", "not JSON"),
        ({"type": "string"}, " as it is ", " as it is "),
        ({"type": "string", "null": ["N/A"]}, "N/A", None),
        ({"type": "integer", "null": ["-"]}, "-", None),
    ],
)
def test_a_cell_of_csv(column: dict[str, Any], text: str, expected: Any) -> None:
    assert of_text(text, **column) == expected


@pytest.mark.parametrize(
    ("column", "value", "expected"),
    [
        ({"type": "integer"}, 12, 12),
        ({"type": "integer"}, "12", 12),
        ({"type": "integer"}, 12.0, 12),
        ({"type": "integer"}, 12.5, "not an integer"),
        ({"type": "integer"}, True, "not an integer"),
        ({"type": "integer"}, 2**63, "an integer of more than 64 bits"),
        ({"type": "float"}, 12, 12.0),
        ({"type": "float"}, True, "not a number"),
        ({"type": "float"}, "1.5", 1.5),
        ({"type": "decimal"}, Decimal("1.10"), Decimal("1.10")),
        ({"type": "boolean"}, True, True),
        ({"type": "boolean"}, "no", False),
        ({"type": "boolean"}, 1, True),
        ({"type": "string"}, 12, "12"),
        ({"type": "string"}, True, "true"),
        ({"type": "string"}, {"a": 1}, '{"a":1}'),
        ({"type": "string"}, "", None),
        ({"type": "json"}, "text", '"text"'),
        ({"type": "json"}, [1, None], "[1,null]"),
        ({"type": "json"}, None, None),
        ({"type": "date"}, 5, "not a date like YYYY-MM-DD"),
        ({"type": "timestamp", "format": "epoch"}, 1767225600, at("2026-01-01")),
        ({"type": "timestamp", "format": "epoch"}, 1767225600.5, at("2026-01-01T00:00:00.5")),
    ],
)
def test_a_value_of_json(column: dict[str, Any], value: Any, expected: Any) -> None:
    found = of_json(value, **column)
    assert (found, type(found)) == (expected, type(expected))


TEXTS: dict[str, st.SearchStrategy[str]] = {
    "integer": st.integers(-(10**20), 10**20).map(str)
    | st.from_regex(r"[ +0-9.xeE_-]{0,6}", fullmatch=True),
    "float": st.floats().map(repr) | st.from_regex(r"[ +0-9.xeEinfa_-]{0,6}", fullmatch=True),
    "decimal": st.decimals(allow_nan=False, places=2).map(str)
    | st.from_regex(r"[ +0-9.eE_-]{0,6}", fullmatch=True),
    "boolean": st.sampled_from(["true", "False", "1", "0", "yes", "no", "T", "on", "2", "", " true"]),
    "date": st.dates().map(str) | st.from_regex(r"20[0-9]{2}-?[0-9]{1,2}-?[0-9]{1,2}", fullmatch=True),
    "timestamp": st.datetimes().map(str)
    | st.datetimes().map(lambda d: d.isoformat(timespec="minutes"))
    | st.from_regex(
        r"20[0-9]{2}-[01][0-9]-[0-3][0-9]([ T][0-2][0-9](:[0-6][0-9](:[0-6][0-9](\.[0-9]{1,9})?)?)?"
        r"(Z|[+-][01][0-9](:?[03]0)?)?)?",
        fullmatch=True,
    ),
}


@pytest.mark.parametrize("type", sorted(TEXTS))
def test_all_at_once_is_the_same_as_one_by_one(type: Any) -> None:
    column = Column(name="x", type=type)
    one = value_converter(column, Schema(columns=(column,)))

    @given(TEXTS[type])
    def check(text: str) -> None:
        try:
            expected = one(text) if text else None
        except Misfit as misfit:
            expected = str(misfit)
        assert of_text(text, type=type) == expected

    check()
