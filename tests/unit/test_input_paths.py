"""Paths into inputs: what is found, and what is hidden."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bide.core.errors import SetupError
from bide.core.jobs.input_paths import HIDDEN, MAX_VALUES, masked, search_terms, secret_texts
from bide.server.registry import Registry

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
    max_leaves=10,
)


@pytest.mark.parametrize(
    ("document", "values"),
    [
        ({"a": {"b": 42}}, ["42"]),
        ({"a": {"b": 1.5}}, ["1.5"]),
        ({"a": {"b": True}}, ["true"]),
        ({"a": {"b": None}}, ["null"]),
        ({"a": {"b": ""}}, []),
        ({"a": {"b": "x" * 256}}, []),
        ({"a": {"b": "nul\0"}}, []),
        ({"a": {"b": {"c": 1}}}, []),
        ({"a": [{"b": 1}, {"b": [2, "x", 1]}, 3]}, ["1", "2", "x"]),
        ({"a": {"b": list(range(100))}}, [str(n) for n in range(MAX_VALUES)]),
        ([], []),
        (7, []),
    ],
)
def test_values_at_a_path(document: Any, values: list[str]) -> None:
    assert search_terms(document, ["input.a.b"]) == tuple(("input.a.b", value) for value in values)


@given(JSON)
def test_a_masked_document_has_no_value_at_the_path(document: Any) -> None:
    before = json.dumps(document)
    hidden = masked({"a": {"b": document, "c": document}}, ["input.a.b"])
    assert hidden == {"a": {"b": HIDDEN, "c": document}}
    assert json.dumps(document) == before
    assert all(value == HIDDEN for _, value in search_terms(masked(document, ["input.a"]), ["input.a"]))


def test_the_longest_secret_first_and_no_short_one() -> None:
    document = {"token": ["abcd", "abcdef", "x", 12345, True, {"deep": "hidden"}]}
    assert secret_texts(document, ["input.token"]) == ("abcdef", "hidden", "12345", "abcd")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"search": ["video.id"]}, "not a path"),
        ({"search": ["input"]}, "not a path"),
        ({"search": ["input.a b"]}, "not a path"),
        ({"search": ["input" + ".video" * 11]}, "not a path"),
        ({"search": ["input.film"]}, "no parameter"),
        ({"secret": ["input.film"]}, "no parameter"),
        ({"search": ["input.video.id"], "secret": ["input.video"]}, "both"),
    ],
)
def test_a_wrong_path_is_reported_at_the_start(options: Any, words: str) -> None:
    def handler(video: dict[str, Any]) -> None: ...

    with pytest.raises(SetupError, match=words):
        Registry().job(**options)(handler)


def test_inputs_that_cannot_be_read_are_hidden_and_not_searched() -> None:
    registry = Registry()

    @registry.job(search=["input.x"], secret=["input.token"])
    def handler(x: float, token: str) -> None: ...

    kind = registry.kind("handler")
    assert kind.search_terms(b'{"x":1e999,"token":"t"}') == ()
    assert kind.shown_input(b'{"x":1e999,"token":"t"}') == b'"[secret]"'
    assert kind.shown_input(b'{"x":1,"token":"t"}') == b'{"x":1,"token":"[secret]"}'
    assert registry.shown_input("unknown", b"{}") == b'"[secret]"'
