"""Personal values, masked or hashed.

1. A hash is an HMAC-SHA256. Its key is in no file, report or error. Equal values have equal hashes, and without the key no
   value can be guessed by trying.
2. Null stays null, because a missing value is not personal.
"""

from __future__ import annotations

import hmac
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

MASK = "***"
CACHED = 100_000


class PersonalHashes:
    """Hashes texts, with a cache."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._cache: dict[str, str] = {}

    def __repr__(self) -> str:
        return "<PersonalHashes>"

    def __call__(self, texts: Any) -> Any:
        """An array of texts to an array of 64 hexadecimal digits each."""
        coded = texts.dictionary_encode()
        hashed = [self._of(text) for text in coded.dictionary.to_pylist()]
        return pa.array(hashed, pa.string()).take(coded.indices)

    def _of(self, text: str) -> str:
        known = self._cache.get(text)
        if known is None:
            if len(self._cache) >= CACHED:
                self._cache.clear()
            known = self._cache[text] = hmac.digest(self._key, text.encode(), "sha256").hex()
        return known


def masked(values: Any) -> Any:
    return pc.if_else(pc.is_valid(values), MASK, pa.scalar(None, pa.string()))
