"""Text that may come from an API or a handler, for a terminal: no character of it may move the cursor or hide others."""

from __future__ import annotations

import json
import unicodedata

_JOINERS = "\u200c\u200d\u2060"  # in emoji and in Persian words, for example


def harmless(text: str) -> str:
    """The text with `?` in place of control characters. It keeps the ends of lines."""
    if text.isprintable():
        return text
    return "".join(c if _is_harmless(c) else "?" for c in text.expandtabs())


def harmless_json(text: str) -> str:
    """The same JSON document, with control characters as escapes."""
    if text.isprintable():
        return text
    return "".join(c if _is_harmless(c) else json.dumps(c)[1:-1] for c in text)


def _is_harmless(c: str) -> bool:
    return c.isprintable() or c == "\n" or c in _JOINERS or unicodedata.category(c) == "Zs"
