"""The URL of the page that follows: from the Link header (RFC 8288), from a value in the page, or by counting items.

Each page is checked for the field that names the next one. Without this check a typo in the source of the field would
make the first page pass for the whole result.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from bide.client.apis.answers import Answer
from bide.client.apis.form import Sources
from bide.client.apis.paths import Document, Headers, Step, fits, source, steps
from bide.client.apis.values import absolute, count, header, with_parameter, word
from bide.core.errors import BideError

_TARGET = re.compile(r"[\s,]*<([^<>]*)>")
_PARAMETER = re.compile(
    r"\s*;\s*(?:([^\s=;,\"]+)\s*(?:=\s*(?:\"((?:[^\"\\]|\\.)*)\"|([^\s;,\"]*)))?)?", re.DOTALL
)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


class NextMissing(BideError):
    """The next page is unknown: no page has the field that is needed to find it, or a page was repeated."""


class NextCheck:
    """Whether any page has the field. `where` names the setting that has its sources."""

    def __init__(self, sources: Sources | None, where: str, may_be_absent: bool) -> None:
        texts = [] if sources is None else [sources] if isinstance(sources, str) else list(sources)
        self._has = [_has(text) for text in texts]
        self._texts = texts
        self._where = where
        self._found = may_be_absent or not texts

    def page(self, document: Document) -> None:
        """Check one more page; null and "" count as found."""
        self._found = self._found or any(has(document) for has in self._has)

    def finish(self) -> None:
        """Called after the last page. NextMissing if no page had the field."""
        if not self._found:
            named = " or ".join(repr(text) for text in self._texts)
            raise NextMissing(
                f"No page has {named}, which {self._where} names, so there may be further pages. Correct {self._where}; "
                "if the API leaves the field out of a result of one page, set may_be_absent = true beside it."
            )


def _has(text: str) -> Callable[[Document], bool]:
    kind, colon, name = text.partition(":")
    if colon and kind == "header":
        return lambda document: header(document.headers, name) is not None
    path = steps(text)
    return lambda document: _reaches(document.body, path)


def _reaches(body: Any, path: tuple[Step, ...]) -> bool:
    """Return whether the body has this path; a null on the way counts as found."""
    for step in path:
        if body is None:
            return True
        if type(body) is dict and not isinstance(step, tuple):
            if str(step) not in body:
                return False
            body = body[str(step)]
        elif type(body) is list and isinstance(step, int):
            if step >= len(body):
                return False
            body = body[step]
        elif type(body) is list and isinstance(step, tuple):
            chosen = [item for item in body if fits(item, step)]
            if not chosen:
                return False
            body = chosen[0]
        else:
            return False
    return True


class NextPage:
    """The rule of one paged result. `value` has the sources of the next URL, or with `query` of that parameter's value.

    With `link` the Link header names the next page. With `items`, sources of the list in a page, the value of the
    parameter is the number of items so far; the last page is the one that reaches `total`, or one without items. With
    `stops_at_itself` a page that names itself is the last one.
    """

    def __init__(
        self,
        *,
        link: bool,
        value: Sources | None,
        query: str | None,
        where: str,
        may_be_absent: bool,
        items: Sources | None = None,
        total: Sources | None = None,
        stops_at_itself: bool = False,
    ) -> None:
        self._link = link
        self._value = source(value) if value is not None else None
        self._query = query
        self._items = source(items) if items is not None else None
        self._total = source(total) if total is not None else None
        self._count = 0  # items of all pages so far
        self._listed: list[Any] = []  # the items of the page before
        self._stops_at_itself = stops_at_itself
        sources = value if items is None else items
        self._check = NextCheck(None if link else sources, where, may_be_absent)
        texts = [] if sources is None else [sources] if isinstance(sources, str) else sources
        self.reads_body = not link and not all(text.startswith("header:") for text in texts)

    def following(self, url: str, answer: Answer) -> str | None:
        """The URL of the page after the one at `url`; None after the last. NextMissing if no page had the field."""
        found = self._find(url, answer)
        if found is None:
            self._check.finish()
        return found

    def _find(self, url: str, answer: Answer) -> str | None:
        if self._link:
            found = next_link(url, answer.headers)
        else:
            page = Document(answer.json() if self.reads_body else None, answer.headers)
            self._check.page(page)
            if self._items is not None:
                return self._counted(url, page)
            named = self._value(page) if self._value is not None else None
            value = word(named) if named is not None and named is not False else None
            if value is None or value == "null":
                return None
            found = with_parameter(url, self._query, value) if self._query else absolute(url, value)
        return None if self._stops_at_itself and found == url else found

    def _counted(self, url: str, page: Document) -> str | None:
        """The URL with the number of items so far."""
        assert self._items is not None and self._query is not None
        items = self._items(page)
        listed = items if isinstance(items, list) else []
        self._count += len(listed)
        total = count(self._total(page)) if self._total is not None else None
        if listed and listed == self._listed:
            raise NextMissing(f"Two pages in a row are the same: the API ignores {self._query!r}")
        self._listed = listed
        if not listed or (total is not None and self._count >= total):
            return None
        return with_parameter(url, self._query, str(self._count))


def next_link(url: str, headers: Headers) -> str | None:
    """The target of the link with the relation `next` in an answer from `url`; None if there is none."""
    getall = getattr(headers, "getall", None)  # aiohttp's headers: there may be several Link headers
    text = ", ".join(getall("Link", ())) if getall is not None else header(headers, "Link") or ""
    for target, relations in _links(text):
        if "next" in relations:
            return absolute(url, target)
    return None


def _links(text: str) -> Iterator[tuple[str, list[str]]]:
    """Each target with its relations, in lower case. Ends at the first part that is not a link."""
    at = 0
    while (target := _TARGET.match(text, at)) is not None:
        at = target.end()
        relations: list[str] | None = None
        while (found := _PARAMETER.match(text, at)) is not None:
            at = found.end()
            name, quoted, token = found.groups()
            if name is not None and name.lower() == "rel" and relations is None:  # only the first counts
                value = token or "" if quoted is None else _ESCAPED.sub(r"\1", quoted)
                relations = value.lower().split()
        yield target[1].strip(), relations or []
