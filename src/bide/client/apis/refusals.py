"""Classifies refusals: too many requests, too many jobs, unknown job. The HTTP status alone is often not enough."""

from __future__ import annotations

from collections.abc import Sequence

from bide.client.apis.answers import Answer
from bide.client.apis.form import Sign
from bide.client.apis.paths import Source, document, source

Rule = tuple[Source | None, frozenset[str], str, Source | None]  # source, values, contains, absent


class RefusalRules:
    """The rules for one class of refusals, by HTTP status."""

    __slots__ = ("_by_status",)

    def __init__(self, signs: Sequence[Sign]) -> None:
        self._by_status: dict[int, list[Rule]] = {}
        for sign in signs:
            rule = (
                source(sign.source) if sign.source is not None else None,
                frozenset(value.lower() for value in sign.values),
                (sign.contains or "").lower(),
                source(sign.absent) if sign.absent is not None else None,
            )
            for status in sign.status:
                self._by_status.setdefault(status, []).append(rule)

    def __contains__(self, status: int) -> bool:
        return status in self._by_status

    def fit(self, answer: Answer) -> bool:
        rules = self._by_status.get(answer.status)
        return rules is not None and any(_fits(rule, answer) for rule in rules)


def _fits(rule: Rule, answer: Answer) -> bool:
    get, values, contains, absent = rule
    if absent is not None and absent(document(answer)) not in (None, ""):
        return False
    if get is None:
        text = answer.body[:65536].decode("utf-8", "replace")
    else:
        found = get(document(answer))
        if found is None:
            return False
        text = found if isinstance(found, str) else str(found)
    text = text.lower()
    if values and text.strip() not in values:
        return False
    return not contains or contains in text
