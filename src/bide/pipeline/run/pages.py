"""From one page of a result or a listing to the next: named by the page or its Link header, or counted."""

from __future__ import annotations

from bide.client.apis import Answer
from bide.client.apis.pagination import NextCheck, NextPage
from bide.client.apis.paths import document, source
from bide.client.apis.values import count, with_parameter
from bide.pipeline.plan.form import PagesTable


class Pager:
    """The pages of one result. `records` is the path of the rows: without a total, a page without rows is the last."""

    def __init__(self, pages: PagesTable, records: str = "") -> None:
        self._pages = pages
        self._named: NextPage | None = None
        if pages.link or pages.next is not None:
            self._named = NextPage(
                link=pages.link,
                value=pages.next,
                query=pages.query,
                where="`next` of `pages`",
                may_be_absent=pages.may_be_absent,
            )
        self._total = source(pages.total) if pages.total is not None else None
        self._records = source(records or ".")
        self._check = NextCheck(pages.total, "`total` of `pages`", pages.may_be_absent)

    @property
    def reads_body(self) -> bool:
        return self._named is None or self._named.reads_body

    def first(self, url: str) -> str:
        pages = self._pages
        if pages.query is None or pages.next is not None:
            return url
        return with_parameter(url, pages.query, str(pages.first))

    def following(self, url: str, number: int, answer: Answer) -> str | None:
        """The URL after page `number`, counted from 0, which came from `url`; None after the last page.

        NextMissing if this was the last page and no page had the field that `next` or `total` names.
        """
        if self._named is not None:
            return self._named.following(url, answer)
        found, pages = document(answer), self._pages
        self._check.page(found)
        assert pages.query is not None
        total = self._total
        if number + 1 < (count(total(found)) or 0) if total is not None else self._records(found):
            return with_parameter(url, pages.query, str(pages.first + number + 1))
        self._check.finish()
        return None
