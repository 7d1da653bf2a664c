"""Every field of a pipeline is described, every phase and every code that an export can stop with."""

from __future__ import annotations

import re

import pytest

from bide.pipeline.plan.form import TABLES
from bide.pipeline.run.phase import Phase
from tests.docs.pages import ROOT
from tests.docs.test_reference import codes, page, section

HEADINGS = {"": "The pipeline file"}


@pytest.mark.parametrize("name", TABLES)
def test_every_field_is_described(name: str) -> None:
    described = codes(section(page("pipelines"), HEADINGS.get(name, name)))
    assert set(TABLES[name].__struct_fields__) - described == set()


def test_every_phase_is_described() -> None:
    assert set(Phase) - codes(section(page("pipelines"), "The run")) == set()


def test_every_code_of_an_export_is_described() -> None:
    folder = ROOT / "src" / "bide" / "pipeline"
    text = "".join(path.read_text(encoding="utf-8") for path in folder.rglob("*.py"))
    used = set(re.findall(r'(?:ErrorInfo|ExportStopped)\(\s*"([A-Z_]+)"', text))
    assert {"UNSURE", "DAMAGED", "PAGES"} <= used
    assert used == codes(section(page("pipelines"), "Errors of exports")) & used
