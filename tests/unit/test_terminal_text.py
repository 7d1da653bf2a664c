"""Text for a terminal: what stays, and what is replaced."""

from __future__ import annotations

import json

import pytest

from bide.client.terminal_text import harmless, harmless_json


@pytest.mark.parametrize(
    "text",
    [
        "plain",
        "two\nlines",
        "5\u00a0% of\u3000it",  # other spaces
        "\U0001f469\u200d\U0001f52c",  # a scientist: woman, joiner, microscope
        "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",  # Persian, with a non-joiner
    ],
)
def test_words_of_any_language_stay(text: str) -> None:
    assert harmless(text) == harmless_json(text) == text


@pytest.mark.parametrize("control", ["\x1b", "\r", "\x08", "\x7f", "\x9b", "\u2028", "\u202e", "\ufeff"])
def test_control_characters_are_replaced(control: str) -> None:
    assert harmless(f"a{control}b") == "a?b"
    document = json.dumps({"a": f"x{control}y"}, ensure_ascii=False)
    assert harmless_json(document).isprintable()
    assert json.loads(harmless_json(document)) == json.loads(document)


def test_a_tab_is_spaces() -> None:
    assert harmless("a\tb") == "a       b"
