"""Whether any page of a result names the next one: if none does, the source of it is probably wrong.

Without this check a typo in the source would make the first page pass for the whole result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bide.client.apis.form import Sources
from bide.client.apis.paths import Headers, Step, fits, steps
from bide.client.apis.values import header
from bide.core.errors import BideError


class NextMissing(BideError):
    """No page has the field that names the next page."""


class NextCheck:
    """`where` is the field of the description or of the pipeline that has the sources."""

    def __init__(self, sources: Sources | None, where: str, may_be_absent: bool) -> None:
        texts = [] if sources is None else [sources] if isinstance(sources, str) else list(sources)
        self._has = [_has(text) for text in texts]
        self._texts = texts
        self._where = where
        self._found = may_be_absent or not texts

    def page(self, body: Any, headers: Headers) -> None:
        """One more page; null and "" count as found."""
        self._found = self._found or any(has(body, headers) for has in self._has)

    def finish(self) -> None:
        """That was the last page. NextMissing if none of them had the field."""
        if not self._found:
            named = " or ".join(repr(text) for text in self._texts)
            raise NextMissing(
                f"No page has {named}, which {self._where} names, so there may be further pages. Correct {self._where}; "
                "if the API leaves the field out of a result of one page, set may_be_absent = true beside it."
            )


def _has(text: str) -> Callable[[Any, Headers], bool]:
    kind, colon, name = text.partition(":")
    if colon and kind == "header":
        return lambda body, headers: header(headers, name) is not None
    path = steps(text)
    return lambda body, headers: _reaches(body, path)


def _reaches(document: Any, path: tuple[Step, ...]) -> bool:
    """Whether there is such a place; a null on the way says that there is nothing further."""
    for step in path:
        if document is None:
            return True
        if type(document) is dict and not isinstance(step, tuple):
            if str(step) not in document:
                return False
            document = document[str(step)]
        elif type(document) is list and isinstance(step, int):
            if step >= len(document):
                return False
            document = document[step]
        elif type(document) is list and isinstance(step, tuple):
            chosen = [item for item in document if fits(item, step)]
            if not chosen:
                return False
            document = chosen[0]
        else:
            return False
    return True
