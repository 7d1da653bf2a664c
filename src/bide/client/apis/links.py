"""The Link header (RFC 8288)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from bide.client.apis.paths import Headers
from bide.client.apis.values import absolute, header

_TARGET = re.compile(r"[\s,]*<([^<>]*)>")
_PARAMETER = re.compile(
    r"\s*;\s*(?:([^\s=;,\"]+)\s*(?:=\s*(?:\"((?:[^\"\\]|\\.)*)\"|([^\s;,\"]*)))?)?", re.DOTALL
)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


def next_link(url: str, headers: Headers) -> str | None:
    """The address of the link whose relation is `next`, in an answer from `url`; None when there is none."""
    getall = getattr(headers, "getall", None)  # of aiohttp: the header may be there several times
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
