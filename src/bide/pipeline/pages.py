"""From one page of a result or a listing to the next: by the Link header, by what the page says, or by counting."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from bide.client.apis.links import next_link
from bide.client.apis.next_page import NextCheck
from bide.client.apis.paths import Headers, source
from bide.client.apis.signs import document
from bide.client.apis.values import absolute, count, word
from bide.pipeline.form import Pages

MOST_PAGES = 100_000


class Pager:
    """`records` is where the rows are in a page: counting without a total ends at a page that has none."""

    def __init__(self, pages: Pages, records: str = "") -> None:
        self._pages = pages
        self._next = source(pages.next) if pages.next is not None else None
        self._total = source(pages.total) if pages.total is not None else None
        self._records = source(records or ".")
        named = pages.total if pages.next is None else pages.next
        where = f"`{'total' if pages.next is None else 'next'}` of `pages`"
        self._check = NextCheck(named, where, pages.may_be_absent)

    @property
    def reads(self) -> bool:
        """Whether the body has to be looked at."""
        return not self._pages.link

    def first(self, url: str) -> str:
        pages = self._pages
        if pages.query is None or pages.next is not None:
            return url
        return with_parameter(url, pages.query, str(pages.first))

    def following(self, url: str, number: int, headers: Headers, body: bytes) -> str | None:
        """The address after page `number`, counted from 0, which came from `url`; None when that was the last.

        NextMissing when that was the last and none of them had what `next` or `total` names.
        """
        found = self._following(url, number, headers, body)
        if found is None:
            self._check.finish()
        return found

    def _following(self, url: str, number: int, headers: Headers, body: bytes) -> str | None:
        pages = self._pages
        if pages.link:
            return next_link(url, headers)
        found = document(body)
        self._check.page(found, headers)
        if self._next is not None:
            return self._named(url, self._next(found, headers, None))
        assert pages.query is not None
        if self._total is not None:
            more = number + 1 < (count(self._total(found, headers, None)) or 0)
        else:
            more = bool(self._records(found, headers, None))
        return with_parameter(url, pages.query, str(pages.first + number + 1)) if more else None

    def _named(self, url: str, told: Any) -> str | None:
        value = word(told) if told is not None and told is not False else None
        if value is None or value == "null":
            return None
        return (
            with_parameter(url, self._pages.query, value) if self._pages.query else absolute(url, value)
        )


def with_parameter(url: str, name: str, value: str) -> str:
    parts = urlsplit(url)
    query = [(k, v) for k, v in parse_qsl(parts.query, keep_blank_values=True) if k != name]
    return parts._replace(query=urlencode([*query, (name, value)])).geturl()
