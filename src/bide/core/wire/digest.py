"""Checksums in headers (RFC 9530): Content-Digest of one message or part, Repr-Digest of the whole representation."""

from __future__ import annotations

import base64
import re

_SHA256 = re.compile(r"(?:^|,)\s*sha-256\s*=\s*:([A-Za-z0-9+/]{43}=):\s*(?:,|;|$)")


def render_digest(sha256: str) -> str:
    """Return the header value for a SHA-256 in hexadecimal digits."""
    return f"sha-256=:{base64.b64encode(bytes.fromhex(sha256)).decode()}:"


def read_digest(value: str | None) -> str | None:
    """Return the SHA-256 in hexadecimal digits; None if the header has none."""
    found = None if value is None else _SHA256.search(value)
    return None if found is None else base64.b64decode(found[1]).hex()
