"""Reads the object keys from notifications of object storage.

Supported: S3 event messages (`Records[].s3.object.key`, form-encoded), the same inside SNS notifications (`Message`) and
SQS messages (`Records[].body`, `Messages[].Body`), and EventBridge events (`detail.object.key`, not encoded). Anything
else has no keys and is not an error.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote_plus

import msgspec

DEEPEST = 4  # nested envelopes
MOST_KEYS = 10_000
_TOPIC = re.compile(r"arn:aws[a-z-]{0,20}:sns:[a-z0-9-]{1,40}:[0-9]{12}:[A-Za-z0-9_-]{1,256}")
_TOKEN = re.compile(r"[0-9a-f]{32,512}")


def read_keys(body: bytes | str) -> list[tuple[str, str]]:
    """Return (bucket, key) of each created object, in order. ValueError if the body is not JSON."""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(str(error)) from None
    return _keys(value, 0)[:MOST_KEYS]


def subscription(body: bytes | str) -> tuple[str, str] | None:
    """Return the topic and the token if this is an SNS request to confirm a subscription.

    Anyone may have sent it. Both are checked against SNS's format, so it is safe to show them to an operator, unlike
    the URL in `SubscribeURL`.
    """
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if isinstance(value, dict) and value.get("Type") == "SubscriptionConfirmation":
        topic, token = value.get("TopicArn"), value.get("Token")
        if isinstance(topic, str) and isinstance(token, str):
            return (topic, token) if _TOPIC.fullmatch(topic) and _TOKEN.fullmatch(token) else None
    return None


def _keys(value: Any, depth: int) -> list[tuple[str, str]]:
    if depth > DEEPEST:
        return []
    if isinstance(value, list):
        return [found for item in value for found in _keys(item, depth)]
    if not isinstance(value, dict):
        return []
    found = _record(value) + _bridged(value)
    for name in ("Records", "Messages"):
        if isinstance(value.get(name), list):
            found += _keys(value[name], depth + 1)
    for name in ("Message", "body", "Body"):
        if isinstance(value.get(name), str):
            found += _within(value[name], depth + 1)
    return found


def _within(text: str, depth: int) -> list[tuple[str, str]]:
    try:
        return _keys(msgspec.json.decode(text), depth)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return []


def _record(value: dict[str, Any]) -> list[tuple[str, str]]:
    """Read a record of an S3 event message."""
    about, name = value.get("s3"), value.get("eventName")
    if not isinstance(about, dict) or (isinstance(name, str) and "ObjectCreated" not in name):
        return []
    return [(bucket, unquote_plus(key)) for bucket, key in _bucket_and_key(about)]


def _bridged(value: dict[str, Any]) -> list[tuple[str, str]]:
    detail = value.get("detail")
    if not isinstance(detail, dict) or value.get("detail-type") != "Object Created":
        return []
    return _bucket_and_key(detail)


def _bucket_and_key(about: dict[str, Any]) -> list[tuple[str, str]]:
    bucket, item = about.get("bucket"), about.get("object")
    if not isinstance(bucket, dict) or not isinstance(item, dict):
        return []
    name, key = bucket.get("name"), item.get("key")
    return [(name, key)] if isinstance(name, str) and isinstance(key, str) else []
