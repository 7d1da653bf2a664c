"""Every field of a description is described, and every API that comes with bide is named."""

from __future__ import annotations

import pytest

from bide.client.apis import GONE, NOT_FOUND, names
from bide.client.apis.form import TABLES, Request
from tests.docs.test_reference import codes, page, section

HEADINGS = {"": "The description"}


@pytest.mark.parametrize("name", TABLES)
def test_every_field_is_described(name: str) -> None:
    table = TABLES[name]
    described = codes(section(page("descriptions"), HEADINGS.get(name, name)))
    if issubclass(table, Request):
        described |= codes(section(page("descriptions"), "Requests"))
    assert set(table.__struct_fields__) - described == set()


def test_the_names_and_codes_are_described() -> None:
    described = codes(page("descriptions"))
    assert {*names(), NOT_FOUND, GONE} - described == set()
