"""Every field of a schema is described."""

from __future__ import annotations

import dataclasses

import pytest

from bide.pipeline.plan.schema import TABLES
from bide.pipeline.rows import BadRowSummary, NormalizationReport
from bide.pipeline.rows.target import FORMATS
from tests.docs.test_reference import codes, page, section

HEADINGS = {
    "Schema": "Fields of a schema",
    "schema.columns": "Columns",
    "schema.csv": "CSV",
    "schema.limits": "Limits",
}


@pytest.mark.parametrize("name", TABLES)
def test_every_field_is_described(name: str) -> None:
    described = codes(section(page("pipelines"), HEADINGS[name]))
    assert set(TABLES[name].__struct_encode_fields__) - described == set()


def test_the_report_and_the_formats_are_described() -> None:
    described = codes(section(page("pipelines"), "The report"))
    assert {
        field.name for one in (NormalizationReport, BadRowSummary) for field in dataclasses.fields(one)
    } - described == set()
    assert set(FORMATS) - codes(section(page("pipelines"), "What is published")) == set()
