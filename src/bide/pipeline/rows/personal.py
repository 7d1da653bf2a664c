"""Personal values, masked or hashed.

1. A hash is HMAC-SHA256 with a key that is in no file, no report and no error: equal values stay equal, and without the key
   nobody can try out who is meant.
2. A null stays null: that there is nothing is not personal.
"""

from __future__ import annotations

import hmac
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

MASK = "***"
REMEMBERED = 100_000


class PersonalHashes:
    """Hashes of values, each computed once while it is remembered."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._known: dict[str, str] = {}

    def __repr__(self) -> str:
        return "<PersonalHashes>"

    def __call__(self, texts: Any) -> Any:
        """An array of texts into one of 64 hexadecimal digits."""
        coded = texts.dictionary_encode()
        hashed = [self._of(text) for text in coded.dictionary.to_pylist()]
        return pa.array(hashed, pa.string()).take(coded.indices)

    def _of(self, text: str) -> str:
        known = self._known.get(text)
        if known is None:
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            known = self._known[text] = hmac.digest(self._key, text.encode(), "sha256").hex()
        return known


def masked(values: Any) -> Any:
    return pc.if_else(pc.is_valid(values), MASK, pa.scalar(None, pa.string()))
