"""What a sender calls a file, made into a name that every file system, header and terminal can bear."""

from __future__ import annotations

import re
import unicodedata

from bide.core.upload import ANY_TYPE

LONGEST = 200  # bytes
_TYPE = re.compile(r"[\w.+-]{1,100}/[\w.+-]{1,100}(; ?[\w-]{1,50}=\"?[\w.+-]{1,100}\"?)*", re.ASCII)
UNNAMED = "file"


def clean_name(given: str | None) -> str:
    """The last part of a path, without what cannot be seen: controls, marks that turn the direction, line breaks."""
    last = re.split(r"[/\\]", given or "")[-1]
    seen = "".join(map(_shown, unicodedata.normalize("NFC", last))).strip(" ")
    if seen.strip(".") == "":
        return UNNAMED
    if len(seen.encode()) <= LONGEST:
        return seen
    stem, dot, ending = seen.rpartition(".")
    if not dot or len(ending.encode()) > 20:
        stem, dot, ending = seen, "", ""
    room = LONGEST - len((dot + ending).encode())
    return (stem.encode()[:room].decode(errors="ignore") + dot + ending).strip(" ")


def _shown(character: str) -> str:
    """Itself, a plain space for any other kind of space, or nothing for what cannot be seen."""
    if character.isprintable():
        return character
    return " " if unicodedata.category(character) == "Zs" else ""


def clean_type(given: str | None) -> str:
    declared = (given or "").strip()
    return declared if _TYPE.fullmatch(declared) else ANY_TYPE
