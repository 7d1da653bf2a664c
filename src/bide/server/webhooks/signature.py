"""Signatures by Standard Webhooks: HMAC-SHA256 over id, timestamp and body."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
from collections.abc import Sequence

PREFIX = "whsec_"
KEY_BYTES = (24, 64)  # the sizes that the specification allows


def new_secret() -> str:
    return PREFIX + base64.b64encode(os.urandom(32)).decode()


def key_of(secret: str) -> bytes:
    """The key in a secret. Raises ValueError if it is none."""
    low, high = KEY_BYTES
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not secret.startswith(PREFIX) or not low <= len(key) <= high:
        raise ValueError(f"a secret is {PREFIX} and {low} to {high} bytes in base64")
    return key


def sign(secrets: Sequence[str], message_id: str, timestamp: int, body: bytes) -> str:
    """The header `webhook-signature`, with a signature for each secret."""
    content = b"%s.%d.%s" % (message_id.encode(), timestamp, body)
    digests = [hmac.new(key_of(secret), content, hashlib.sha256).digest() for secret in secrets]
    return " ".join(f"v1,{base64.b64encode(digest).decode()}" for digest in digests)
