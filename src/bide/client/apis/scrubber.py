"""Hides secrets in a text or body that an API returned, because an error message or a log line may quote it.

A secret that is shorter than SHORTEST_SECRET is not hidden: it would match other text by chance.
"""

from __future__ import annotations

from collections.abc import Iterable

SHORTEST_SECRET = 6  # characters
HIDDEN = "[hidden]"


def hide(text: str, secrets: Iterable[str]) -> str:
    """Return the text without the secrets, also without the first part of a secret at which a quote was cut."""
    for secret in _longest_first(secrets):
        text = text.replace(secret, HIDDEN)
        if "…" in text:
            for length in range(len(secret) - 1, SHORTEST_SECRET - 1, -1):
                text = text.replace(f'{secret[:length]}…"', f'{HIDDEN}…"')
    return text


def hide_in_body(body: bytes, secrets: Iterable[str]) -> bytes:
    for secret in _longest_first(secrets):
        body = body.replace(secret.encode(), HIDDEN.encode())
    return body


def _longest_first(secrets: Iterable[str]) -> list[str]:
    """Order the secrets so that one that contains another is hidden whole."""
    return sorted({one for one in secrets if len(one) >= SHORTEST_SECRET}, key=len, reverse=True)
