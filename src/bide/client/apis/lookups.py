"""Further requests that some APIs need: the API's id of a kind before a submission, the parts of a result, and the cause of
a failure.

This module makes the requests and reads their answers, and does no I/O.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from bide.client.apis.answers import Answer, Call, Ref
from bide.client.apis.calls import Calls
from bide.client.apis.form import Description, FailureRequest, KindLookup, PartRequest
from bide.client.apis.paths import Document, document, source
from bide.client.apis.templates import MissingValue, Template
from bide.client.apis.toml_lines import within
from bide.client.apis.values import count, text, word

MOST_PARTS = 10_000  # of one result
_OF_KIND = frozenset(("kind",))
_OF_PART = frozenset(("id", "item", "null", "ref"))
_OF_FAILURE = frozenset(("body", "id", "null", "ref"))


class Part(NamedTuple):
    """One part of a result: its key, and the request for it."""

    key: str
    call: Call


class Lookups:
    def __init__(self, form: Description, calls: Calls) -> None:
        lookup = form.submit.lookup if form.submit is not None else None
        with within("submit", "lookup"):
            self.kind = _KindFinder(lookup, calls) if lookup is not None else None
        each = form.result.each if form.result is not None else None
        with within("result", "each"):
            self.parts = _Parts(each, calls) if each is not None else None
        self.failures = []
        for index, failure in enumerate(form.failure):
            with within("failure", index):
                self.failures.append(_FailureLookup(failure, calls))


class _KindFinder:
    """Finds the API's id of a kind that the user names in another way."""

    def __init__(self, lookup: KindLookup, calls: Calls) -> None:
        self._calls = calls
        self._request = calls.prepared(lookup, _OF_KIND)
        self._kind = source(lookup.kind)
        try:
            self._kinds = re.compile(lookup.kinds)
        except re.error as error:
            raise ValueError(f"`kinds` is not a regular expression: {error}") from None

    def call(self, kind: str) -> Call | None:
        """The request; None if the kind needs none."""
        if not self._kinds.fullmatch(kind):
            return None
        url, headers, body = self._request.filled({"kind": kind})
        return Call(self._request.method, url, headers, body, self._calls.trusts(url))

    def read(self, answer: Answer) -> str | None:
        return word(self._kind(document(answer)))


class _Parts:
    """Finds the parts of a result that is a list of them, in one page or several."""

    def __init__(self, each: PartRequest, calls: Calls) -> None:
        self._calls = calls
        self._request = calls.prepared(each, _OF_PART)
        self._items = source(each.items)
        self._key = Template(each.key, allowed=_OF_PART)
        self._value = source(each.value)
        self._total = source(each.total) if each.total is not None else None

    def listed(self, ref: Ref, page: Any) -> list[Any]:
        """The items of a page."""
        items = self._items(Document(page, ref=ref))
        return items if isinstance(items, list) else []

    def of(self, ref: Ref, items: Sequence[Any]) -> list[Part]:
        found = []
        for item in items:
            values = {"id": ref.id, "ref": ref.more, "item": item}
            try:
                key = self._key.fill(values)
                url, headers, body = self._request.filled(values)
            except MissingValue:
                continue
            call = Call(self._request.method, url, headers, body, self._calls.trusts(url))
            found.append(Part(key, call))
        return found

    def total(self, ref: Ref, page: Any) -> int:
        """How many items all pages have, by this one; 0 if it does not say."""
        total = self._total(Document(page, ref=ref)) if self._total is not None else None
        return count(total) or 0

    def read(self, ref: Ref, answer: Answer) -> Any:
        return self._value(document(answer, ref))


class _FailureLookup:
    """One request for the cause of a failure."""

    def __init__(self, failure: FailureRequest, calls: Calls) -> None:
        self._calls = calls
        self._request = calls.prepared(failure, _OF_FAILURE)
        self._sources = {
            name: source(found)
            for name, found in (
                ("code", failure.code),
                ("message", failure.message),
                ("failed_step", failure.step),
            )
            if found is not None
        }

    def call(self, ref: Ref, before: Any) -> Call | None:
        """The request; None if the answer before it does not have the values for it."""
        try:
            url, headers, body = self._request.filled({"id": ref.id, "ref": ref.more, "body": before})
        except MissingValue:
            return None
        return Call(self._request.method, url, headers, body, self._calls.trusts(url))

    def read(self, ref: Ref, body: Any) -> dict[str, str]:
        """The fields of the error that this answer has."""
        document = Document(body, ref=ref)
        found = {name: text(get(document)) for name, get in self._sources.items()}
        return {name: value for name, value in found.items() if value}
