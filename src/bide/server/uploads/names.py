"""Reads the file names and content types that callers send, and cleans them so that every file system, header and terminal
accepts them.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from urllib.parse import unquote

from bide.server.upload_record import ANY_TYPE

MAX_NAME_BYTES = 200
_TYPE = re.compile(r"[\w.+-]{1,100}/[\w.+-]{1,100}(; ?[\w-]{1,50}=\"?[\w.+-]{1,100}\"?)*", re.ASCII)
_PARAMETER = re.compile(r';\s*([\w!#$%&\'*+.^`|~-]+)\s*=\s*("(?:[^"\\]|\\.)*"|[^;\s]*)')
DEFAULT_NAME = "file"


def clean_name(given: str | None) -> str:
    """Return the last component of a path without control characters, direction marks and line breaks."""
    last = re.split(r"[/\\]", given or "")[-1]
    # Keep printable characters, and a space for each other kind of space.
    name = "".join(
        character if character.isprintable() else " " if unicodedata.category(character) == "Zs" else ""
        for character in unicodedata.normalize("NFC", last)
    ).strip(" ")
    if name.strip(".") == "":
        return DEFAULT_NAME
    if len(name.encode()) <= MAX_NAME_BYTES:
        return name
    stem, dot, suffix = name.rpartition(".")
    if not dot or len(suffix.encode()) > 20:
        stem, dot, suffix = name, "", ""
    space = MAX_NAME_BYTES - len((dot + suffix).encode())
    return (stem.encode()[:space].decode(errors="ignore") + dot + suffix).strip(" ")


def clean_type(given: str | None) -> str:
    """Return the given type if it is valid in a header, else application/octet-stream."""
    declared = (given or "").strip()
    return declared if _TYPE.fullmatch(declared) else ANY_TYPE


def read_disposition(value: str) -> str | None:
    """Return the file name in a Content-Disposition header, as browsers or as RFC 5987 writes it."""
    found = dict(header_parameters(";" + value))
    extended = found.get("filename*")
    if extended is not None and extended.lower().startswith("utf-8''"):
        return unquote(extended[7:], errors="replace")
    return found.get("filename")


def header_parameters(value: str) -> Iterator[tuple[str, str]]:
    """Yield the parameters of a header, such as `boundary` of a Content-Type."""
    for name, text in _PARAMETER.findall(value):
        yield name.lower(), _unquoted(text) if text.startswith('"') else text


def _unquoted(text: str) -> str:
    """Browsers write a quote as %22 and a backslash unchanged; other clients escape both with a backslash."""
    plain = re.sub(r'\\(["\\])', r"\1", text[1:-1])
    return plain.replace("%22", '"').replace("%0D", "\r").replace("%0A", "\n")
