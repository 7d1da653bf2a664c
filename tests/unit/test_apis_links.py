"""The Link header: which of its links is the next page."""

from __future__ import annotations

import time

import pytest
from multidict import CIMultiDict

from bide.client.apis.pagination import next_link

AT = "https://api.example/rows?page=1"


@pytest.mark.parametrize(
    "text",
    [
        '</rows?page=2>; rel="next"',
        "</rows?page=2>; rel=next",
        "</rows?page=2>;REL = NEXT",
        '</rows?page=0>; rel="prev", </rows?page=2>; rel="next"',
        '</rows?page=2>; title="first, second"; rel="next"',
        '</rows?page=2>; title="a \\" rel=prev"; rel="next"',
        '</rows?page=2>; rel="last next"',
        '</rows?page=2>; rel="next last"; rel="prev"',
        '</rows?page=0>; title="rel=next"; rel="prev", </rows?page=2>; rel=next',
        '</rows?page=0>; title="<x>; rel=next", </rows?page=2>; crossorigin; rel=next',
        '</rows?page=0>; rel="nextish", </rows?page=2>; rel=next;',
        '</rows?page=0>; rel="prev"; rel="next",, </rows?page=2> ; rel=next',
        "</rows?a=1,2>; rel=prev, </rows?page=2>; rel=next",
    ],
)
def test_the_next_page_is_found(text: str) -> None:
    assert next_link(AT, {"link": text}) == "https://api.example/rows?page=2"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "rel=next",
        "</rows?page=2>",
        '</rows?page=2>; rel="prev"',
        '</rows?page=2>; rel="next-archive"',
        '</rows?page=2>; title="rel=next"',
        '</rows?page=2>; xrel="next"',
        '<file:///etc/passwd>; rel="next"',
        '<>; rel="prev", nonsense',
    ],
)
def test_there_is_no_next_page(text: str) -> None:
    assert next_link(AT, {"Link": text}) is None


def test_the_header_may_be_there_twice() -> None:
    headers = CIMultiDict([("Link", '</rows?page=0>; rel="prev"'), ("link", "</rows?page=2>; rel=next")])
    assert next_link(AT, headers) == "https://api.example/rows?page=2"


def test_a_long_header_is_read_in_linear_time() -> None:
    for text in (
        "<a>" * 20_000,
        "<a>; " + '"' * 60_000,
        "<a>;" + ";" * 60_000,
        '<a>; x="' + "\\" * 60_000,
    ):
        started = time.perf_counter()
        assert next_link(AT, {"Link": text}) is None
        assert time.perf_counter() - started < 1.0
