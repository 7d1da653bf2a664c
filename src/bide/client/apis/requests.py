"""One request of a description, compiled so that values can be filled in.

1. A header, parameter or field whose value is missing is left out, and a body that is the missing input. A missing
   value in a path is an error.
2. No value can start a new header line, and no id can leave its path.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode, urlsplit

from bide.client.apis.form import Request
from bide.client.apis.paths import source
from bide.client.apis.templates import MissingValue, Template, Values, Whole, compile_body, fill_body
from bide.core.errors import SetupError
from bide.core.wire.http import JSON_TYPE, encode

FORM_TYPE = "application/x-www-form-urlencoded"
_TYPES = {"json": JSON_TYPE, "form": FORM_TYPE, "text": "text/plain; charset=utf-8"}


class Prepared:
    """A request of one description at one base address."""

    __slots__ = (
        "_body",
        "_dynamic_headers",
        "_encode",
        "_input_alone",
        "_query",
        "_where",
        "address",
        "fixed",
        "headers",
        "method",
        "source",
    )

    def __init__(
        self, request: Request, base: str | None, common: Mapping[str, str], names: frozenset[str]
    ) -> None:
        self.method = request.method
        if not (request.method.isascii() and request.method.isupper()):
            raise ValueError(f"{request.method!r} is not an HTTP method")
        if request.path is not None and not request.path.startswith("/"):
            raise ValueError(f"path {request.path!r} must begin with a slash")
        self.source = source(request.url) if request.url is not None else None
        if request.path is None and self.source is None:
            raise ValueError("`path` or `url` is needed")
        query = {name: Template(text, allowed=names) for name, text in request.query.items()}
        static = {name: template.text for name, template in query.items() if template.fixed}
        self._query = [(name, template) for name, template in query.items() if not template.fixed]
        self._where = request.path
        path = request.path or ""
        if static:
            path += ("&" if "?" in path else "?") + urlencode(static)
        self.address = Template((base or "") + path, escape=True, allowed=names)
        self.headers, self._dynamic_headers = self._prepare_headers(request, common, names)
        self._body = compile_body(request.body, names)
        self._input_alone = isinstance(self._body, Whole) and self._body.is_input
        self._encode = request.encode
        self.fixed = not self._query and not self._dynamic_headers and request.body is None

    def _prepare_headers(
        self, request: Request, common: Mapping[str, str], names: frozenset[str]
    ) -> tuple[dict[str, str], list[tuple[str, Template]]]:
        merged = {**common, **request.headers}
        if request.body is not None and not any(name.lower() == "content-type" for name in merged):
            merged["Content-Type"] = _TYPES[request.encode]
        fixed, dynamic = {}, []
        for name, text in merged.items():
            template = Template(text, allowed=names)
            check_header(name, template.text)
            if template.fixed:
                fixed[name] = text
            else:
                dynamic.append((name, template))
        return fixed, dynamic

    @property
    def has_path(self) -> bool:
        return self._where is not None

    def filled(self, values: Values, url: str | None = None) -> tuple[str, dict[str, str], bytes]:
        """The URL, or the given one, with the parameters; the headers; and the body.

        MissingValue if the path or the body lacks a value, ValueError if a value does not fit into a header.
        """
        url = url if url is not None else self.address.fill(values)
        added = []
        for name, template in self._query:
            if template.names == ["ids"]:
                added += [(name, one) for one in values["ids"]]
                continue
            try:
                added.append((name, template.fill(values)))
            except MissingValue:
                continue
        if added:
            url = with_query(url, added)
        headers = dict(self.headers) if self._dynamic_headers else self.headers
        for name, template in self._dynamic_headers:
            try:
                value = template.fill(values)
            except MissingValue:
                continue
            check_header(name, value)
            headers[name] = value
        if self._input_alone and values.get("input") is None:
            return url, {n: v for n, v in headers.items() if n.lower() != "content-type"}, b""
        return url, headers, b"" if self._body is None else self._encoded(values)

    def _encoded(self, values: Values) -> bytes:
        filled = fill_body(self._body, values)
        if self._encode == "json":
            return encode(filled)
        if self._encode == "text":
            if not isinstance(filled, str):
                raise SetupError("the body is sent as text, so it must be a string")
            return filled.encode()
        if not isinstance(filled, dict):
            raise SetupError("the body is sent as a form, so the input must be an object")
        return urlencode(list(_flat("", filled))).encode()


def check_header(name: str, value: str) -> None:
    if not (value.isascii() and (value.isprintable() or not value)) or not name.isascii():
        raise ValueError(f"the header {name} must be printable ASCII")


def with_query(url: str, added: Sequence[tuple[str, str]]) -> str:
    return url + ("&" if urlsplit(url).query else "?") + urlencode(added)


def _flat(prefix: str, value: Any) -> list[tuple[str, str]]:
    """`{"a": {"b": 1}}` as `a[b]=1`, lists as `a[]=1`, like most APIs that accept forms."""
    if isinstance(value, dict):
        return [
            pair
            for key, inner in value.items()
            for pair in _flat(f"{prefix}[{key}]" if prefix else str(key), inner)
        ]
    if isinstance(value, list):
        return [pair for inner in value for pair in _flat(f"{prefix}[]", inner)]
    if value is None:
        return [(prefix, "")]
    return [(prefix, str(value).lower() if isinstance(value, bool) else str(value))]
