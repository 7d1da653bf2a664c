"""The header fields of tus 1.0."""

from __future__ import annotations

import base64
import binascii
import hashlib
import zlib
from email.utils import formatdate
from functools import lru_cache
from typing import Any

from bide.core.errors import MalformedRequest

VERSION = "1.0.0"
EXTENSIONS = (
    *("creation", "creation-with-upload", "creation-defer-length", "expiration"),
    *("checksum", "termination", "concatenation"),
)
BODY_TYPE = "application/offset+octet-stream"
MOST_METADATA = 64


class Crc32:
    """CRC-32 with the interface of hashlib."""

    def __init__(self) -> None:
        self._value = 0

    def update(self, data: bytes | memoryview, /) -> None:
        self._value = zlib.crc32(data, self._value)

    def hexdigest(self) -> str:
        return f"{self._value:08x}"


_ALGORITHMS: dict[str, tuple[Any, int]] = {
    "crc32": (Crc32, 4),
    "sha1": (lambda: hashlib.sha1(usedforsecurity=False), 20),
    "sha256": (hashlib.sha256, 32),
}
ALGORITHMS = tuple(_ALGORITHMS)


def read_metadata(text: str) -> dict[str, str]:
    """Read Upload-Metadata: names with values in Base64; MalformedRequest if it is invalid."""
    found: dict[str, str] = {}
    for pair in text.split(",") if text.strip() else ():
        name, _, value = pair.strip().partition(" ")
        if not name or name in found:
            raise MalformedRequest("Upload-Metadata: a name is missing or occurs twice")
        try:
            found[name] = base64.b64decode(value.strip(), validate=True).decode()
        except (binascii.Error, UnicodeDecodeError, ValueError):
            raise MalformedRequest(
                f"Upload-Metadata: the value of {name[:50]} is not UTF-8 in Base64"
            ) from None
    if len(found) > MOST_METADATA:
        raise MalformedRequest(
            f"Upload-Metadata: {len(found)} names; at most {MOST_METADATA} are allowed"
        )
    return found


def without(text: str, name: str) -> str:
    """Upload-Metadata without the value of this name."""
    return ",".join(pair for pair in text.split(",") if pair.strip().partition(" ")[0] != name)


def read_count(name: str, text: str | None) -> int | None:
    """Read a number of bytes; None without the header."""
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise MalformedRequest(f"{name} {text[:50]!r} is not a number of bytes")
    return int(text)


def read_checksum(text: str | None) -> tuple[Any, str] | None:
    """Read Upload-Checksum: return a new hash and the expected hexadecimal digest."""
    if text is None:
        return None
    name, _, value = text.strip().partition(" ")
    if name not in _ALGORITHMS:
        raise MalformedRequest(
            f"Upload-Checksum: unknown algorithm {name[:50]!r}. Use one of {', '.join(ALGORITHMS)}"
        )
    make, size = _ALGORITHMS[name]
    try:
        digest = base64.b64decode(value.strip(), validate=True)
    except (binascii.Error, ValueError):
        digest = b""
    if len(digest) != size:
        raise MalformedRequest(f"Upload-Checksum: {name} needs {size} bytes in Base64")
    return make(), digest.hex()


def read_concat(text: str | None) -> tuple[bool, list[str]]:
    """Read Upload-Concat: return whether this is a part, and the URLs of the parts of a final upload."""
    if text is None:
        return False, []
    kind, semicolon, rest = text.strip().partition(";")
    if kind == "partial" and not semicolon:
        return True, []
    places = rest.split()
    if kind == "final" and places:
        return False, places
    raise MalformedRequest("Upload-Concat must be `partial`, or `final;` and the URLs of the parts")


def render_date(instant: float) -> str:
    return _date(int(instant))


@lru_cache(16)
def _date(second: int) -> str:
    return formatdate(second, usegmt=True)
