"""Storage events: keys are found in every envelope, and only invalid JSON is an error."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bide.server.uploads.presigned import PresignedUploads
from bide.server.uploads.storage_events import read_keys, subscription

WORDS = [
    *("Records", "Messages", "Message", "body", "Body", "s3", "bucket", "object", "key", "name"),
    *("detail", "detail-type", "eventName", "Type", "SubscribeURL"),
]
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(WORDS),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)
KEY = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)


def event(bucket: str, key: str) -> dict[str, Any]:
    return {
        "Records": [
            {
                "eventVersion": "2.1",
                "eventName": "ObjectCreated:CompleteMultipartUpload",
                "s3": {"bucket": {"name": bucket}, "object": {"key": quote_plus(key), "size": 3}},
            }
        ]
    }


@given(KEY)
def test_a_key_comes_out_of_every_envelope(key: str) -> None:
    own = event("files", key)
    notified = {"Type": "Notification", "Message": json.dumps(own)}
    for value in (
        own,
        notified,
        {"Records": [{"body": json.dumps(notified)}]},
        {"Messages": [{"Body": json.dumps(own)}]},
        [own],
    ):
        assert read_keys(json.dumps(value)) == [("files", key)]
    bridged = {
        "detail-type": "Object Created",
        "detail": {"bucket": {"name": "files"}, "object": {"key": key}},
    }
    assert read_keys(json.dumps(bridged)) == [("files", key)]


@given(ANYTHING)
def test_anything_else_has_no_keys_or_some_and_is_no_error(value: Any) -> None:
    for bucket, key in read_keys(json.dumps(value)):
        assert isinstance(bucket, str) and isinstance(key, str)
    subscription(json.dumps(value))


TOPIC = "arn:aws:sns:eu-central-1:123456789012:uploads"
GOV = "arn:aws-us-gov:sns:us-gov-west-1:123456789012:a_b-c"
TOKEN = "2336412f37fb687f5d51e6e2425c464d" * 4


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        ({}, (TOPIC, TOKEN)),
        ({"TopicArn": GOV}, (GOV, TOKEN)),
        ({"TopicArn": "https://evil.example/"}, None),
        ({"TopicArn": TOPIC + "\nERROR forged"}, None),
        ({"TopicArn": TOPIC + "; curl evil.example"}, None),
        ({"Token": "https://evil.example/"}, None),
        ({"Token": "a\n" * 20}, None),
        ({"Token": None}, None),
        ({"Type": "Notification"}, None),
    ],
)
def test_what_confirms_a_subscription(changed: dict[str, Any], found: Any) -> None:
    body = {"Type": "SubscriptionConfirmation", "TopicArn": TOPIC, "Token": TOKEN}
    body |= {"SubscribeURL": "https://evil.example/confirm", **changed}
    assert subscription(json.dumps(body)) == found


def test_what_was_removed_was_not_put() -> None:
    gone = event("files", "a")
    gone["Records"][0]["eventName"] = "ObjectRemoved:Delete"
    assert read_keys(json.dumps(gone)) == []


def test_envelopes_without_end_are_left() -> None:
    value: Any = event("files", "a")
    for _ in range(20):
        value = {"Message": json.dumps(value)}
    assert read_keys(json.dumps(value)) == []


def test_no_json_is_an_error() -> None:
    for body in (b"{", b"", b"\xff", b"[" * 100_000):
        with pytest.raises(ValueError):
            read_keys(body)
        assert subscription(body) is None


def test_which_upload_a_key_is_of() -> None:
    upload = "01J" + "A" * 23
    assert PresignedUploads.upload_in(f"uploads/{upload}/incoming") == upload
    assert PresignedUploads.upload_in(f"a/b/uploads/{upload}/content") == upload
    for key in ("", "a", f"uploads/{upload}", f"uploads/{upload}/other", "uploads/../content"):
        assert PresignedUploads.upload_in(key) is None
