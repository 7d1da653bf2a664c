"""Maps the status words of an API to states.

1. Words are compared without case. A word that the description does not list has the state `otherwise`, by default
   unknown.
2. A job is done only if no other field contradicts it: an error inside a success makes it failed or partial.
"""

from __future__ import annotations

from typing import Any, Final, Literal

from bide.client.apis.answers import BadPoll, State
from bide.client.apis.form import Read, Tally
from bide.client.apis.paths import Document, Source, missing, source
from bide.client.apis.values import number, word

STATES: tuple[State, ...] = ("live", "done", "failed", "cancelled", "partial")
_ENDED: Final = "ended"
_Meaning = State | Literal["ended"]  # `ended`: it has ended, but the word does not say how


class StatusWords:
    """Reads the state of a job, and its status word, from a response."""

    __slots__ = (
        "_absent",
        "_codes",
        "_codes_only",
        "_failed_if",
        "_known",
        "_otherwise",
        "_outcome",
        "_partial_if",
        "_path",
        "_status",
        "_tally",
        "_words_only",
    )

    def __init__(self, read: Read) -> None:
        self._path = read.status
        self._status = source(read.status) if read.status is not None else None
        self._known: dict[str, _Meaning] = {}
        meanings: tuple[_Meaning, ...] = (*STATES, _ENDED)
        for state in meanings:
            for name in getattr(read, state):
                if self._known.setdefault(name.lower(), state) != state:
                    raise ValueError(f"{name!r} is in both {self._known[name.lower()]} and {state}")
        self._outcome = source(read.outcome) if read.outcome is not None else None
        self._tally = _tally(read.tally) if read.tally is not None else None
        if read.ended and self._outcome is None and self._tally is None:
            raise ValueError("`ended` needs `outcome` or `tally`, which say how the job ended")
        self._otherwise = read.otherwise
        self._absent: State | None = read.absent
        self._codes: dict[int, State] = {_code(code): state for code, state in read.codes.items()}
        self._codes_only = source(read.codes_only) if read.codes_only is not None else None
        self._words_only = source(read.words_only) if read.words_only is not None else None
        self._failed_if = source(read.failed_if) if read.failed_if is not None else None
        self._partial_if = source(read.partial_if) if read.partial_if is not None else None
        if self._status is None and not self._codes:
            raise ValueError("`status` or `codes` is needed, which say where the state of a job is")

    def by_code(self, status: int) -> State | None:
        """Return the state of an HTTP status alone."""
        return self._codes.get(status)

    def state(self, document: Document) -> tuple[State, str, bool]:
        """Return the state, the word, and whether only the HTTP status gave it; BadPoll without a state."""
        status = document.status
        by_code = self._codes.get(status)
        if self._words_only is not None and self._words_only(document) is not None:
            by_code = None
        elif by_code is not None and self._codes_only is not None and self._codes_only(document):
            return by_code, "", True
        value = self._status(document) if self._status is not None else None
        found = word(value)
        if found is None:
            if value is not None and value != "":
                raise BadPoll(status, "the status in the response is not a text")
            state = by_code or self._absent
            if state is None:
                raise BadPoll(status, f"the response has no status{self._missing(document.body)}")
            if state == "done":
                state = self._confirm_done(document)
            return state, "", by_code is not None
        known = self._known.get(found) or self._known.get(found.strip().lower())
        if known is None:
            return self._otherwise, found, False
        if known == "live":
            return "live", found, False
        if known == _ENDED:
            known, found = self._ended(document, found)
        if known == "done":
            known = self._confirm_done(document)
        return known, found, False

    def _missing(self, body: Any) -> str:
        return "" if self._path is None else f". `read.status` is {missing(self._path, body)}"

    def _ended(self, document: Document, ended: str) -> tuple[State, str]:
        if self._outcome is not None:
            outcome = word(self._outcome(document))
            if outcome is not None:
                known = self._known.get(outcome.strip().lower())
                if known is None or known == _ENDED:
                    return "unknown", outcome
                return ("unknown" if known == "live" else known), outcome
        if self._tally is not None:
            done, *lacking = (_sum(get, document) for get in self._tally)
            failed, cancelled = lacking
            if not failed and not cancelled:
                return "done", ended
            return ("partial" if done else "failed" if failed else "cancelled"), ended
        return "unknown", ended

    def _confirm_done(self, document: Document) -> State:
        if self._failed_if is not None and self._failed_if(document):
            return "failed"
        if self._partial_if is not None and self._partial_if(document):
            return "partial"
        return "done"


def _code(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 100 <= int(text) <= 599):
        raise ValueError(f"{text!r} is not an HTTP status")
    return int(text)


def _tally(tally: Tally) -> list[list[Source]]:
    fields = (tally.done, tally.failed, tally.cancelled)
    return [
        [source(one) for one in ([field] if isinstance(field, str) else field or [])] for field in fields
    ]


def _sum(sources: list[Source], document: Document) -> float:
    """Return the sum of the sources; other fields use the first source with a value."""
    return sum(number(get(document)) or 0.0 for get in sources)
