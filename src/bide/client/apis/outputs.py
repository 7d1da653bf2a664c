"""Reads the outputs of a job from a response: the result or its URL, and files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from bide.client.apis.answers import Found, Ref, State
from bide.client.apis.form import Description, OutputFile
from bide.client.apis.paths import Document, Source, source
from bide.client.apis.templates import MissingValue, Template, Values
from bide.client.apis.toml_lines import within
from bide.client.apis.values import absolute, count, text

MOST_FILES = 1000
_KNOWN = frozenset(("body", "id", "ref"))


class Outputs:
    """`base` is the URL of the API, `status_url` returns the status URL of a job."""

    __slots__ = ("_base", "_files", "_path", "_status_url", "_url", "_value")

    def __init__(
        self, form: Description, base: str | None, status_url: Callable[[Ref], str | None]
    ) -> None:
        self._base = base or ""
        self._status_url = status_url
        result = form.result
        with within("result"):
            self._value = source(result.value) if result and result.value is not None else None
            self._url = source(result.url) if result and result.url is not None else None
            self._path = _template(result.path) if result and result.path is not None else None
        self._files = []
        for index, file in enumerate(form.files):
            with within("files", index):
                self._files.append(_File(file))

    def address(self, ref: Ref, url: Any) -> str | None:
        """Return an absolute URL; a relative one is relative to the status URL."""
        if type(url) is str and url.startswith(("https://", "http://")):
            return absolute(None, url)
        return absolute(self._status_url(ref), url)

    def read(
        self,
        fields: dict[str, Any],
        state: State,
        ref: Ref,
        document: Document,
        *,
        whole: bool,
    ) -> None:
        """Add the outputs to `fields`. A failed job may have files, but no result."""
        good = state in ("done", "partial")
        if good and self._value is not None:
            fields["result"] = self._value(document)
        if good and whole and fields.get("result") is None:
            fields["result"] = document.body
        if self._url is not None:
            fields["result_url"] = self.address(ref, self._url(document))
        if good and self._path is not None and fields.get("result_url") is None:
            fields["result_url"] = self._filled(self._path, _values(document.body, ref))
        if self._files:
            found = (one for file in self._files for one in self._found(file, ref, document))
            fields["files"] = tuple(one for _, one in zip(range(MOST_FILES), found, strict=False))

    def _found(self, file: _File, ref: Ref, document: Document) -> Iterator[Found]:
        for item in map(document.part, file.items(document)):
            values = _values(item.body, ref)
            url = None
            if file.url is not None:
                url = self.address(ref, file.url(item))
            if url is None and file.path is not None:
                url = self._filled(file.path, values)
            if url is None:
                continue
            try:
                name = file.name.fill(values)
            except MissingValue:
                name = url.rpartition("/")[2] or "result"
            content_type, size, sha256 = (get(item) if get is not None else None for get in file.about)
            yield Found(name, url, text(content_type), count(size), text(sha256))

    def _filled(self, template: Template, values: Values) -> str | None:
        try:
            return absolute(None, self._base + template.fill(values))
        except MissingValue:
            return None


class _File:
    __slots__ = ("_each", "about", "name", "path", "url")

    def __init__(self, file: OutputFile) -> None:
        if file.url is None and file.path is None:
            raise ValueError("a file needs `url` or `path`")
        self._each = source(file.each) if file.each is not None else None
        self.name = Template(file.name, allowed=_KNOWN)
        self.path = _template(file.path) if file.path is not None else None
        self.url: Source | None = source(file.url) if file.url is not None else None
        self.about = [
            source(s) if s is not None else None for s in (file.content_type, file.size, file.sha256)
        ]

    def items(self, document: Document) -> list[Any]:
        if self._each is None:
            return [document.body]
        found = self._each(document)
        return found if type(found) is list else [found] if type(found) is dict else []


def _template(path: str) -> Template:
    return Template(path, escape=True, allowed=_KNOWN)


def _values(body: Any, ref: Ref) -> dict[str, Any]:
    return {"body": body, "id": ref.id, "ref": ref.more}
