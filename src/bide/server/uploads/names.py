"""Cleans the file names and content types that callers send, so that every file system, header and terminal accepts them."""

from __future__ import annotations

import re
import unicodedata

from bide.server.upload_record import ANY_TYPE

MAX_NAME_BYTES = 200
_TYPE = re.compile(r"[\w.+-]{1,100}/[\w.+-]{1,100}(; ?[\w-]{1,50}=\"?[\w.+-]{1,100}\"?)*", re.ASCII)
DEFAULT_NAME = "file"


def clean_name(given: str | None) -> str:
    """Returns the last component of a path without control characters, direction marks and line breaks."""
    last = re.split(r"[/\\]", given or "")[-1]
    name = "".join(map(_printable, unicodedata.normalize("NFC", last))).strip(" ")
    if name.strip(".") == "":
        return DEFAULT_NAME
    if len(name.encode()) <= MAX_NAME_BYTES:
        return name
    stem, dot, suffix = name.rpartition(".")
    if not dot or len(suffix.encode()) > 20:
        stem, dot, suffix = name, "", ""
    space = MAX_NAME_BYTES - len((dot + suffix).encode())
    return (stem.encode()[:space].decode(errors="ignore") + dot + suffix).strip(" ")


def _printable(character: str) -> str:
    """Returns the character if it is printable, a space for any other kind of space, else an empty string."""
    if character.isprintable():
        return character
    return " " if unicodedata.category(character) == "Zs" else ""


def clean_type(given: str | None) -> str:
    declared = (given or "").strip()
    return declared if _TYPE.fullmatch(declared) else ANY_TYPE
